"""`on_error="auto"`: errors of a few images or boxes are left out, more are refused."""

import json
import warnings

import numpy as np
import pytest
from support.cloned_files import CSV, coco, put, voc

from effdet_keras import RunConfiguration, data
from effdet_keras.data import load, load_splits
from effdet_keras.data.problems import MAX_PERCENT, MAX_PERCENT_WITHOUT_NAME, Problems

NUM_IMAGES = 40
NUM_BOXES = 100
ROW = "0 0.5 0.5 0.5 0.5\n"


@pytest.fixture
def yolo(tmp_path):
    """A darknet dataset of `NUM_IMAGES` images and `NUM_BOXES` boxes."""
    names = [f"obj_train_data/{number}" for number in range(NUM_IMAGES)]
    counts = [NUM_BOXES // NUM_IMAGES + (number % 2) for number in range(NUM_IMAGES)]
    assert sum(counts) == NUM_BOXES
    put(tmp_path, *(f"{name}.png" for name in names))
    for name, count in zip(names, counts):
        put(tmp_path, f"{name}.txt", text=ROW * count)
    put(tmp_path, "train.txt", text="".join(f"{name}.png\n" for name in names))
    put(tmp_path, "obj.names", text="cat\ndog\n")
    put(tmp_path, "obj.data", text="classes=2\ntrain=train.txt\nnames=obj.names\n")
    return tmp_path


def num_boxes(dataset):
    return sum(len(record.labels) for record in dataset.records)


def read(folder, **options):
    """The dataset, and the warnings as one text."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        dataset = load(folder, **options)
    return dataset, "\n".join(str(warning.message) for warning in told)


def remove_images(folder, count):
    for number in range(count):
        (folder / f"obj_train_data/{number}.png").unlink()


def replace_boxes(folder, count, row):
    """Replaces the first box of some images."""
    for number in range(count):
        file = folder / f"obj_train_data/{number}.txt"
        file.write_text(row + file.read_text().removeprefix(ROW))


def test_nothing_is_said_of_a_dataset_without_errors(yolo):
    assert (MAX_PERCENT, MAX_PERCENT_WITHOUT_NAME) == (5, 1)  # percent, as below
    dataset, told = read(yolo)
    assert (len(dataset), num_boxes(dataset), told) == (NUM_IMAGES, NUM_BOXES, "")


def test_two_missing_images_of_forty_are_left_out_with_a_warning(yolo):
    remove_images(yolo, 2)
    dataset, told = read(yolo)
    assert len(dataset) == NUM_IMAGES - 2
    assert "2 missing images: obj_train_data/0.png" in told
    assert "on_error='raise'" in told
    kinds = [problem.kind for problem in dataset.problems]
    assert kinds.count("missing image") == 2


def test_three_missing_images_of_forty_are_refused(yolo):
    remove_images(yolo, 3)
    with pytest.raises(FileNotFoundError, match="3 missing images.*--skip-errors"):
        load(yolo)
    assert len(read(yolo, on_error="skip")[0]) == NUM_IMAGES - 3


def test_one_missing_image_is_refused_where_errors_are(yolo):
    remove_images(yolo, 1)
    with pytest.raises(FileNotFoundError, match="1 missing image"):
        load(yolo, on_error="raise")


@pytest.mark.parametrize(
    "row, kind, few",
    [
        ("7 0.5 0.5 0.5 0.5\n", "unknown class", 1),
        ("0 0.5 0.5 0.5\n", "bad box", 5),
    ],
)
def test_a_few_wrong_boxes_of_a_hundred_are_left_out(yolo, row, kind, few):
    replace_boxes(yolo, few, row)
    dataset, told = read(yolo)
    assert num_boxes(dataset) == NUM_BOXES - few
    assert kind in told.replace("boxes", "box")
    replace_boxes(yolo, few + 1, row)
    with pytest.raises(ValueError, match="unknown class|bad boxes"):
        load(yolo)


def test_a_class_without_a_name_is_counted_by_its_boxes(yolo):
    """One problem, but three boxes."""
    replace_boxes(yolo, 3, "7 0.5 0.5 0.5 0.5\n")
    with pytest.raises(ValueError, match="1 unknown class: .*3 boxes"):
        load(yolo)


def test_each_split_is_counted_by_itself(yolo):
    """Two missing images are few of forty and many of the four to test on."""
    put(yolo, *(f"test_{number}.png" for number in range(2)))
    lines = [f"test_{number}.png\n" for number in range(4)]
    put(yolo, "test.txt", text="".join(lines))
    for number in range(4):
        put(yolo, f"test_{number}.txt", text=ROW)
    with (yolo / "obj.data").open("a") as file:
        file.write("valid=test.txt\n")
    with pytest.raises(FileNotFoundError, match="2 missing images"):
        load_splits(yolo)


def problems_of(kinds, on_error="auto"):
    problems = Problems("`from_x` of 'x'", on_error)
    for number, kind in enumerate(kinds):
        problems.add(kind, f"{number}.txt")
    return problems


@pytest.mark.parametrize("kind", ["normalized box", "only stray annotations"])
def test_errors_of_a_whole_file_are_never_few(kind):
    with pytest.raises(ValueError, match=kind.split()[0]):
        problems_of([kind]).finish(num_images=10_000, num_boxes=10_000)


def test_images_of_all_kinds_count_together():
    kinds = ["missing image", "corrupt image", "unreadable annotation"]
    with pytest.warns(UserWarning, match="The errors are few"):
        problems_of(kinds).finish(num_images=57)
    with pytest.raises(ValueError, match="1 corrupt image"):
        problems_of(kinds).finish(num_images=56)


def test_warnings_alone_are_not_called_few():
    with pytest.warns(UserWarning) as told:
        problems_of(["empty box"]).finish(num_images=100, num_boxes=100)
    assert "few" not in str(told[0].message)


# The head of a record has 12 bytes, and its tail 4.
@pytest.mark.parametrize("num_bytes", [-20, 1, 8, 11])
def test_a_tfrecord_file_that_ends_early_is_refused(tmp_path, num_bytes):
    """Nobody knows how many images were in what is lost."""
    images = [np.zeros((16, 16, 3), np.uint8)] * 60
    dataset = data.from_arrays(images, [[[2, 2, 9, 9]]] * 60, [[0]] * 60, ["cat"])
    data.write_tfrecord(dataset, tmp_path / "out", num_shards=1)
    (file,) = (tmp_path / "out").glob("*.tfrecord*")
    file.write_bytes(file.read_bytes()[:num_bytes])
    with pytest.raises(ValueError, match="unreadable annotation.*the file is cut off"):
        load(tmp_path / "out")


def test_a_run_takes_all_three():
    assert RunConfiguration().on_error == "auto"
    for choice in ("auto", "raise", "skip"):
        assert RunConfiguration(on_error=choice).on_error == choice


def test_a_copy_in_another_format_is_whole_or_not_written(yolo, tmp_path):
    remove_images(yolo, 1)
    out = tmp_path / "copy"
    with pytest.raises(FileNotFoundError, match="1 missing image"):
        data.convert(yolo, out, "coco")
    assert not out.exists()


# --- What is lost is counted as images and boxes, not as messages.


@pytest.mark.parametrize("on_error", ["auto", "raise"])
def test_links_to_nowhere_are_missing_images(yolo, on_error):
    """As git-annex and DVC leave them: they vanished without a word."""
    remove_images(yolo, 30)
    for number in range(30):
        (yolo / f"obj_train_data/{number}.png").symlink_to("/nowhere/x.png")
    with pytest.raises(FileNotFoundError, match="30 missing images"):
        load(yolo, on_error=on_error)
    assert len(read(yolo, on_error="skip")[0]) == NUM_IMAGES - 30


def test_a_line_of_a_list_may_repeat_where_images_have_moved(yolo):
    lines = (yolo / "train.txt").read_text().replace("obj_train_data", "/home/x/a")
    (yolo / "train.txt").write_text(lines + lines.split("\n")[3] + "\n")
    assert len(read(yolo, on_error="raise")[0]) == NUM_IMAGES


def write_coco(folder, num_images=40, boxes_of=lambda number: 2):
    """COCO json of some images, whose annotations a test may change."""
    put(folder, *(f"{number}.png" for number in range(num_images)))
    box = {"category_id": 1, "bbox": [1, 2, 12, 13]}
    numbers = [n for n in range(num_images) for _ in range(boxes_of(n))]
    content = {
        "images": [
            {"id": n, "file_name": f"{n}.png", "width": 40, "height": 20}
            for n in range(num_images)
        ],
        "annotations": [{"id": i, "image_id": n, **box} for i, n in enumerate(numbers)],
        "categories": [{"id": 1, "name": "cat"}],
    }
    return folder, content


def save(folder, content, name="train.json"):
    (folder / name).write_text(json.dumps(content))
    return folder


def test_annotations_that_are_no_objects_are_boxes(tmp_path):
    folder, content = write_coco(tmp_path, 100, lambda number: number < 10)
    content["annotations"][:5] = [5] * 5  # half of all boxes
    with pytest.raises(ValueError, match="5 bad boxes"):
        load(save(folder, content))
    folder, content = write_coco(tmp_path)
    content["annotations"][:3] = [5] * 3  # of 80
    dataset, told = read(save(folder, content))
    assert num_boxes(dataset) == 77 and "3 bad boxes" in told


def test_the_boxes_of_a_missing_image_are_lost_too(tmp_path):
    folder, content = write_coco(tmp_path, boxes_of=lambda n: 101 if n == 0 else 1)
    (folder / "0.png").unlink()
    with pytest.raises(FileNotFoundError, match="1 missing image"):
        load(save(folder, content))


def test_images_with_the_same_id_are_never_few(tmp_path):
    """The boxes of both would be trained on in one image."""
    folder, content = write_coco(tmp_path)
    content["images"][1]["id"] = 0
    with pytest.raises(ValueError, match="1 duplicate id"):
        load(save(folder, content))


def test_other_errors_count_in_all_boxes(tmp_path):
    """1 of 100 boxes is 1 %, whatever is wrong with two others."""
    folder, content = write_coco(tmp_path, 50)
    content["annotations"][0]["category_id"] = 9
    for number in (1, 2):
        content["annotations"][number]["bbox"] = "x"
    assert num_boxes(read(save(folder, content))[0]) == 97


def test_a_csv_row_that_is_all_of_an_image_loses_the_image(tmp_path):
    put(tmp_path, *(f"{number}.png" for number in range(20)))
    rows = [f"{n}.png,40,20,cat,1,2,13,15" for n in range(15) for _ in range(13)]
    rows += [f"{n}.png,40,20,cat,1,2,x,15" for n in range(15, 20)]  # 5 of 200
    (tmp_path / "train.csv").write_text("\n".join([CSV.strip(), *rows]))
    with pytest.raises(ValueError, match="5 bad boxes"):
        load(tmp_path)
    assert len(read(tmp_path, on_error="skip")[0]) == 15


def test_other_columns_of_a_csv_are_no_images(tmp_path):
    """Addresses of images in a second column counted as lost images."""
    put(tmp_path, *(f"{number}.png" for number in range(20)))
    rows = [
        f"{n}.png,40,20,cat,{left},2,13,15,u{n}.jpg"
        for n in range(20)
        for left in range(3)
    ]
    rows += ["0.png,40,20,cat,1,2,x,15,u0.jpg"]
    (tmp_path / "train.csv").write_text("\n".join([f"{CSV.strip()},url", *rows]))
    dataset, told = read(tmp_path)
    assert (len(dataset), num_boxes(dataset)) == (20, 60) and "1 bad box" in told


def test_a_hugging_face_row_may_lose_many_boxes(tmp_path):
    put(tmp_path, *(f"{number}.png" for number in range(50)))
    objects = [{"bbox": [[1, 2, 12, 13]], "category": ["cat"]}] * 48
    objects += [{"bbox": [[1, 2, 12, 13]] * 100, "category": ["cat"] * 99}] * 2
    rows = [
        json.dumps({"file_name": f"{number}.png", "objects": own})
        for number, own in enumerate(objects)
    ]
    (tmp_path / "metadata.jsonl").write_text("\n".join(rows))
    with pytest.raises(ValueError, match="2 bad boxes"):
        load(tmp_path)


def test_a_damaged_json_of_a_split_is_named(tmp_path):
    """It left the split out without a word, and `train` was divided."""
    for split in ("train", "val"):
        put(tmp_path, f"{split}/{split}.png")
        text = coco(f"{split}.png")
        put(tmp_path, f"annotations/{split}.json", text=text)
    assert list(load_splits(tmp_path)) == ["train", "val"]
    for damaged in (text[: len(text) // 2], "", "version https://git-lfs.github.com\n"):
        put(tmp_path, "annotations/val.json", text=damaged)
        with pytest.warns(UserWarning, match="val.json' is not read.*split is left"):
            assert list(load_splits(tmp_path)) == ["train"]
        with pytest.raises(ValueError, match="val.json' is not read.*Repair it"):
            load_splits(tmp_path, on_error="raise")
        with pytest.raises(ValueError, match="one of .'train'.*val.json': "):
            load(tmp_path, "val")
    (tmp_path / "annotations/val.json").unlink()
    (tmp_path / "annotations/val.json").symlink_to("/nowhere/val.json")
    with pytest.warns(UserWarning, match="val.json' is not read"):
        assert list(load_splits(tmp_path)) == ["train"]


@pytest.mark.parametrize("text", ["", "id,usage\n1,public\n", "version https://git\n"])
def test_a_csv_file_of_a_split_that_cannot_be_read_is_named(tmp_path, text):
    put(tmp_path, "a.png", "b.png")
    put(tmp_path, "train_labels.csv", text=CSV + "a.png,40,20,cat,1,2,13,15\n")
    put(tmp_path, "test_labels.csv", text=text)
    with pytest.warns(UserWarning, match="test_labels.csv' is not read, although"):
        assert list(load_splits(tmp_path)) == ["train"]
    put(tmp_path, "test_labels.csv", text=CSV + "b.png,40,20,cat,1,2,13,15\n")
    assert sorted(load_splits(tmp_path)) == ["test", "train"]


def test_a_split_without_objects_may_have_a_few_errors(tmp_path):
    lists = {"train": range(40), "val": range(40, 80)}
    names = {s: [str(n) for n in numbers] for s, numbers in lists.items()}
    voc(tmp_path, *names["train"], *names["val"], lists=names)
    for name in names["val"]:
        empty = f"<annotation><filename>{name}.jpg</filename></annotation>"
        put(tmp_path, f"Annotations/{name}.xml", text=empty)
    put(tmp_path, "Annotations/40.xml", text="<annotation>")
    with pytest.warns(UserWarning, match="1 unreadable annotation") as told:
        splits = load_splits(tmp_path)
    assert {name: len(d) for name, d in splits.items()} == {"train": 40, "val": 39}
    assert sum("unreadable" in str(warning.message) for warning in told) == 1
    put(tmp_path, "Annotations/41.xml", "Annotations/42.xml", text="<annotation>")
    with pytest.raises(ValueError, match="3 unreadable annotations"):
        load_splits(tmp_path)


def test_labelme_files_without_a_list_of_shapes_are_unreadable(tmp_path):
    put(tmp_path, *(f"{number}.png" for number in range(5)))
    shape = {"label": "cat", "points": [[5, 2], [25, 12]], "shape_type": "rectangle"}
    for number in range(5):
        shapes = [shape] if number else {"a": 1}
        content = {"shapes": shapes, "imagePath": f"{number}.png"}
        put(tmp_path, f"{number}.json", text=json.dumps(content))
    with pytest.raises(ValueError, match="1 unreadable annotation: 0.json: a list `sh"):
        load(tmp_path)


def test_a_txt_file_that_is_a_pointer_of_git_lfs_says_so(yolo):
    put(yolo, "obj_train_data/0.txt", text="version https://git-lfs.github.com/spec/v1")
    with pytest.raises(ValueError, match="git lfs pull"):
        load(yolo, on_error="raise")


def test_too_many_brackets_are_no_valid_json(tmp_path):
    """Python's RecursionError named no file."""
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="a.json"):
        data.from_coco(tmp_path / "a.json")
    with pytest.raises(ValueError, match="a.json"):
        load(tmp_path)


