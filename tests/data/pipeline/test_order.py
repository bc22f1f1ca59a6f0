"""The order of a training: known for each epoch, whatever was asked for before."""

import numpy as np
import pytest

from effdet_keras.data import from_arrays
from effdet_keras.data.pipeline.batches import EpochOrder
from effdet_keras.data.pipeline.image_reader import reader_of

SIZE = 10


def order_of(**options):
    return EpochOrder(**{"size": SIZE, "seed": 3, "shuffle": True, **options})


def epochs_of(order, count):
    return [[array.tolist() for array in order.draw()] for _ in range(count)]


@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_has_one_order_and_seed_whatever_came_before(shuffle):
    whole = epochs_of(order_of(shuffle=shuffle, batch_size=2), 4)
    for epoch in range(4):
        later = order_of(shuffle=shuffle, batch_size=2)
        later.start_at(epoch)
        assert epochs_of(later, 4 - epoch) == whole[epoch:]
    assert len({str(epoch) for epoch in whole}) == 4
    assert all(sorted(indices) == list(range(SIZE)) for indices, _ in whole)
    assert epochs_of(order_of(shuffle=shuffle, batch_size=2, seed=4), 4) != whole


def test_epochs_that_begin_within_one_are_of_the_same_stream():
    # Of ten images in batches of three nine are used, so that none is in two parts.
    parts = epochs_of(order_of(batch_size=3), 4)
    stream = [[x for part in parts for x in part[i][:9]] for i in (0, 1)]
    later = order_of(batch_size=3)
    later.start_at(1, skipped=2, per_pass=3)
    begin = 9 + 6
    for indices, seeds in epochs_of(later, 2):
        assert indices[:9] == stream[0][begin : begin + 9]
        assert seeds[:9] == stream[1][begin : begin + 9]
        assert len(indices) == len(seeds) == SIZE
        begin += 9


def test_only_passes_of_whole_batches_can_begin_within_one():
    order = order_of(batch_size=4)
    assert order.can_skip(2) and not order.can_skip(3)


@pytest.mark.tensorflow
def test_a_pipeline_begins_where_it_is_told():
    images = [np.full((16, 16, 3), 10 * i, "uint8") for i in range(5)]
    dataset = from_arrays(images, [[[0, 0, 8, 8]]] * 5, [[0]] * 5, ("cat",))

    def pipeline():
        return dataset.batches(2, image_size=16, training=True, seed=1)

    def read(batches):
        return [np.array(pixels) for pixels, _ in batches]

    whole = pipeline()
    first, second = read(whole), read(whole)
    assert not np.array_equal(first, second)
    later = pipeline()
    read(later.take(1))  # a look at it changes nothing
    reader_of(later).order.start_at(1)
    np.testing.assert_array_equal(read(later), second)
    reader_of(later).order.start_at(0, 1, 2)
    np.testing.assert_array_equal(read(later), [first[1], second[0]])
