"""Which splits of its data a run takes."""

import numpy as np
import pytest

from effdet_keras.data import from_arrays
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.parts import choose_splits

pytestmark = pytest.mark.tensorflow


def dataset(count, boxes=1):
    image = np.zeros((16, 16, 3), "uint8")
    rows = [[[0, 0, 8, 8]] * boxes] * count
    return from_arrays([image] * count, rows, [[0] * boxes] * count, ["cat"])


def chosen(datasets, **fields):
    return choose_splits(RunConfiguration(**fields), datasets)


def sizes(splits):
    return {role: len(dataset) for role, dataset in splits.by_role().items()}


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_the_usual_names_are_found(name):
    splits = chosen({"train": dataset(5), name: dataset(3), "test": dataset(2)})
    assert sizes(splits) == {"train": 5, "validation": 3, "test": 2}
    assert splits.final == ("test", splits.test)


def test_without_a_test_split_the_validation_split_is_evaluated():
    splits = chosen({"train": dataset(5), "val": dataset(3)})
    assert splits.final == ("validation", splits.validation)


def test_splits_can_be_named():
    data = {"a": dataset(5), "b": dataset(3), "c": dataset(2), "test": dataset(1)}
    fields = {"train_split": "a", "validation_split": "b", "test_split": "c"}
    splits = chosen(data, **fields)
    assert sizes(splits) == {"train": 5, "validation": 3, "test": 2}
    assert splits.test_name == "c"
    assert chosen(data, **{**fields, "test_split": None}).test is None


def test_a_part_of_the_training_images_is_kept_for_validation(capsys):
    splits = chosen({"train": dataset(10)}, validation_fraction=0.3, seed=1)
    assert sizes(splits) == {"train": 7, "validation": 3}
    assert not set(splits.train.image_ids) & set(splits.validation.image_ids)
    assert "3 images of 'train', chosen at random" in capsys.readouterr().out
    again = chosen({"train": dataset(10)}, validation_fraction=0.3, seed=1)
    assert again.validation.image_ids == splits.validation.image_ids


def test_data_of_one_split_is_trained_on_whatever_its_name():
    assert sizes(chosen({"default": dataset(10)})) == {"train": 8, "validation": 2}


def test_a_test_split_without_boxes_is_not_evaluated_on(capsys):
    splits = chosen({"train": dataset(5), "val": dataset(3), "test": dataset(2, 0)})
    assert splits.test is None and splits.test_name is None
    assert "'test' has no boxes" in capsys.readouterr().out


def test_splits_that_are_not_there_are_told():
    data = {"train2017": dataset(5), "val2017": dataset(3)}
    with pytest.raises(ValueError, match="name the one to train on with `train_split`"):
        chosen(data)
    with pytest.raises(ValueError, match=r"\['train2017', 'val2017'\].*'dev'"):
        chosen(data, train_split="train2017", validation_split="dev")


def test_crowds_are_objects_of_the_training_images_alone():
    image = np.zeros((16, 16, 3), "uint8")
    rows = [[[0, 0, 8, 8]]] * 4, [[0]] * 4
    crowds = from_arrays([image] * 4, *rows, ["cat"], is_crowd=[[True]] * 4)
    for validation in ({}, {"val": crowds}):
        data = {"train": crowds, **validation}
        splits = chosen(data, train_on_crowds=True)
        assert not any(record.is_crowd.any() for record in splits.train.records)
        assert all(record.is_crowd.all() for record in splits.validation.records)
        as_ever = chosen(data).train
        assert all(record.is_crowd.all() for record in as_ever.records)
