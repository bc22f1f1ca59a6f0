"""`from_cvat`: shapes of CVAT's xml by hand, subsets, classes, and what is refused."""

import math

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data import from_cvat
from effdet_keras.data.formats.cvat import is_cvat
from effdet_keras.data.record import load_mask

LABELS = """
      <labels>
        <label><name>dog</name><color>#33ddff</color><type>rectangle</type></label>
        <label><name>cat</name><color>#fa3253</color><type>any</type></label>
        <label><name>night</name><type>tag</type></label>
        <label><name>nose</name><type>points</type></label>
      </labels>"""
FILE = """<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta>
    <task>
      <id>12</id>
      <name>pets</name>
      <size>2</size>
      <mode>annotation</mode>
      <subset></subset>{labels}
    </task>
    <dumped>2024-05-01 10:00:00.000000+00:00</dumped>
  </meta>
{images}
</annotations>
"""
IMAGE = '  <image id="{}" name="{}" {}width="40" height="20">\n{}\n  </image>\n'
BOX = (
    '<box label="{}" source="manual" occluded="0" xtl="5.50" ytl="2.00" xbr="25.50" '
    'ybr="12.00" z_order="0"{}></box>'
)


@pytest.fixture
def export(tmp_path):
    def export(*images, labels=LABELS, place="images", file="annotations.xml"):
        content = ""
        for number, (name, subset, shapes) in enumerate(images):
            given = f'subset="{subset}" task_id="3" ' if subset else ""
            content += IMAGE.format(number, name, given, shapes)
            save_image(tmp_path / place / subset / name)
        (tmp_path / file).write_text(FILE.format(labels=labels, images=content))
        return tmp_path

    return export


@pytest.mark.smoke
def test_boxes_and_the_order_of_the_labels(export):
    folder = export(
        (
            "b.png",
            "",
            BOX.format("cat", "") + '<tag label="night" source="manual"></tag>',
        ),
        ("a.png", "", ""),
    )
    dataset = data.load(folder)
    assert dataset.class_names == ("dog", "cat")  # of tags and points there is no box
    assert [record.file_name for record in dataset.records] == ["b.png", "a.png"]
    np.testing.assert_array_equal(dataset.records[0].boxes_xywh, [[5.5, 2, 20, 10]])
    np.testing.assert_array_equal(dataset.records[0].labels, [1])
    assert len(dataset.records[1].labels) == 0
    assert from_cvat(folder / "annotations.xml").class_names == dataset.class_names


def test_other_shapes_become_their_upright_box(export):
    folder = export(
        (
            "a.png",
            "",
            '<polygon label="cat" points="1.00,2.00;9.50,4.00;3.00,8.25"></polygon>'
            '<ellipse label="cat" cx="20" cy="10" rx="6" ry="2" rotation="90"/>'
            '<mask label="dog" rle="1, 2, 1, 2" left="3" top="4" width="3" height="2">'
            "</mask>",
        )
    )
    dataset = from_cvat(folder, masks=True)
    np.testing.assert_allclose(
        dataset.records[0].boxes_xywh,
        [[1, 2, 8.5, 6.25], [18, 4, 4, 12], [3, 4, 3, 2]],
    )
    # The run lengths go row by row in the box, zeros first: 011 / 011.
    record = dataset.records[0].select([False, False, True])
    mask = np.zeros((20, 40), np.uint8)
    mask[4:6, 4:6] = 1  # label 0
    np.testing.assert_array_equal(load_mask(record), mask)
    assert load_mask(dataset.records[0])[4, 4] > 0


def test_a_rotated_box_is_turned_about_its_center_and_counted(export):
    folder = export(
        ("a.png", "", BOX.format("dog", ' rotation="30.00"')),
        ("b.png", "", BOX.format("dog", ' rotation="0.00"')),
    )
    with pytest.warns(UserWarning, match=r"1 box is rotated: 'dog' by 30 deg.*a\.png"):
        dataset = from_cvat(folder)
    cos, sin = math.cos(math.radians(30)), math.sin(math.radians(30))
    width, height = 20 * cos + 10 * sin, 20 * sin + 10 * cos
    np.testing.assert_allclose(
        dataset.records[0].boxes_xywh,
        [[15.5 - width / 2, 7 - height / 2, width, height]],
    )
    np.testing.assert_array_equal(dataset.records[1].boxes_xywh, [[5.5, 2, 20, 10]])


def test_what_has_no_box_is_counted_in_one_warning(export):
    shapes = '<points label="nose" points="1.00,2.00"></points>'
    shapes += '<polyline label="cat" points="1.00,2.00;3.00,4.00"></polyline>'
    folder = export(("a.png", "", shapes + BOX.format("cat", "")))
    with pytest.warns(UserWarning, match=r"2 unread shapes: a\.png: points of 'nose'"):
        dataset = from_cvat(folder)
    assert len(dataset.records[0].labels) == 1


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("tag", "2 unread shapes: a.png: tag 'night' of the whole image; a.png: tag"),
        ("polyline", "2 unread shapes: a.png: polyline of 'night'; a.png: polyline"),
    ],
)
def test_a_file_without_any_box_says_what_it_has(export, tag, message):
    shape = f'<{tag} label="night" source="manual" points="1,2;3,4"></{tag}>'
    path = export(("a.png", "", shape * 2), labels="")
    with pytest.raises(ValueError, match=f"found {message}.* have no boxes: draw"):
        from_cvat(path)


