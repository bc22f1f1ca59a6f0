"""`from_voc`, `write_voc`: small folders by hand."""

from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from support.small_datasets import save_image

from effdet_keras.data import from_arrays, from_voc, load_splits, write_csv, write_voc


def write_xml(path, objects, size=(30, 40), filename="stale.jpg"):
    items = "".join(
        f"<object><name>{name}</name><difficult>{difficult}</difficult>"
        # Parts of a person have boxes too: not objects of their own.
        "<part><name>hand</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax>"
        f"<ymax>2</ymax></bndbox></part><bndbox><xmax>{x1}</xmax><xmin>{x0}</xmin>"
        f"<ymin>{y0}</ymin><ymax>{y1}</ymax></bndbox></object>"
        for name, difficult, (x0, y0, x1, y1) in objects
    )
    height, width = size
    path.write_text(
        f"<annotation><filename>{filename}</filename><size><width>{width}</width>"
        f"<height>{height}</height><depth>3</depth></size>{items}</annotation>"
    )


@pytest.fixture
def folder(tmp_path):
    for name in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (tmp_path / name).mkdir(parents=True)
    for name, suffix in (("a", "jpg"), ("b", "png"), ("c", "jpg")):
        save_image(tmp_path / "JPEGImages" / f"{name}.{suffix}", (40, 30))
    objects = [("dog", 0, (1, 5, 40, 30)), ("cat", 1, (2, 3, 8.5, 9))]
    write_xml(tmp_path / "Annotations" / "a.xml", objects)
    write_xml(tmp_path / "Annotations" / "b.xml", [])
    write_xml(tmp_path / "Annotations" / "c.xml", [("dog", 0, (3, 3, 9, 9))])
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("c\na  -1\n\n")
    return tmp_path


@pytest.mark.parametrize(
    "one_based, boxes",
    [
        (True, [[4, 0, 30, 40], [2, 1, 9, 8.5]]),
        (False, [[5, 1, 30, 40], [3, 2, 9, 8.5]]),
    ],
)
def test_boxes_cover_their_first_and_their_last_pixel(folder, one_based, boxes):
    example = from_voc(folder, one_based=one_based)[0]
    np.testing.assert_array_equal(example["boxes"], boxes)
    sides = np.array(boxes)[:, 2:] - np.array(boxes)[:, :2]
    np.testing.assert_array_equal(example["area"], sides.prod(axis=1))
    np.testing.assert_array_equal(example["labels"], [1, 0])
    np.testing.assert_array_equal(example["is_crowd"], [False, True])  # difficult


def test_names_are_sorted_and_images_without_objects_kept(folder):
    dataset = from_voc(folder)
    assert dataset.class_names == ("cat", "dog") and dataset.category_ids == (1, 2)
    assert [example["source_id"] for example in dataset] == ["a", "b", "c"]
    assert [example["file_name"] for example in dataset] == ["a.jpg", "b.png", "c.jpg"]
    assert len(dataset[1]["labels"]) == 0
    assert [a["id"] for a in dataset.to_coco()["annotations"]] == [1, 2, 3]


def test_split_takes_the_images_of_its_list(folder):
    dataset = from_voc(folder, "train")
    assert [example["source_id"] for example in dataset] == ["c", "a"]
    assert dataset.image_ids == (1, 2)
    with pytest.raises(ValueError, match=r"\['train'\].*'valid'"):
        from_voc(folder, "valid")