BOX = {"left": 1, "top": 2, "width": 12, "height": 13}
CREATE_ML = {"label": "cat", "coordinates": {"x": 7, "y": 8, "width": 12, "height": 13}}
LABEL_STUDIO = {
    "x": 2.5,
    "y": 10,
    "width": 30,
    "height": 65,
    "rectanglelabels": ["cat"],
}
VIA = {
    "shape_attributes": {"name": "rect", "x": 1, "y": 2, "width": 12, "height": 13},
    "region_attributes": {"class": "cat"},
}
LABELBOX = {"name": "cat", "bounding_box": BOX, "annotation_kind": "ImageBoundingBox"}


def entry_of(format, name):
    """An image with one box as an entry of a file that describes all images."""
    if format == "create_ml":
        return {"image": name, "annotations": [CREATE_ML]}
    if format == "bdd":
        box = {"x1": 1, "y1": 2, "x2": 13, "y2": 15}
        return {"name": name, "labels": [{"category": "cat", "box2d": box}]}
    if format == "label_studio":
        result = {"type": "rectanglelabels", "value": LABEL_STUDIO}
        return {"data": {"image": name}, "annotations": [{"result": [result]}]}
    if format == "via":
        return {"filename": name, "regions": [VIA]}
    if format == "hugging_face":
        return {
            "file_name": name,
            "objects": {"bbox": [[1, 2, 12, 13]], "category": [0]},
        }
    if format == "ground_truth":
        pets = {"annotations": [BOX | {"class_id": 0}]}
        metadata = {"class-map": {"0": "cat"}}
        return {"source-ref": name, "pets": pets, "pets-metadata": metadata}
    labels = [{"annotations": {"objects": [LABELBOX]}}]
    row = {"id": name, "external_id": name}
    return {"data_row": row, "projects": {"p": {"labels": labels}}}


