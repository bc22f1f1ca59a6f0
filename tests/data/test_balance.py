"""`balance`: images of rare classes come more often, in epochs of the same length."""

import collections

import numpy as np
import pytest

from effdet_keras.augment import Augmentation
from effdet_keras.data import from_arrays
from effdet_keras.data.balance import (
    balanced_places,
    class_shares,
    repeat_factors,
    threshold_of,
)
from effdet_keras.data.pipeline.batches import EpochOrder

BOX = [0, 0, 8, 8]
# Of 8 images 6 have class 0, 2 have class 1, one has class 2, none has class 3.
LABELS = [[0], [0, 0], [0], [0], [0, 1], [0, 2, 0], [1], []]


def dataset_of(labels=LABELS, num_classes=4):
    images = [np.full((16, 16, 3), 10 * i, "uint8") for i in range(len(labels))]
    boxes = [[BOX] * len(row) for row in labels]
    names = [f"class{i}" for i in range(num_classes)]
    return from_arrays(images, boxes, labels, names)


def test_factors_are_those_of_the_paper():
    records = dataset_of().records
    np.testing.assert_allclose(class_shares(records, 4), [6 / 8, 2 / 8, 1 / 8, 0])
    # t = 0.5: sqrt(0.5 / 0.75) is below 1; sqrt(0.5 / 0.25) and sqrt(0.5 / 0.125)
    # are sqrt(2) and 2. An image has the largest of its classes.
    root = 2**0.5
    expected = [1, 1, 1, 1, root, 2, root, 1]
    np.testing.assert_allclose(repeat_factors(records, 4, 0.5), expected)
    # "auto" is the median of 0.75, 0.25 and 0.125: class 3 is in no image.
    assert threshold_of(class_shares(records, 4)) == 0.25
    np.testing.assert_allclose(repeat_factors(records, 4), [1, 1, 1, 1, 1, root, 1, 1])


def test_crowds_and_images_without_boxes_repeat_nothing():
    dataset = dataset_of([[0], [0], [0], [1]], 2)
    (record,) = dataset.records[3:]
    assert repeat_factors(dataset.records, 2, 1.0)[3] == 2.0
    record.is_crowd[:] = True
    assert repeat_factors(dataset.records, 2, 1.0)[3] == 1.0
    empty = dataset_of([[], []], 1)
    np.testing.assert_array_equal(repeat_factors(empty.records, 1), [1.0, 1.0])


@pytest.mark.parametrize("balance", [0.0, 1.5, "on"])
def test_a_threshold_is_a_share_or_auto(balance):
    with pytest.raises(ValueError, match="balance.*above 0 and at most 1, or 'auto'"):
        repeat_factors(dataset_of().records, 4, balance)


def test_each_image_comes_as_often_as_its_factor_says():
    factors = np.array([1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 3.5, 0.5])  # mean 1.5
    rng = np.random.default_rng(0)
    total = np.zeros(8)
    for _ in range(3_000):
        places = balanced_places(factors, rng)
        assert len(places) == 8 and places.dtype == np.int64
        counts = np.bincount(places, minlength=8)
        expected = factors / 1.5
        assert (counts >= np.floor(expected)).all()
        assert (counts <= np.ceil(expected)).all()
        total += counts
    np.testing.assert_allclose(total / 3_000, factors / 1.5, atol=0.04)


def test_equal_factors_are_a_plain_shuffle():
    places = balanced_places(np.ones(50), np.random.default_rng(1))
    assert sorted(places) == list(range(50)) != places.tolist()


FACTORS = repeat_factors(dataset_of().records, 4, 0.5)


def order_of(batch_size=2, share=(0, 1)):
    return EpochOrder(8, 3, True, batch_size, share, FACTORS)


def test_an_epoch_is_known_by_itself_and_repeats_have_seeds_of_their_own():
    order = order_of()
    whole = [order.draw() for _ in range(20)]
    later = order_of()
    later.start_at(7)
    for indices, seeds in whole[7:]:
        drawn = later.draw()
        np.testing.assert_array_equal(drawn[0], indices)
        np.testing.assert_array_equal(drawn[1], seeds)
    repeated = 0
    for indices, seeds in whole:
        pairs = set(zip(indices.tolist(), seeds.tolist()))
        assert len(pairs) == len(indices) == 8  # no image twice with the same draws
        repeated += len(indices) - len(set(indices.tolist()))
    assert repeated > 10  # of the two or three images of factors above the mean


def test_a_training_that_resumes_within_an_epoch_has_the_same_stream():
    order = order_of()
    stream = np.concatenate([order.draw()[0] for _ in range(3)])
    later = order_of()
    later.start_at(1, skipped=3, per_pass=4)
    np.testing.assert_array_equal(later.draw()[0], stream[8 + 6 : 16 + 6])


def test_processes_share_the_batches_of_one():
    whole = order_of(batch_size=4).draw()[0].reshape(-1, 4)
    parts = [order_of(batch_size=4, share=(i, 2)).draw()[0] for i in (0, 1)]
    for i, part in enumerate(parts):
        np.testing.assert_array_equal(part, whole[:, 2 * i : 2 * i + 2].reshape(-1))


@pytest.mark.tensorflow
def test_batches_have_as_many_images_and_more_of_the_rare_class():
    batches = dataset_of().batches(
        4, image_size=16, training=True, seed=0, scale_jitter=(1, 1), balance=0.5
    )
    assert len(batches) == 2
    counts = collections.Counter()
    for _ in range(60):
        for _, truth in batches:
            counts.update(truth["image_id"].numpy().tolist())
    assert sum(counts.values()) == 60 * 8
    expected = 480 * FACTORS / FACTORS.sum()
    np.testing.assert_allclose([counts[i + 1] for i in range(8)], expected, atol=12)


class Sum(Augmentation):
    """Labels of both images, the first's before those of its partner."""

    num_images = 2

    def augment(self, example, seed):
        import tensorflow as tf

        first, second = example
        boxes = tf.concat([first["boxes"], second["boxes"]], 0)
        labels = tf.concat([first["labels"], second["labels"]], 0)
        return {**first, "boxes": boxes, "labels": labels}


@pytest.mark.tensorflow
def test_partners_of_mosaics_are_balanced_as_well():
    labels = [[0]] * 15 + [[1]]  # factors 1 and 4, of a threshold of 1
    batches = dataset_of(labels, 2).batches(
        16,
        image_size=16,
        training=True,
        seed=0,
        scale_jitter=(1, 1),
        augment=Sum(),
        balance=1.0,
    )
    partners = [
        label
        for _ in range(40)
        for _, truth in batches
        for label in truth["labels"].numpy()[:, 1].tolist()
    ]
    common = (16 / 15) ** 0.5
    assert np.mean(partners) == pytest.approx(4 / (4 + 15 * common), abs=0.05)


@pytest.mark.tensorflow
@pytest.mark.parametrize("options", [{}, {"training": True, "shuffle": False}])
def test_only_the_random_order_of_training_can_be_balanced(options):
    with pytest.raises(ValueError, match="`balance` needs `training=True`"):
        dataset_of().batches(2, image_size=16, balance="auto", **options)
