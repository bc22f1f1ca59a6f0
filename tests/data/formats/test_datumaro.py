"""`from_datumaro`: its numbers are ours, and `load` finds the formats it brings."""

import json
import sys

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data import from_datumaro
from effdet_keras.errors import MissingPackageError

# Left, top, width, height in images of 40 x 20 pixels: hundredths, as datumaro rounds.
BOXES = {"b": [[5.5, 2.25, 20, 10.01]], "a": [[1, 2, 8, 6], [0.01, 0, 39.5, 20]]}


@pytest.fixture
def library():
    return pytest.importorskip("datumaro")


@pytest.fixture
def items(library):
    """A dataset of datumaro's: two images in the subset train, one in val."""

    def item(name, subset, boxes):
        image = np.random.default_rng(len(boxes)).integers(0, 255, (20, 40, 3))
        return library.DatasetItem(
            id=name,
            subset=subset,
            media=library.Image.from_numpy(image.astype(np.uint8)),
            annotations=[
                library.Bbox(*box, label=i % 2, id=i, group=i)
                for i, box in enumerate(boxes)
            ],
        )

    members = [item(name, "train", boxes) for name, boxes in BOXES.items()]
    members.append(item("c", "val", [[3, 4, 5, 6]]))
    return library.Dataset.from_iterable(members, categories=["dog", "cat"])


def described(dataset):
    """Name of each image to its boxes by class, in order."""
    return {
        record.file_name.rpartition("/")[2].partition(".")[0]: sorted(
            (dataset.class_names[label], *np.round(box, 4).tolist())
            for label, box in zip(record.labels, record.boxes_xywh)
        )
        for record in dataset.records
    }


@pytest.mark.extra_packages
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("coco_instances", "coco"),
        ("voc_detection", "voc"),
        ("yolo_ultralytics", "yolo"),
        ("tf_detection_api", "tfrecord"),
        ("cvat", "cvat"),
    ],
)
def test_its_numbers_are_those_of_our_reader(items, tmp_path, theirs, ours):
    folder = tmp_path / "set"
    items.export(str(folder), theirs, save_media=True)
    name = theirs.removesuffix("_ultralytics")
    for split, dataset in data.load_splits(folder, format=ours).items():
        other = from_datumaro(folder, split, format=name)
        if ours == "voc":  # whose pixels count from 1: datumaro leaves that out
            dataset = data.from_voc(folder, split, one_based=False)
        own = described(dataset)
        their = described(other)
        assert own.keys() == their.keys()
        for image, boxes in own.items():
            assert [b[0] for b in boxes] == [b[0] for b in their[image]]
            np.testing.assert_allclose(
                [b[1:] for b in boxes],
                [b[1:] for b in their[image]],
                atol=0.01,  # pixels: datumaro rounds to it
            )
        sizes = [record.image_size for record in other.records]
        assert sizes == [(20, 40)] * len(own)


@pytest.mark.extra_packages
@pytest.mark.parametrize(
    ("name", "theirs", "title"),
    [
        ("kitti", "kitti_detection", "KITTI"),
        ("wider_face", "wider_face", "WIDER FACE"),
        ("open_images", "open_images", "Open Images"),
        ("labelme_xml", "label_me", "LabelMe xml"),
        ("datumaro", "datumaro", "Datumaro"),
    ],
)
def test_load_finds_the_formats_that_it_brings(
    items, tmp_path, name, theirs, title, capsys
):
    folder = tmp_path / "set"
    items.export(str(folder), theirs, save_media=True)
    splits = data.load_splits(folder)
    assert f"is {title}: splits train, val" in capsys.readouterr().out
    boxes = [box for boxes in described(splits["train"]).values() for box in boxes]
    wanted = [("dog", *BOXES["b"][0]), ("dog", *BOXES["a"][0]), ("cat", *BOXES["a"][1])]
    tolerance = 1 if name == "wider_face" else 0.02  # which has whole pixels
    assert [b[0] for b in sorted(boxes)] == [b[0] for b in sorted(wanted)]
    np.testing.assert_allclose(
        [b[1:] for b in sorted(boxes)],
        [b[1:] for b in sorted(wanted)],
        atol=tolerance,
    )
    assert splits["train"][0]["image"].shape == (20, 40, 3)
    assert len(from_datumaro(folder, "val", format=name)) == 1
    assert len(from_datumaro(folder, "val")) == 1