FILES = {  # name of the file, and whether it has one entry per line
    "create_ml": ("a.json", False),
    "bdd": ("a.json", False),
    "label_studio": ("a.json", False),
    "via": ("a.json", False),
    "labelbox": ("a.ndjson", True),
    "hugging_face": ("metadata.jsonl", True),
    "ground_truth": ("output.manifest", True),
}


def put_entries(folder, format, broken=()):
    """A dataset of `NUM_IMAGES` images with one box each, of which some are broken."""
    names = [f"{number}.png" for number in range(NUM_IMAGES)]
    put(folder, *names)
    entries = [entry_of(format, name) for name in names]
    for number, entry in broken:
        entries[number] = entry
    name, has_lines = FILES[format]
    texts = [e if isinstance(e, str) else json.dumps(e) for e in entries]
    text = "\n".join(texts) if has_lines else f"[{', '.join(texts)}]"
    if format == "via":
        text = json.dumps({str(n): json.loads(text) for n, text in enumerate(texts)})
    put(folder, name, text=text)


@pytest.mark.parametrize("format", FILES)
def test_a_broken_entry_of_a_file_loses_one_image(tmp_path, format):
    """The whole file was refused, also with `on_error="skip"`."""
    put_entries(tmp_path, format, [(7, {"no": "image"}), (9, "3")])
    dataset, told = read(tmp_path)
    assert len(dataset) == num_boxes(dataset) == NUM_IMAGES - 2
    place = {"via": "7", "label_studio": "task 8", "labelbox": "line 8"}
    place |= dict.fromkeys(("hugging_face", "ground_truth"), "line 8")
    assert "2 unreadable annotations" in told
    assert f"{FILES[format][0]}: {place.get(format, 'entry 8')}: " in told
    put_entries(tmp_path, format, [(n, {"no": "image"}) for n in range(7, 10)])
    with pytest.raises(ValueError, match="3 unreadable annotations"):
        read(tmp_path)
    assert len(read(tmp_path, on_error="skip")[0]) == NUM_IMAGES - 3


@pytest.mark.parametrize(
    "format", [f for f, (_, has_lines) in FILES.items() if has_lines]
)
def test_a_broken_line_loses_one_image_and_a_broken_end_is_refused(tmp_path, format):
    """The rest of a file that ends too early is missing: nobody knows how much."""
    put_entries(tmp_path, format, [(7, "{'file_name'")])
    dataset, told = read(tmp_path)
    assert len(dataset) == NUM_IMAGES - 1 and "line 8 is not valid json" in told
    whole = (tmp_path / FILES[format][0]).read_text().replace("{'file_name'\n", "")
    (tmp_path / FILES[format][0]).write_text(whole[:-5])
    with pytest.raises(ValueError, match="line 39 is not valid json"):
        read(tmp_path)
    assert len(read(tmp_path, on_error="skip")[0]) == NUM_IMAGES - 2
