"""The order of a training: known for each epoch, and shared out among processes."""

import numpy as np
import pytest

from effdet_keras.data import from_arrays
from effdet_keras.data.pipeline.batches import EpochOrder
from effdet_keras.data.pipeline.image_reader import ImageReader, find_image_readers
from effdet_keras.extras import multiprocess

SIZE, BATCH = 10, 4


def order_of(batch_size=2, seed=3, shuffle=True, share=(0, 1)):
    return EpochOrder(SIZE, seed, shuffle, batch_size, share)


def epochs_of(order, count):
    return [[array.tolist() for array in order.draw()] for _ in range(count)]


def dataset_of(size):
    images = [np.full((16, 16, 3), 10 * i, "uint8") for i in range(size)]
    return from_arrays(images, [[[0, 0, 8, 8]]] * size, [[0]] * size, ("cat",))


@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_has_one_order_and_seed_whatever_came_before(shuffle):
    whole = epochs_of(order_of(shuffle=shuffle), 4)
    for epoch in range(4):
        later = order_of(shuffle=shuffle)
        later.start_at(epoch)
        assert epochs_of(later, 4 - epoch) == whole[epoch:]
    assert len({str(epoch) for epoch in whole}) == 4
    assert all(sorted(indices) == list(range(SIZE)) for indices, _ in whole)
    assert epochs_of(order_of(shuffle=shuffle, seed=4), 4) != whole


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


@pytest.mark.smoke
@pytest.mark.tensorflow
def test_a_pipeline_begins_where_it_is_told():
    def pipeline():
        return dataset_of(5).batches(2, image_size=16, training=True, seed=1)

    def read(batches):
        return [np.array(pixels) for pixels, _ in batches]

    whole = pipeline()
    first, second = read(whole), read(whole)
    assert not np.array_equal(first, second)
    later = pipeline()
    read(later.take(1))  # a look at it changes nothing
    next(iter(find_image_readers(later))).order.start_at(1)
    np.testing.assert_array_equal(read(later), second)
    next(iter(find_image_readers(later))).order.start_at(0, 1, 2)
    np.testing.assert_array_equal(read(later), [first[1], second[0]])


@pytest.mark.tensorflow
@pytest.mark.parametrize("training", [True, False])
def test_no_thread_for_autotuning_is_waited_for_at_the_end_of_an_epoch(training):
    """Training waited for seconds before an epoch: see benchmarks/epoch_pause.py."""
    batches = dataset_of(5).batches(2, image_size=16, training=training)
    assert batches.options().autotune.enabled is False


# --- Batches shared out among processes are those of one process, each image once.


def share_of(share):
    return order_of(BATCH, share=share)


def joined(orders):
    """The indices of the shares of a pass, in the order of one process."""
    parts = [order.draw()[0] for order in orders]
    return np.stack([p.reshape(-1, BATCH // len(parts)) for p in parts], 1).reshape(-1)


@pytest.mark.parametrize("count", [2, 4])
def test_the_shares_of_each_pass_are_its_whole_batches(count):
    whole, orders = share_of((0, 1)), [share_of((i, count)) for i in range(count)]
    for _ in range(3):
        expected = whole.draw()[0][:8]  # of ten images two batches of four
        np.testing.assert_array_equal(joined(orders), expected)
    assert {order.size for order in orders} == {8 // count}


def test_shares_of_a_pass_that_begins_within_an_epoch():
    whole, orders = share_of((0, 1)), [share_of((i, 2)) for i in range(2)]
    for order in (whole, *orders):
        order.start_at(1, skipped=1, per_pass=2)
    for _ in range(2):
        np.testing.assert_array_equal(joined(orders), whole.draw()[0][:8])


@pytest.mark.tensorflow
def test_each_process_decodes_its_part_of_each_batch_alone(monkeypatch):
    read, original = [], ImageReader.read

    def noting(self, index):
        read.append(int(index))
        return original(self, index)

    monkeypatch.setattr(ImageReader, "read", noting)
    options = {"image_size": 16, "training": True, "seed": 1}

    def epochs_of(**more):
        batches = dataset_of(SIZE).batches(BATCH, **options, **more)
        read.clear()
        found = [
            [(image.numpy(), truth["image_id"].numpy()) for image, truth in batches]
            for _ in range(2)
        ]
        return found, len(read), len(batches)

    whole, _, length = epochs_of()
    shares = [epochs_of(share=(i, 2)) for i in range(2)]
    assert [n for _, n, _ in shares] == [8, 8] and {n for *_, n in shares} == {length}
    for epoch, batches in enumerate(whole):
        for step, batch in enumerate(batches):
            parts = [found[epoch][step] for found, *_ in shares]
            for i in range(2):  # images with their augmentation, and ids
                together = np.concatenate([part[i] for part in parts])
                np.testing.assert_array_equal(together, batch[i])


@pytest.mark.tensorflow
def test_batches_to_train_on_are_shared_out_by_themselves(monkeypatch):
    class Second(type(multiprocess.current_processes())):
        index, count = 1, 2

    monkeypatch.setattr("effdet_keras.data.dataset.current_processes", lambda: Second())
    dataset = dataset_of(SIZE)
    training = dataset.batches(BATCH, image_size=16, training=True)
    assert training.element_spec[0].shape[0] == 2
    assert next(iter(find_image_readers(training))).order.size == 4
    assert len(dataset.batches(BATCH, image_size=16)) == 3  # each has all


@pytest.mark.parametrize(
    "size, batch_size, options, said",
    [
        (10, 5, {}, "batch_size=5, 2 processes"),
        (10, 1, {}, "2 processes$"),
        (3, 4, {}, "num_images=3, batch_size=4"),
        (10, 4, {"drop_remainder": False}, "leave `drop_remainder` out"),
    ],
)
@pytest.mark.tensorflow
def test_what_cannot_be_shared_is_refused(size, batch_size, options, said):
    with pytest.raises(ValueError, match=said):
        dataset_of(size).batches(
            batch_size, image_size=16, training=True, share=(0, 2), **options
        )


@pytest.mark.tensorflow
def test_the_parts_of_a_batch_have_rows_for_the_boxes_of_any_image():
    images = [np.zeros((16, 16, 3), "uint8")] * 4
    boxes = [[[0, 0, 8, 8]] * count for count in (1, 3, 0, 2)]
    labels = [[0] * len(of_image) for of_image in boxes]
    dataset = from_arrays(images, boxes, labels, ("cat",))
    for index in (0, 1):
        batches = dataset.batches(2, image_size=16, training=True, share=(index, 2))
        assert [truth["boxes"].shape for _, truth in batches] == [(1, 3, 4)] * 2
