"""From any format to any other: boxes and class names stay, and what it can store."""

import functools
import itertools

import numpy as np
import pytest
from support.small_datasets import CATEGORY_IDS, CLASS_NAMES, odd_splits, record_of

from effdet_keras import data
from effdet_keras.data import DetectionDataset
from effdet_keras.data.formats.dataset_files import split_names

WRITERS = {
    "coco": data.write_coco,
    "voc": data.write_voc,
    "yolo": data.write_yolo,
    "csv": data.write_csv,
    "tfrecord": functools.partial(data.write_tfrecord, num_shards=2),
}


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    return odd_splits(tmp_path_factory.mktemp("images"))


KEEP_CROWDS = ("coco", "tfrecord", "voc")
KEEP_IDS = ("coco", "tfrecord")


@pytest.mark.smoke
@pytest.mark.filterwarnings("ignore:This format cannot store crowds")
@pytest.mark.filterwarnings("ignore:.*empty box")  # of a pixel or less, in VOC
@pytest.mark.parametrize("first, second", list(itertools.product(WRITERS, repeat=2)))
def test_a_round_trip_keeps_what_both_formats_store(splits, tmp_path, first, second):
    WRITERS[first](splits, tmp_path / "first")
    between = data.load_splits(tmp_path / "first", class_names=CLASS_NAMES)
    WRITERS[second](between, tmp_path / "second")
    found = data.load_splits(tmp_path / "second", class_names=CLASS_NAMES)
    assert list(found) == list(splits)
    used = {first, second}
    for split, dataset in splits.items():
        assert found[split].class_names == CLASS_NAMES
        place = {rounded(record): record for record in found[split].records}
        for wanted in dataset.records:
            thick = (wanted.boxes_xywh[:, 2:] > 1).all(axis=1) | ("voc" not in used)
            wanted = wanted.select(thick)
            record = place[rounded(wanted)]
            np.testing.assert_allclose(record.boxes_xywh, wanted.boxes_xywh, atol=1e-3)
            np.testing.assert_array_equal(record.labels, wanted.labels)
            if used <= {*KEEP_CROWDS}:
                np.testing.assert_array_equal(record.is_crowd, wanted.is_crowd)
            if used <= {*KEEP_IDS}:
                assert record.image_id == wanted.image_id
                np.testing.assert_allclose(record.area, wanted.area, rtol=1e-3)
        pairs = zip(found[split].class_names, found[split].category_ids)
        if used <= {"coco", "tfrecord"}:
            assert dict(pairs) == dict(zip(CLASS_NAMES, CATEGORY_IDS))


@pytest.mark.parametrize("format", WRITERS)
@pytest.mark.parametrize(
    "names",
    [("val2017",), ("pets_v2",), ("fold0", "fold1"), ("trainval",), ("Train", "dev")]
    + [("train_part1", "train_part2"), ("training",), ("test", "fold0", "train")],
)
def test_splits_by_any_name_are_read_again(tmp_path, format, names):
    images = np.random.default_rng(0).integers(0, 255, (2, 20, 40, 3), np.uint8)
    boxes, labels = [[[8, 8, 20, 20]]] * 2, [[0]] * 2
    dataset = data.from_arrays(images, boxes, labels, ["cat"])
    WRITERS[format](dict.fromkeys(names, dataset), tmp_path / "set")
    found = data.load_splits(tmp_path / "set")
    # "Train" and "training" are the split "train".
    assert sorted(split_names(list(found))) == sorted(split_names(names))
    assert all(len(split.records[0].labels) == 1 for split in found.values())


def rounded(record):
    """What tells an image from the others: its size, and its boxes in whole pixels."""
    boxes = record.boxes_xywh[(record.boxes_xywh[:, 2:] > 1).all(axis=1)]
    return record.image_size, boxes.round().astype(int).tobytes()


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