def test_subsets_of_a_project_are_its_splits(export, capsys):
    folder = export(
        ("a.png", "Train", BOX.format("cat", "")),
        ("a.png", "Validation", BOX.format("dog", "")),
    )
    splits = data.load_splits(folder)
    assert "CVAT xml: splits train, validation" in capsys.readouterr().out
    paths = [splits[name].records[0].image for name in ("train", "validation")]
    assert paths == [str(folder / f"images/{n}/a.png") for n in ("Train", "Validation")]
    assert splits["train"].class_names == splits["validation"].class_names
    with pytest.raises(ValueError, match=r"\['train', 'validation'\].*split='dev'"):
        from_cvat(folder, "dev")
    assert len(from_cvat(folder / "annotations.xml")) == 2
    assert len(from_cvat(folder / "annotations.xml", "Train")) == 1


def test_files_of_splits_and_images_beside_them(export):
    for name in ("train", "val"):
        image = (f"{name}.png", "", BOX.format("cat", ""))
        folder = export(image, file=f"{name}.xml", place="")
    assert list(data.load_splits(folder)) == ["train", "val"]


def test_without_a_list_of_labels_the_classes_are_sorted(export):
    shapes = BOX.format("dog", "") + BOX.format("cat", "")
    folder = export(("a.png", "", shapes), labels="")
    assert from_cvat(folder).class_names == ("cat", "dog")


def test_an_image_in_another_folder_is_found_by_the_end_of_its_name(export):
    folder = export(("a.png", "", BOX.format("cat", "")))
    deep = folder / "frames" / "day" / "a.png"
    deep.parent.mkdir(parents=True)
    (folder / "images" / "a.png").rename(deep)
    text = (folder / "annotations.xml").read_text()
    text = text.replace('"a.png"', r'"C:\work\day\a.png"')
    (folder / "annotations.xml").write_text(text)
    assert from_cvat(folder).records[0].image == str(deep)
    other = folder / "frames" / "night" / "day" / "a.png"
    other.parent.mkdir(parents=True)
    save_image(other, (30, 20))
    with pytest.raises(FileNotFoundError, match=r"1 missing image: .*a\.png"):
        from_cvat(folder)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ('<box label="cat" xtl="a" ytl="1" xbr="2" ybr="3"></box>', "'xtl': 'a'"),
        ('<box xtl="0" ytl="1" xbr="2" ybr="3"></box>', "must have a label"),
        ('<polygon label="cat" points="1,2;3"></polygon>', "1,2;3"),
        ('<ellipse label="cat" cx="1" cy="2" rx="nan" ry="3"></ellipse>', "nan"),
        ('<cube label="cat"></cube>', "<cube>"),
    ],
)
def test_shapes_without_numbers_are_named(export, shape, message):
    folder = export(("a.png", "", shape), ("b.png", "", BOX.format("cat", "")))
    with pytest.raises(ValueError, match=rf"1 bad box: a\.png.*{message}"):
        from_cvat(folder)
    with pytest.warns(UserWarning, match="1 bad box"):
        dataset = from_cvat(folder, on_error="skip")
    assert [len(record.labels) for record in dataset.records] == [0, 1]


def test_other_files_are_explained(tmp_path):
    path = tmp_path / "annotations.xml"
    path.write_text("<annotation></annotation>")
    with pytest.raises(ValueError, match="'CVAT for images 1.1'.*<annotation>"):
        from_cvat(path)
    path.write_text("<annotations>")
    with pytest.raises(ValueError, match="'CVAT for images 1.1'.*no element"):
        from_cvat(path)
    with pytest.raises(FileNotFoundError, match="no xml file of CVAT"):
        from_cvat(save_image(tmp_path / "empty" / "a.png").parent)


TRACK = """<track id="0" label="cat" source="manual">
  <box frame="10" keyframe="1" outside="0" xtl="5" ytl="2" xbr="25" ybr="12"></box>
  <box frame="11" keyframe="0" outside="0" xtl="6" ytl="2" xbr="26" ybr="12"></box>
  <box frame="12" keyframe="1" outside="1" xtl="6" ytl="2" xbr="26" ybr="12"></box>
</track>"""


def test_tracks_of_a_video_are_boxes_of_its_frames(tmp_path):
    text = FILE.format(labels=LABELS, images=TRACK)
    (tmp_path / "annotations.xml").write_text(text)
    with pytest.raises(FileNotFoundError, match="no frame.*with 'Save images'"):
        from_cvat(tmp_path)
    for frame in (10, 11, 12):
        save_image(tmp_path / "images" / f"frame_0000{frame}.png")
    dataset = data.load(tmp_path)
    assert dataset.class_names == ("dog", "cat")
    names = [record.file_name for record in dataset.records]
    assert names == ["frame_000010.png", "frame_000011.png", "frame_000012.png"]
    boxes = [record.boxes_xywh.tolist() for record in dataset.records]
    assert boxes == [[[5, 2, 20, 10]], [[6, 2, 20, 10]], []]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<?xml version='1.0'?>\n<annotations><image/></annotations>", True),
        ("\ufeff<!-- 3 > 2 -->\n<annotations>", True),
        # Of a program that keeps its own `annotations` in each file.
        ("<?xml version='1.0'?><!DOCTYPE x>\n<test><annotations/></test>", False),
        ("<annotation><annotations/></annotation>", False),
    ],
)
def test_a_file_of_cvat_begins_with_annotations(tmp_path, text, expected):
    path = tmp_path / "a.xml"
    path.write_text(text, encoding="utf-8")
    assert is_cvat(path) == expected
