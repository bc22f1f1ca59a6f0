"""From any format to any other: boxes, labels, classes, ids and crowd flags stay."""

import functools
import itertools
import pathlib

import numpy as np
import pytest
from PIL import Image

from effdet_keras import data
from effdet_keras.data import DetectionDataset
from effdet_keras.data.record import Record

CLASS_NAMES = ("Bär", "no such thing", "naïve, “quoted” <b>&amp;", "dog")
CATEGORY_IDS = (90, 3, 17, 5)  # neither sorted nor without gaps

WRITERS = {
    "coco": data.write_coco,
    "voc": data.write_voc,
    "yolo": data.write_yolo,
    "csv": data.write_csv,
    "automl": functools.partial(data.write_csv, format="automl"),
    "tfrecord": functools.partial(data.write_tfrecord, num_shards=2),
    "tfds": data.write_tfds,
}


def make_record(path, image_id, source_id, boxes, labels, crowd=(), areas=None):
    with Image.open(path) as image:
        turned = image.getexif().get(0x0112, 1) == 6
        width, height = image.size
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    return Record(
        image=str(path),
        image_size=(width, height) if turned else (height, width),
        image_id=image_id,
        source_id=source_id,
        file_name=f"{path.parent.name}/{path.name}",
        boxes_xywh=boxes,
        labels=labels,
        is_crowd=[i in crowd for i in range(len(labels))],
        area=boxes[:, 2] * boxes[:, 3] if areas is None else areas,
        annotation_ids=100 * image_id + np.arange(len(labels)),
    )


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    """Two splits of odd images: see what each record has."""
    folder = tmp_path_factory.mktemp("images")
    for name, size, turn in [
        ("x/same.jpg", (48, 32), None),
        ("y/same.jpg", (31, 57), None),
        ("y/turned.jpg", (48, 32), 6),
        ("y/grün 1.png", (20, 20), None),
        ("z/empty.webp", (40, 30), None),
    ]:
        (folder / name).parent.mkdir(exist_ok=True)
        exif = Image.Exif()
        if turn:
            exif[0x0112] = turn
        pixels = np.random.default_rng(len(name)).integers(0, 255, size[::-1] + (3,))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name, exif=exif)
    first = [
        make_record(
            folder / "x/same.jpg",
            397133,
            "image-b",
            # whole, thin, at the end, a crowd
            [
                [8, 4, 20, 16],
                [1.25, 2.5, 0.5, 9.125],
                [40.5, 30, 7.5, 2],
                [0, 0, 48, 32],
            ],
            [0, 3, 0, 2],
            crowd=[3],
        ),
        make_record(folder / "y/same.jpg", 7, 7, [[1, 1, 3, 3]], [3], areas=[5.5]),
        make_record(folder / "y/turned.jpg", 12, "a", [[3, 40, 29, 7]], [2]),
    ]
    second = [
        make_record(folder / "y/grün 1.png", 9, 9, [[1 / 3, 2 / 3, 10 / 3, 9]], [0]),
        make_record(folder / "z/empty.webp", 7, "z", [], []),
    ]
    return {
        "train": DetectionDataset(first, CLASS_NAMES, CATEGORY_IDS),
        "validation": DetectionDataset(second, CLASS_NAMES, CATEGORY_IDS),
    }


def assert_same(found, wanted):
    assert found.class_names == wanted.class_names
    assert found.category_ids == wanted.category_ids
    assert found.problems == ()
    assert len(found) == len(wanted)
    for record, other in zip(found.records, wanted.records):
        for field in ("image_id", "source_id", "file_name", "image_size"):
            assert getattr(record, field) == getattr(other, field)
        for field in ("labels", "is_crowd", "annotation_ids"):
            np.testing.assert_array_equal(getattr(record, field), getattr(other, field))
        # VOC has four decimals, TFRecord float32.
        np.testing.assert_allclose(record.boxes_xywh, other.boxes_xywh, atol=1e-3)
        np.testing.assert_allclose(record.area, other.area, rtol=1e-3)
    for example, other in zip(found, wanted):
        np.testing.assert_array_equal(example["image"], other["image"])


@pytest.mark.parametrize("first, second", list(itertools.product(WRITERS, repeat=2)))
def test_a_round_trip_keeps_everything(splits, tmp_path, recwarn, first, second):
    WRITERS[first](splits, tmp_path / "first")
    WRITERS[second](data.load_splits(tmp_path / "first"), tmp_path / "second")
    found = data.load_splits(tmp_path / "second")
    assert list(found) == list(splits)
    for split, dataset in splits.items():
        assert_same(found[split], dataset)
    assert not [str(w.message) for w in recwarn if w.category is UserWarning]


@pytest.mark.parametrize("format", WRITERS)
def test_without_the_sidecar_boxes_and_class_names_stay(splits, tmp_path, format):
    WRITERS[format](splits, tmp_path / "set")
    (tmp_path / "set" / "effdet_keras.json").unlink()
    found = data.load(tmp_path / "set", "train", class_names=CLASS_NAMES)
    by_size = {r.image_size: r for r in found.records if r.image_size != (48, 32)}
    by_size |= {r.image_size: r for r in found.records if len(r.labels) == 4}
    for wanted in splits["train"].records[:2]:
        record = by_size[wanted.image_size]
        # VOC's boxes of one pixel and less are taken as slips of the mouse.
        thick = (wanted.boxes_xywh[:, 2:] > 1).all(axis=1) | (format != "voc")
        np.testing.assert_allclose(
            record.boxes_xywh, wanted.boxes_xywh[thick], atol=1e-3
        )
        np.testing.assert_array_equal(record.labels, wanted.labels[thick])


@pytest.mark.parametrize("format", WRITERS)
def test_a_dataset_that_was_changed_is_read_as_it_is(splits, tmp_path, format):
    folder = tmp_path / "set"
    WRITERS[format](splits, folder)
    sidecar = folder / "effdet_keras.json"
    text = sidecar.read_text()
    assert text.count('"labels": [3]') == 1
    sidecar.write_text(text.replace('"labels": [3]', '"labels": [3, 3]'))
    with pytest.warns(UserWarning, match=r"effdet_keras\.json.*does not fit"):
        found = data.load(folder, "train")
    assert sum(len(record.labels) for record in found.records) == 6
    sidecar.write_text("[]")
    with pytest.warns(UserWarning, match=r"effdet_keras\.json.*does not fit"):
        data.load(folder, "train")


@pytest.mark.parametrize("format", WRITERS)
def test_nothing_is_written_over_and_nothing_half(splits, tmp_path, format):
    (tmp_path / "there").mkdir()
    with pytest.raises(FileExistsError, match="there"):
        WRITERS[format](splits, tmp_path / "there")
    lost = make_record(
        pathlib.Path(splits["train"].records[0].image), 1, 1, [[1, 1, 3, 3]], [0]
    )
    object.__setattr__(lost, "image", str(tmp_path / "lost.jpg"))
    dataset = DetectionDataset([lost], CLASS_NAMES, CATEGORY_IDS)
    with pytest.raises(FileNotFoundError, match=r"lost\.jpg"):
        WRITERS[format](dataset, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
