"""Each epoch of `fit` begins at its place in the data."""

import numpy as np
import pytest

from effdet_keras.data import from_arrays
from effdet_keras.train.data_order import DataOrder

pytestmark = pytest.mark.tensorflow
NUM_BATCHES = 3


@pytest.fixture(scope="module")
def dataset():
    images = [np.full((8, 8, 3), i, "uint8") for i in range(2 * NUM_BATCHES)]
    return from_arrays(images, [[]] * len(images), [[]] * len(images), ("cat",))


def batches_of(dataset):
    return dataset.batches(
        2, image_size=8, training=True, seed=0, flip_probability=0, scale_jitter=(1, 1)
    )


def ids(batches):
    return [tuple(truth["image_id"].numpy().tolist()) for _, truth in batches]


def trained(dataset, change, epochs, *, first=0, step=0, steps=None):
    """The image ids of each step, as Keras draws them epoch by epoch."""
    data = change(batches_of(dataset))
    order = DataOrder(data, steps, first)
    found, iterator = [], None
    for epoch in range(first, epochs):
        is_reached = order.start(epoch, step if epoch == first else 0)
        if steps is None or iterator is None:
            iterator = iter(data)
        count = (steps or int(data.cardinality())) - (step if epoch == first else 0)
        assert is_reached
        found += ids(next(iterator) for _ in range(count))
    return found


CHANGES = {
    "as it is": (lambda data: data, None),
    "a part": (lambda data: data.take(2), None),
    "mapped": (lambda data: data.map(lambda *both: both), None),
    "twice": (lambda data: data.repeat(2), None),
    "without end": (lambda data: data.repeat(), 2),
    "a part without end": (lambda data: data.take(2).repeat(), 3),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("epoch", "step"), [(1, 0), (2, 1)])
def test_a_training_that_goes_on_sees_what_it_would_have_seen(
    dataset, change, epoch, step
):
    change, steps = CHANGES[change]
    whole = trained(dataset, change, 4, steps=steps)
    rest = trained(dataset, change, 4, first=epoch, step=step, steps=steps)
    assert rest == whole[-len(rest) :] and len(set(whole)) > NUM_BATCHES


def test_a_second_fit_goes_on_with_the_order(dataset):
    data = batches_of(dataset)
    seen = []
    for _ in range(2):  # `fit` of one epoch each
        DataOrder(data, None, 0).start(0)
        seen += ids(data)
    assert seen == trained(dataset, lambda data: data, 2)


def test_what_cannot_begin_within_an_epoch_tells_so(dataset):
    data = dataset.batches(4, image_size=8, training=True, drop_remainder=False)
    assert DataOrder(data, None, 0).start(1)
    assert not DataOrder(data, None, 1).start(1, step=1)
    assert not DataOrder([1, 2], None, 0).start(1, step=1)
