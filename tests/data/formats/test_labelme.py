"""`from_labelme`: a json for each image, as LabelMe and its relatives write them."""

import base64
import json

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data import from_labelme
from effdet_keras.data.record import load_mask


def shape(label, points, kind="rectangle", **others):
    fields = {"group_id": None, "description": "", "flags": {}, "mask": None}
    return {"label": label, "points": points, "shape_type": kind, **fields, **others}


BOX = shape("cat", [[25.5, 12], [5.5, 2]])  # from any corner to the opposite one


@pytest.fixture
def annotate(tmp_path):
    def annotate(name, *shapes, folder="", image="{}.png", **changes):
        path = tmp_path / folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "version": "5.4.1",
            "flags": {},
            "shapes": list(shapes),
            "imagePath": image.format(name),
            "imageData": None,
            "imageHeight": 20,
            "imageWidth": 40,
        }
        path.write_text(json.dumps(content | changes, indent=2))
        return tmp_path

    return annotate


@pytest.mark.smoke
def test_rectangles_outlines_and_circles(annotate):
    outline = shape("dog", [[1, 2], [9.5, 4], [3, 8.25]], "polygon")
    folder = annotate("a", BOX, outline, shape("cat", [[20, 10], [23, 14]], "circle"))
    annotate("b")
    for name in ("a.png", "b.png"):
        save_image(folder / name)
    dataset = data.load(folder, masks=True)
    assert dataset.class_names == ("cat", "dog")
    np.testing.assert_array_equal(
        dataset.records[0].boxes_xywh,
        [[5.5, 2, 20, 10], [1, 2, 8.5, 6.25], [15, 5, 10, 10]],
    )
    np.testing.assert_array_equal(dataset.records[0].labels, [0, 1, 0])
    assert [record.source_id for record in dataset.records] == ["a", "b"]
    assert 2 in load_mask(dataset.records[0])  # the outline of a dog
    assert len(from_labelme(folder / "a.json")) == 1


def test_labels_txt_gives_the_order_of_the_classes(annotate):
    folder = annotate("a", BOX, shape("dog", [[0, 0], [9, 9]]))
    save_image(folder / "a.png")
    (folder / "labels.txt").write_text("__ignore__\n_background_\ndog\ncow\ncat\n")
    assert from_labelme(folder).class_names == ("dog", "cow", "cat")
    annotate("b", shape("__ignore__", [[1, 1], [5, 5]]))
    save_image(folder / "b.png")
    with pytest.warns(UserWarning, match="1 unread shape: b.json: .*'__ignore__'"):
        assert from_labelme(folder).class_names == ("dog", "cow", "cat")
    (folder / "b.json").unlink()
    (folder / "labels.txt").write_text("dog\n")  # of another dataset
    assert from_labelme(folder).class_names == ("cat", "dog")


@pytest.mark.parametrize("image", ["../images/a.png", "..\\images\\a.png", "a.png"])
@pytest.mark.parametrize("folder", ["annotations", "labels", "json", "images"])
def test_annotations_and_images_in_folders_of_their_own(annotate, folder, image):
    root = annotate("a", BOX, folder=folder, image=image)
    save_image(root / "images" / "a.png")
    dataset = data.load(root)
    assert dataset.records[0].image.endswith("a.png")
    assert dataset[0]["image"].shape == (20, 40, 3)


def test_folders_of_splits(annotate, capsys):
    for split in ("train", "val"):
        folder = annotate("a", BOX, folder=split)
        save_image(folder / split / "a.png")
    splits = data.load_splits(folder)
    assert "LabelMe json: splits train, val" in capsys.readouterr().out
    assert [d.records[0].image for d in splits.values()] == [
        str(folder / split / "a.png") for split in ("train", "val")
    ]


def test_a_copy_whose_image_path_stayed_has_its_own_image(annotate):
    annotate("a", BOX)
    folder = annotate("a_flip", shape("cat", [[14.5, 2], [34.5, 12]]), image="a.png")
    for name in ("a.png", "a_flip.png"):
        save_image(folder / name)
    said = r"1 of 2 files names another image .*: 'a_flip\.json' names 'a\.png'"
    with pytest.warns(UserWarning, match=said):
        dataset = from_labelme(folder)
    images = [record.image for record in dataset.records]
    assert images == [str(folder / "a.png"), str(folder / "a_flip.png")]
    (folder / "a_flip.png").unlink()  # then it is the image that the file names
    assert from_labelme(folder).records[1].image == str(folder / "a.png")


