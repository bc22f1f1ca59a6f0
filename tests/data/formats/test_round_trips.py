"""From any format to any other: boxes, labels, classes, ids and crowd flags stay."""

import functools
import itertools

import numpy as np
import pytest
from support.small_datasets import (
    CATEGORY_IDS,
    CLASS_NAMES,
    assert_same,
    odd_splits,
    record_of,
)

from effdet_keras import data
from effdet_keras.data import DetectionDataset

WRITERS = {
    "coco": data.write_coco,
    "voc": data.write_voc,
    "yolo": data.write_yolo,
    "csv": data.write_csv,
    "automl": functools.partial(data.write_csv, format="automl"),
    "tfrecord": functools.partial(data.write_tfrecord, num_shards=2),
}


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    return odd_splits(tmp_path_factory.mktemp("images"))


@pytest.mark.parametrize("first, second", list(itertools.product(WRITERS, repeat=2)))
def test_a_round_trip_keeps_everything(splits, tmp_path, recwarn, first, second):
    WRITERS[first](splits, tmp_path / "first")
    WRITERS[second](data.load_splits(tmp_path / "first"), tmp_path / "second")
    found = data.load_splits(tmp_path / "second")
    assert list(found) == list(splits)
    for split, dataset in splits.items():
        assert_same(found[split], dataset, atol=1e-3)
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
    lost = record_of(tmp_path / "lost.jpg", (32, 48), 1, [[1, 1, 3, 3]], [0])
    dataset = DetectionDataset([lost], CLASS_NAMES, CATEGORY_IDS)
    with pytest.raises(FileNotFoundError, match=r"lost\.jpg"):
        WRITERS[format](dataset, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
