"""Rows of YOLO's txt files with more than five numbers: what they mean, for a file."""

import warnings

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras.data import check, from_yolo, load

BOX = "0 0.5 0.5 0.25 0.5"
READ = [15, 5, 10, 10]  # left, top, width, height of it in an image of 40 x 20 pixels
OUTLINE = "0 0.375 0.25 0.625 0.25 0.625 0.75 0.375 0.75"
TRIANGLE = "0 0.375 0.25 0.625 0.25 0.625 0.75"


def write_folder(folder, *files, yaml="names: [cat]"):
    """A data.yaml with a split of images, each with a txt file of these rows."""
    for i, rows in enumerate(files):
        save_image(folder / f"images/train/{i}.png")
        (folder / "labels/train").mkdir(parents=True, exist_ok=True)
        (folder / f"labels/train/{i}.txt").write_text("\n".join(rows))
    (folder / "data.yaml").write_text(f"train: images/train\n{yaml}\n")
    return folder


def read_boxes(folder, **options):
    """The boxes of each image, kinds of problems, and the texts of the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = from_yolo(folder, **options)
    boxes = [record.boxes_xywh.round(6).tolist() for record in dataset.records]
    kinds = [problem.kind for problem in dataset.problems]
    return boxes, kinds, [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    "shape, points",
    [
        ("[2, 2]", "0.4 0.4 0.6 0.6"),
        ("[4, 3]", "0.9 0.9 2 0.95 0.9 2 0.9 0.95 1 0 0 0"),  # 16 numbers, even
        ("[3, 3]", "0.9 0.9 2 0.95 0.9 1 0 0 0"),  # 13 numbers, odd
        ("[17, 3]", "0.45 0.45 2 " * 17),
        ("[1, 2]", "0.9 0.9"),  # as many numbers as a triangle
        ("[1, 2]", "0.9 0.9 0.87"),  # a confidence behind the key points
        ("[1, 2]", "0.9 0.9 0.87 12"),  # and a track id
    ],
)
def test_a_row_of_a_pose_dataset_is_a_box_and_its_key_points(tmp_path, shape, points):
    yaml = f"names: [cat]\nkpt_shape: {shape}"
    write_folder(tmp_path, [f"{BOX} {points}"] * 2, [BOX], yaml=yaml)
    boxes, kinds, texts = read_boxes(tmp_path)
    assert boxes == [[READ, READ], [READ]]
    assert kinds == ["pose label"] and len(texts) == 1
    assert "2 rows in 1 file" in texts[0] and "key points are left out" in texts[0]


def test_a_pose_row_with_other_numbers_than_kpt_shape_says_is_an_error(tmp_path):
    write_folder(tmp_path, [OUTLINE + " 0.1"], yaml="names: [c]\nkpt_shape: [17, 3]")
    with pytest.raises(ValueError, match=r"0\.txt: line 1: .*51 of key points.*17, 3"):
        from_yolo(tmp_path)


@pytest.mark.parametrize("shape", ["17", "[17]", "[a, 3]", "[17, 4]", "[0, 3]", "{}"])
def test_a_kpt_shape_that_is_none_is_named(tmp_path, shape):
    write_folder(tmp_path, [BOX], yaml=f"names: [cat]\nkpt_shape: {shape}")
    with pytest.raises(ValueError, match=r"`kpt_shape` of a data\.yaml must be two.*"):
        from_yolo(tmp_path)


def test_key_points_with_visibility_are_known_without_kpt_shape(tmp_path):
    row = f"{BOX} 0.9 0.9 2 0.95 0.9 1 0.5 0.5 2 0 0 0"
    write_folder(tmp_path, [row], [row])
    boxes, kinds, texts = read_boxes(tmp_path)
    assert boxes == [[READ], [READ]] and kinds == ["pose label"]
    assert "2 rows in 2 files" in texts[0] and "no `kpt_shape`" in texts[0]


@pytest.mark.parametrize("points", ["0.45 0.4 0.55 0.6", "0.5 0.45", "0.5 0.5 0 0"])
def test_an_outline_that_could_be_key_points_is_read_with_a_word(tmp_path, points):
    write_folder(tmp_path, [f"{BOX} {points}"] * 2)
    boxes, kinds, texts = read_boxes(tmp_path)
    assert boxes[0][0] != READ and kinds == ["possible pose label"]
    assert "add `kpt_shape` to data.yaml" in texts[0]


@pytest.mark.parametrize(
    "rows",
    [
        [f"{BOX} 0.87"],
        [f"{BOX} 12"],
        [f"{BOX} 0.87 0"],
        [f"{BOX} 0.87 1"],
        [f"{BOX} 0.87 2"],
        [f"{BOX} 0.87 3"],
        [f"{BOX} 3 0.87"],  # the track id first
        [f"{BOX} 0.87", BOX],
        [f"{BOX} 0.87 5", f"{BOX} 0.9", BOX],  # a tracker that lost one
    ],
)
def test_a_confidence_and_a_track_id_behind_a_box_are_left_out(tmp_path, rows):
    write_folder(tmp_path, rows, [BOX])
    boxes, kinds, texts = read_boxes(tmp_path)
    assert boxes == [[READ] * len(rows), [READ]]
    assert kinds == ["extra column"] and len(texts) == 1
    assert "a confidence or a track id" in texts[0]


def test_points_on_the_border_are_no_track_ids_where_others_are_outlines(tmp_path):
    border = "0 0.5 0.5 0.75 0.5 0.75 1"
    for more in ([TRIANGLE], [OUTLINE]):
        write_folder(tmp_path, [border], more)
        boxes, kinds, _ = read_boxes(tmp_path)
        assert boxes[0] == [[20, 10, 10, 10]] and kinds == []
    # As a box it would reach out of its image: 0.25 - 0.75 / 2 is below 0.
    write_folder(tmp_path, ["0 0.25 0.5 0.75 0.5 0.75 1"], [BOX])
    assert read_boxes(tmp_path)[0] == [[[10, 10, 20, 10]], [READ]]


def test_boxes_and_outlines_may_be_in_one_file(tmp_path):
    write_folder(tmp_path, [BOX, TRIANGLE, OUTLINE])
    boxes, kinds, texts = read_boxes(tmp_path)
    assert boxes == [[READ] * 3] and kinds == texts == []


@pytest.mark.parametrize("outline", [TRIANGLE, OUTLINE])
@pytest.mark.parametrize("number", ["0.9", "0.87", "7"])
def test_one_number_too_many_in_an_outline_is_named(tmp_path, outline, number):
    write_folder(tmp_path, [f"{outline} {number}", TRIANGLE])
    boxes, kinds, texts = read_boxes(tmp_path)
    assert boxes == [[READ, READ]] and kinds == ["odd outline"]
    assert (
        "0.txt: 1 row in 1 file, the first in line 1: there is one number" in texts[0]
    )


def test_oriented_boxes_become_the_upright_box_around_them(tmp_path):
    turned = "0 0.5 0.25 0.625 0.5 0.5 0.75 0.375 0.5"
    write_folder(tmp_path, [turned], [turned, BOX])
    boxes, kinds, texts = read_boxes(tmp_path)
    assert boxes == [[READ], [READ, READ]] and kinds == ["oriented box"]
    assert "2 rows in 2 files" in texts[0]


DOTA = (
    "imagesource:GoogleEarth\ngsd:0.146\n20 5 25 10 20 15 15 10 ship 0\n"
    "15.0 5.0 25.0 5.0 25.0 15.0 15.0 15.0 plane 1\n"
)


@pytest.mark.parametrize("has_yaml", [True, False])
@pytest.mark.parametrize("place", ["", "train/"])
def test_dotas_files_have_names_and_pixels(tmp_path, has_yaml, place):
    save_image(tmp_path / place / "images/a.png")
    (tmp_path / place / "labelTxt").mkdir()
    (tmp_path / place / "labelTxt/a.txt").write_text(DOTA)
    if has_yaml:
        yaml = f"train: {place}images\nnames: [ship, plane]\n"
        (tmp_path / "data.yaml").write_text(yaml)
    with pytest.warns(
        UserWarning, match=r"2 rows in 1 file, the first in line 3.*four"
    ):
        dataset = load(tmp_path)
    names = ("ship", "plane") if has_yaml else ("plane", "ship")
    assert dataset.class_names == names
    assert dataset.records[0].boxes_xywh.tolist() == [READ, READ]
    assert [names[label] for label in dataset.records[0].labels] == ["ship", "plane"]
    assert dataset.records[0].is_crowd.tolist() == [False, True]


def test_a_wrong_row_of_dotas_format_is_named(tmp_path):
    write_folder(tmp_path, ["1 2 3 4 5 6 7 8 cat 0", "1 2 3 4 5 6 7 cat 0"])
    with pytest.raises(ValueError, match=r"0\.txt: line 2: four corners in pixels"):
        from_yolo(tmp_path)


def test_a_file_that_is_no_text_is_named_or_its_image_is_left_out(tmp_path):
    write_folder(tmp_path, [BOX], [BOX])
    (tmp_path / "labels/train/0.txt").write_bytes(b"0 .5 .5 .2 .2 \xe9\n")
    with pytest.raises(ValueError, match=r"unreadable annotation.*0\.txt.*UTF-8"):
        from_yolo(tmp_path)
    with pytest.warns(UserWarning, match=r"0\.txt"):
        dataset = from_yolo(tmp_path, on_error="skip")
    assert [record.file_name for record in dataset.records] == ["1.png"]


def test_the_check_of_a_dataset_tells_what_was_left_out(tmp_path):
    write_folder(tmp_path, [f"{BOX} 0.87"])
    report = check(tmp_path, model=None)
    assert report.ok and "1 extra column (left out)" in str(report)


def test_many_rows_are_read_like_one(tmp_path):
    random = np.random.default_rng(0)
    rows = random.uniform(0.3, 0.7, (500, 4)).round(4)
    write_folder(tmp_path, [" ".join(map(str, [0, *row])) for row in rows.tolist()])
    x, y, width, height = rows.T * [[40], [20], [40], [20]]
    expected = np.stack([x - width / 2, y - height / 2, width, height], axis=1)
    boxes = from_yolo(tmp_path).records[0].boxes_xywh
    np.testing.assert_allclose(boxes, expected, atol=1e-9)