def test_files_in_a_folder_of_annotations_are_read_as_well(annotate):
    for name, folder in (("a", ""), ("b", ""), ("c", "annotation"), ("d", "images")):
        root = annotate(name, BOX, folder=folder)
        save_image(root / "images" / f"{name}.png")
    dataset = data.load(root)
    assert [record.source_id for record in dataset.records] == ["a", "b", "c", "d"]
    assert not dataset.problems
    annotate("a", folder="annotation")
    said = (
        r"1 .* same name as one in another folder: 'annotation/a\.json' .*\(not read\)"
    )
    with pytest.warns(UserWarning, match=said):
        dataset = data.load(root)
    assert [len(record.labels) for record in dataset.records] == [1, 1, 1, 1]


def test_an_image_that_is_only_in_the_json_is_read_from_there(annotate, tmp_path):
    save_image(tmp_path / "elsewhere" / "a.png")
    image = (tmp_path / "elsewhere" / "a.png").read_bytes()
    folder = annotate(
        "a", BOX, folder="set", imageData=base64.b64encode(image).decode()
    )
    dataset = from_labelme(folder / "set")
    np.testing.assert_array_equal(
        dataset[0]["image"],
        data.from_labelme(folder / "set", image_dir=folder / "elsewhere")[0]["image"],
    )
    data.write_coco(dataset, folder / "coco")
    (written,) = (folder / "coco/train").iterdir()
    assert written.read_bytes() == image


def test_an_embedded_image_of_the_annotated_size_comes_before_a_file_of_another(
    annotate, tmp_path
):
    image = save_image(tmp_path / "elsewhere" / "a.png").read_bytes()
    embedded = base64.b64encode(image).decode()
    folder = annotate("a", BOX, folder="set", imageData=embedded) / "set"
    save_image(folder / "a.png", (30, 18))
    said = r"1 of 1 .*'a\.json' says 20 and 40, and 'a\.png' has 18 and 30"
    with pytest.warns(UserWarning, match=said):
        dataset = from_labelme(folder)
    assert dataset[0]["image"].shape == (20, 40, 3)
    for size in ((20, 40), (40, 20)):  # as stored by a camera; the annotated one
        save_image(folder / "a.png", size)
        assert from_labelme(folder).records[0].image == str(folder / "a.png")
    save_image(folder / "a.png", (30, 18))
    annotate("a", BOX, folder="set", imageData=embedded, imageWidth=90)
    assert from_labelme(folder).records[0].image == str(folder / "a.png")


def test_points_and_lines_are_left_out_and_turned_rectangles_are_noted(annotate):
    corners = [[10, 2], [18, 8], [12, 16], [4, 10]]
    turned = shape("cat", corners, "rotation", direction=0.6435)
    folder = annotate("a", turned, shape("tip", [[3, 4]], "point"))
    save_image(folder / "a.png")
    with pytest.warns(UserWarning) as caught:
        dataset = from_labelme(folder)
    texts = [str(warning.message) for warning in caught]
    assert any("1 unread shape: a.json: shapes[1]: point of 'tip'" in t for t in texts)
    assert any("1 box is rotated: 'cat' by 36.87 degrees in a.json" in t for t in texts)
    np.testing.assert_array_equal(dataset.records[0].boxes_xywh, [[4, 2, 14, 14]])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (shape("cat", [[1, 2]]), r"shapes\[0\].*'rectangle'"),
        (shape("cat", [[1, 2], [3, "x"]]), "'x'"),
        (shape("", [[1, 2], [3, 4]]), "label ''"),
        (shape("cat", [[1, 2], [3, 4]], "heptagon"), "'heptagon'"),
    ],
)
def test_bad_shapes_are_named(annotate, bad, message):
    folder = annotate("a", bad, BOX)
    save_image(folder / "a.png")
    with pytest.raises(ValueError, match=rf"1 bad box: a\.json: .*{message}"):
        from_labelme(folder)


def test_missing_images_and_other_files(annotate, tmp_path):
    with pytest.raises(FileNotFoundError, match="a folder of LabelMe's is expected"):
        from_labelme(tmp_path)
    folder = annotate("a", BOX, image="D:\\photos\\a.png")
    with pytest.raises(FileNotFoundError, match=r"1 missing image: .*a\.png"):
        from_labelme(folder)
    (folder / "broken.json").write_text('{"shapes": [')
    save_image(folder / "a.png")
    with pytest.raises(ValueError, match="1 unreadable annotation: broken.json"):
        from_labelme(folder)
    (folder / "broken.json").write_text('{"classes": []}')  # no annotation
    assert len(from_labelme(folder)) == 1
    with pytest.raises(ValueError, match=r"a list of `shapes`.*broken\.json"):
        from_labelme(folder / "broken.json")