def test_image_is_found_by_the_stale_name_only_without_its_own(folder):
    Image.new("RGB", (40, 30), (255, 0, 0)).save(folder / "JPEGImages" / "stale.jpg")
    assert from_voc(folder)[0]["file_name"] == "a.jpg"
    (folder / "JPEGImages" / "a.jpg").unlink()
    assert from_voc(folder)[0]["file_name"] == "stale.jpg"
    (folder / "JPEGImages" / "stale.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"missing image.*stale\.jpg"):
        from_voc(folder)


def test_flat_folder_and_absent_size_and_object(tmp_path):
    Image.new("RGB", (40, 30)).save(tmp_path / "a.jpg")
    write_xml(tmp_path / "a.xml", [], size=(0, 0))
    with pytest.raises(ValueError, match="class_names"):
        from_voc(tmp_path)
    assert from_voc(tmp_path, class_names=["cell"])[0]["image_size"] == (30, 40)


def test_slips_of_the_mouse_are_counted_and_left_out(folder):
    slips = [
        ("dog", 0, (5, 5, 5, 9)),
        ("dog", 0, (5, 5, 4, 9)),
        ("cat", 0, (1, 1, 9, 9)),
    ]
    write_xml(folder / "Annotations" / "b.xml", slips)
    with pytest.warns(
        UserWarning, match=r"2 empty boxes: b\.xml.*5, 5 to 5, 9; b\.xml"
    ):
        dataset = from_voc(folder)
    np.testing.assert_array_equal(dataset[1]["labels"], [0])
    assert len(dataset.to_coco()["annotations"]) == 4


def test_missing_files_are_named(folder, tmp_path):
    (folder / "Annotations" / "c.xml").unlink()
    with pytest.raises(ValueError, match="1 unreadable annotation: c.xml"):
        from_voc(folder, "train")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        from_voc(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no xml"):
        from_voc(tmp_path / "empty")


def test_what_is_written_is_what_others_read(folder, tmp_path):
    dataset = from_voc(folder)
    write_voc({"train": dataset[:2], "val": dataset[2:]}, tmp_path / "set")
    root = ElementTree.parse(tmp_path / "set" / "Annotations" / "a.xml").getroot()
    assert root.findtext("filename") == "a.jpg"
    assert [root.findtext(f"size/{k}") for k in ("width", "height")] == ["40", "30"]
    boxes = [
        [item.findtext(f"bndbox/{key}") for key in ("xmin", "ymin", "xmax", "ymax")]
        for item in root.findall("object")
    ]
    assert boxes == [["1", "5", "40", "30"], ["2", "3", "8.5", "9"]]
    assert [item.findtext("difficult") for item in root.findall("object")] == ["0", "1"]
    lists = tmp_path / "set" / "ImageSets" / "Main"
    assert (lists / "train.txt").read_text() == "a\nb\n"
    assert (lists / "val.txt").read_text() == "c\n"
    read = (tmp_path / "set" / "JPEGImages" / "c.jpg").read_bytes()
    assert read == (folder / "JPEGImages" / "c.jpg").read_bytes()


# --- Files that other tools write.

OBJECT = (
    "<object><name>cat</name><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>9</xmax>"
    "<ymax>9</ymax></bndbox></object>"
)


@pytest.mark.parametrize(
    "text",
    [
        "<annotation>{}</annotation>",
        "<annotations><annotation>{}</annotation></annotations>",
        "<doc>{}</doc>",
        "<Annotation><size/>{}</Annotation>",
        "<annotation xmlns='http://x.org/voc'>{}</annotation>",
        "<v:annotation xmlns:v='http://x' xmlns='http://x'>{}</v:annotation>",
        "<annotation><OBJECT>{}</OBJECT></annotation>".replace("{}", OBJECT[8:-9]),
        '<?xml version="1.0" encoding="foobar"?><annotation>{}</annotation>',
        '<?xml version="1.0" encoding="gbk"?>\n<annotation>{}</annotation>',
        "<annotation><?pi x?><!-- no object -->{}</annotation>",
    ],
)
def test_roots_tags_and_encodings_may_differ(tmp_path, text):
    save_image(tmp_path / "a.png", (40, 30))
    (tmp_path / "a.xml").write_text(text.replace("{}", OBJECT))
    dataset = from_voc(tmp_path)
    assert dataset.class_names == ("cat",)
    np.testing.assert_array_equal(dataset[0]["boxes"], [[2, 1, 9, 9]])


@pytest.mark.parametrize("encoding", ["gbk", "shift_jis", "windows-1251", "utf-16"])
def test_names_are_read_in_the_encoding_that_a_file_names(tmp_path, encoding):
    name = "жук" if encoding != "shift_jis" else "猫"
    save_image(tmp_path / "a.png", (40, 30))
    text = f'<?xml version="1.0" encoding="{encoding}"?><annotation>{OBJECT}'
    text = text.replace("cat", name) + "</annotation>"
    (tmp_path / "a.xml").write_bytes(text.encode(encoding))
    assert from_voc(tmp_path).class_names == (name,)


@pytest.mark.parametrize(
    "data, message",
    [
        (b'<?xml version="1.0" encoding="gbk"?><a>\xff</a>', "encoding that it names"),
        (b'<?xml version="1.0" encoding="foo"?><a>\xe9</a>', "encoding that it names"),
        (b"<annotation>\xe9</annotation>", "not in UTF-8 and names no other"),
        (b"<project><component/></project>", "root element.*Received: <project>"),
        (b"<annotations><image/></annotations>", "format of CVAT"),
        (b"", "no well-formed xml"),
        (b"<annotations><annotation/><annotation/></annotations>", "`filename`"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(folder, data, message):
    (folder / "Annotations/a.xml").write_bytes(data)
    with pytest.raises(ValueError, match=rf"a\.xml.*{message}"):
        from_voc(folder)
    with pytest.warns(UserWarning, match=message):
        dataset = from_voc(folder, on_error="skip")
    assert [record.file_name for record in dataset.records] == ["b.png", "c.jpg"]


def test_a_file_may_hold_the_annotations_of_several_images(tmp_path):
    for name in ("a.png", "b.png"):
        save_image(tmp_path / name, (40, 30))
    texts = (
        f"<annotation><filename>{name}</filename>{objects}</annotation>"
        for name, objects in (("a.png", OBJECT), ("x\\b.png", OBJECT * 2))
    )
    (tmp_path / "all.xml").write_text(f"<annotations>{''.join(texts)}</annotations>")
    dataset = from_voc(tmp_path)
    found = {record.file_name: len(record.labels) for record in dataset.records}
    assert found == {"a.png": 1, "b.png": 2}


@pytest.mark.parametrize("name", [" cat", "c\x1bat", "cat\n"])
@pytest.mark.parametrize("write", [write_voc, write_csv])
def test_names_that_a_format_would_change_are_refused(tmp_path, name, write):
    image = np.zeros((30, 40, 3), np.uint8)
    dataset = from_arrays([image], [[[1, 2, 9, 9]]], [[0]], [name])
    with pytest.raises(ValueError, match="cannot store names of classes"):
        write(dataset, tmp_path / "set")
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("line", ["{}", "{}.jpg", "JPEGImages/{}.jpg", r"F:\x\{}.png"])
def test_lists_may_lie_in_image_sets_itself_and_have_paths(folder, line):
    (folder / "ImageSets" / "Main" / "train.txt").unlink()
    for split, name in (("trainval", "a"), ("test", "c")):
        (folder / "ImageSets" / f"{split}.txt").write_text(line.format(name))
    (folder / "ImageSets" / "colors.txt").write_text("red\n")
    splits = load_splits(folder)
    assert {s: [r.source_id for r in d.records] for s, d in splits.items()} == {
        "test": ["c"],
        "trainval": ["a"],
    }