@pytest.mark.extra_packages
def test_wider_face_as_it_is_published_has_faces(library, tmp_path):
    save_image(tmp_path / "WIDER_train/images/0--Parade/0_Parade_a.jpg")
    text = "0--Parade/0_Parade_a.jpg\n1\n5 2 20 10 0 0 0 0 0 0\n"
    path = tmp_path / "wider_face_split" / "wider_face_train_bbx_gt.txt"
    path.parent.mkdir()
    path.write_text(text)
    dataset = data.load(tmp_path)
    assert dataset.class_names == ("face",)
    np.testing.assert_array_equal(dataset.records[0].boxes_xywh, [[5, 2, 20, 10]])


@pytest.mark.extra_packages
def test_vott(library, tmp_path, capsys):
    save_image(tmp_path / "a.png")
    box = {"left": 5.5, "top": 2, "width": 20, "height": 10}
    asset = {
        "asset": {
            "name": "a.png",
            "path": "a.png",
            "size": {"width": 40, "height": 20},
        },
        "regions": [
            {"id": "x", "type": "RECTANGLE", "tags": ["cat"], "boundingBox": box}
        ],
    }
    content = {"name": "pets", "tags": [{"name": "cat"}], "assets": {"0f": asset}}
    (tmp_path / "pets-export.json").write_text(json.dumps(content))
    dataset = data.load(tmp_path)
    assert "is VoTT json: split train" in capsys.readouterr().out
    np.testing.assert_array_equal(dataset.records[0].boxes_xywh, [[5.5, 2, 20, 10]])


@pytest.mark.extra_packages
def test_outlines_of_one_object_are_one_box_and_points_none(library):
    image = library.Image.from_numpy(np.zeros((20, 40, 3), np.uint8))
    annotations = [
        library.Polygon([1, 2, 5, 2, 5, 6], label=0, group=3),
        library.Polygon([10, 8, 12, 8, 12, 9], label=0, group=3),
        library.Polygon([1, 1, 2, 1, 2, 2], label=1, group=4),
        library.Bbox(3, 3, 4, 5, label=1, group=4, attributes={"is_crowd": True}),
        library.Points([1, 2], label=1),
        library.Label(1),
        library.Polygon([0, 0, 4, 0, 4, 4], label=1),
    ]
    item = library.DatasetItem("a", media=image, annotations=annotations)
    dataset = library.Dataset.from_iterable([item], categories=["dog", "cat"])
    with pytest.warns(UserWarning, match="1 unread shape: a: points of 'cat'"):
        record = from_datumaro(dataset).records[0]
    found = {
        tuple(box): int(label) for box, label in zip(record.boxes_xywh, record.labels)
    }
    assert found == {(3, 3, 4, 5): 1, (0, 0, 4, 4): 1, (1, 2, 11, 7): 0}
    assert record.is_crowd.sum() == 1


@pytest.mark.extra_packages
def test_what_it_cannot_read_is_explained(library, tmp_path):
    with pytest.raises(ValueError, match=r"`format` must be one of \['kitti'.*='pets'"):
        from_datumaro(tmp_path, format="pets")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="datumaro cannot read .*'dota'"):
        from_datumaro(tmp_path / "empty", format="dota")


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("files", "title"),
    [
        (("training/image_2/a.png", "training/label_2/a.txt"), "KITTI"),
        (("wider_face_split/wider_face_train_bbx_gt.txt",), "WIDER FACE"),
        (("annotations/train-annotations-bbox.csv",), "Open Images"),
        (("vott-json-export/pets-export.json",), "VoTT json"),
        (("train/img1/000001.png", "train/gt/gt.txt"), "MOT"),
    ],
)
def test_load_names_the_package_where_it_is_missing(
    tmp_path, files, title, monkeypatch, capsys
):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setitem(sys.modules, "datumaro", None)
    cure = r'Reading .* needs datumaro: pip install "effdet-keras\[datumaro\]"'
    with pytest.raises(MissingPackageError, match=cure):
        data.load(tmp_path)
    assert f"is {title}: split train" in capsys.readouterr().out
