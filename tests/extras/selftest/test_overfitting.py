"""The last stage: a model that can learn learns four images by heart."""

import dataclasses

import numpy as np
import pytest
from support.tiny import BOTH_HEADS, EAGER, tiny_model

from effdet_keras.data import DetectionDataset, from_arrays
from effdet_keras.extras.selftest.self_test import (
    check_overfitting,
    choose_images,
    cure_of,
    self_test,
)

pytestmark = pytest.mark.tensorflow

NAMES = ["cat", "dog", "bird"]


def dataset(count=2):
    """A bright square on black, at another place in each image."""
    images, boxes = np.zeros((count, 64, 64, 3), "uint8"), []
    for number, image in enumerate(images):
        y = x = 4 + 12 * number
        image[y : y + 32, x : x + 32] = 255
        boxes.append([[y, x, y + 32, x + 32]])
    return from_arrays(list(images), boxes, [[0]] * count, NAMES)


def test_images_with_few_boxes_are_chosen():
    labels = [[0, 0], [0], [], [1, 0, 0], [2]]
    boxes = [[[0, 0, 8, 8]] * len(one) for one in labels]
    images = [np.zeros((8, 8, 3), "uint8")] * len(labels)
    data = from_arrays(images, boxes, labels, NAMES)
    assert choose_images(data, 3) == [0, 1, 4]
    assert choose_images(data, 9) == [0, 1, 3, 4]
    assert choose_images(data[2:3]) == []


def test_a_model_in_which_nothing_trains_fails_at_once():
    model = tiny_model()
    model.trainable = False
    stage = check_overfitting(model, dataset(), verbose=False)
    assert not stage.passed and "all weights of the model are frozen" in str(stage)


def test_the_cure_follows_what_the_training_looked_like():
    numbers = {"AP": 0.3, "AP50": 0.4}
    assert "The loss has not fallen" in cure_of([3.0, 2.9], numbers, steps=400)
    assert "objects that are too small" in cure_of([3.0, 0.5], numbers, steps=400)
    assert cure_of([3.0, 0.5], {**numbers, "AP": 0.95}, steps=400) == ""


def test_what_stops_training_is_the_stage_s_answer():
    image, names = np.zeros((64, 64, 3), "uint8"), [*NAMES, "fish"]
    data = from_arrays([image], [[[4, 4, 40, 40]]], [[3]], names)
    stage = check_overfitting(tiny_model(), data, verbose=False, run_eagerly=EAGER)
    assert not stage.passed and "training stopped" in stage.detail
    assert "`num_classes`, 3" in stage.detail


def test_the_model_that_is_tested_stays_as_it_was():
    model = tiny_model()
    model.freeze("backbone")
    before = [np.array(w) for w in model.get_weights()]
    report = self_test(dataset(), model, steps=1, run_eagerly=EAGER, verbose=False)
    for now, then in zip(model.get_weights(), before):
        np.testing.assert_array_equal(now, then)
    assert [stage.name for stage in report.stages][-1] == "overfitting"
    assert all(stage.passed for stage in report.stages[:-1])


def test_fewer_images_can_be_followed():
    options = {"training": False, "verbose": False}
    report = self_test(dataset(4), tiny_model(), num_images=3, **options)
    assert "3 boxes of 3 images" in str(report.stages[0])


@pytest.mark.parametrize(
    "options", [{"steps": 0}, {"num_images": 0}, {"num_images": -1}]
)
def test_counts_below_one_are_refused(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"`{name}` must be .*at least 1"):
        self_test(dataset(), tiny_model(), verbose=False, **options)


def test_a_segmentation_head_learns_masks_where_there_are_any(tmp_path, capsys):
    model, data = tiny_model(heads=BOTH_HEADS), dataset()
    options = {"steps": 1, "run_eagerly": EAGER}
    report = self_test(data, model, **options)
    assert "overfitting" not in [stage.name for stage in report.stages]
    assert "the dataset has none" in capsys.readouterr().out and report.ok
    masks = np.zeros((64, 64), "uint8")
    records = [dataclasses.replace(record, mask=masks) for record in data.records]
    data = DetectionDataset(
        records, data.class_names, data.category_ids, seg_class_names=tuple("abcd")
    )
    report = self_test(data, model, verbose=False, **options)
    assert report.stages[-1].name == "overfitting"
    assert "after 1 steps" in report.stages[-1].detail


def test_labels_follow_the_names_of_the_model():
    data = dataset()
    only = from_arrays(
        [np.zeros((64, 64, 3), "uint8")], [[[4, 4, 40, 40]]], [[0]], ["bird"]
    )
    assert self_test(only, tiny_model(), training=False, verbose=False).ok
    assert data.class_names == tuple(NAMES)


@pytest.mark.slow
def test_it_learns_two_images_by_heart():
    stage = check_overfitting(
        tiny_model(), dataset(), learning_rate=1e-2, verbose=False
    )
    assert stage.passed and stage.average_precision >= 0.9
    assert stage.cure == ""
