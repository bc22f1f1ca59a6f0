"""The sidecar: what it keeps, and when it is left aside."""

import dataclasses
import json

import numpy as np
import pytest

from effdet_keras.data import DetectionDataset, from_arrays
from effdet_keras.data.formats.sidecar import (
    NO_SIDECAR,
    apply_sidecar,
    read_sidecar,
    write_sidecar,
)
from effdet_keras.data.record import Record

NAMES = ("cat", "dog")


def record(boxes=((1, 2, 3, 4), (5, 6, 7, 8)), labels=(1, 0)):
    boxes, count = np.reshape(boxes, (-1, 4)), len(labels)
    area, zeros = boxes[:, 2] * boxes[:, 3], [0] * count
    return Record("a.png", (32, 48), 0, "a", "a", boxes, labels, zeros, area, zeros)


@pytest.fixture
def folder(tmp_path):
    first = dataclasses.replace(
        record(),
        image_id=7,
        source_id="x/7",
        file_name="x/7.png",
        is_crowd=[False, True],
        area=[5.5, 56],
        annotation_ids=[31, 30],
    )
    second = dataclasses.replace(record((), ()), image_id=9, source_id=9)
    dataset = DetectionDataset([first, second], NAMES, (90, 3))
    write_sidecar(tmp_path, {"train": dataset}, {"train": ["b", "a"]})
    return tmp_path


def test_only_the_fields_asked_for_are_taken(folder):
    (restored,) = apply_sidecar(
        *(read_sidecar(folder), "train", [record()], ["b"], NAMES), fields=["source_id"]
    )
    assert restored.source_id == "x/7"
    assert restored.image_id == 0 and not restored.is_crowd.any()


@pytest.mark.parametrize(
    "changed, name, message",
    [
        (record(((1, 2, 3, 4),), (1,)), "b", "'b' has 1 boxes, and was written with 2"),
        (record(labels=(0, 0)), "b", "'b' has boxes of other classes"),
        (record(labels=(-1, 0)), "b", "'b' has boxes of other classes"),
        (record(), "c", "does not know 'c'"),
    ],
)
def test_data_that_were_changed_stay_as_they_are(folder, changed, name, message):
    records, names = [record((), ()), changed], ["a", name]
    with pytest.warns(UserWarning, match=message):
        restored = apply_sidecar(read_sidecar(folder), "train", records, names, NAMES)
    assert restored == records  # the first one too: ids must not mix


def test_a_split_that_it_does_not_know_is_not_its_business(folder, recwarn):
    records = [record()]
    assert apply_sidecar(read_sidecar(folder), "test", records, ["b"], NAMES) == records
    assert not recwarn.list


def test_ids_that_splits_share_are_counted_anew_when_read_together(tmp_path):
    image = np.zeros((8, 8, 3), np.uint8)
    one = from_arrays([image], [[]], [[]], NAMES, image_ids=[5])
    write_sidecar(tmp_path, {"a": one, "b": one}, {"a": ["a/x"], "b": ["b/x"]})
    numbered = [
        dataclasses.replace(record((), ()), image_id=number) for number in (1, 2)
    ]
    restored = apply_sidecar(
        read_sidecar(tmp_path), None, numbered, ["a/x", "b/x"], NAMES
    )
    assert [r.image_id for r in restored] == [1, 2]
    assert [r.source_id for r in restored] == [5, 5]


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"class_names": ["cat"]},
        {"class_names": ["cat", "cat"]},
        {"category_ids": ["x", "y"]},
        {"images": 3},
    ],
)
def test_a_file_of_another_kind_is_left_aside(folder, change):
    path = folder / "effdet_keras.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.warns(UserWarning, match=r"effdet_keras\.json.*is not used"):
        assert read_sidecar(folder) is NO_SIDECAR
