"""A tiny detector and a tiny dataset for the callbacks."""

import keras
import numpy as np
import pytest
from support.tiny import batch, tiny_model

NAMES = ("cat", "dog", "bird")


@pytest.fixture(scope="session")
def valid():
    """Five images of different sizes, the fourth empty; category ids 5, 7 and 9."""
    from effdet_keras.data import from_arrays

    random = np.random.default_rng(1)
    sizes = [(64, 64), (48, 80), (100, 60), (64, 64), (30, 30)]
    images = [random.integers(0, 255, (*size, 3), "uint8") for size in sizes]
    boxes = [
        [[4, 4, 40, 36], [10, 30, 60, 60]],
        [[8, 8, 40, 70]],
        [[50, 10, 90, 50], [2, 2, 30, 30]],
        [],
        [[3, 5, 28, 25]],
    ]
    labels = [[0, 1], [2], [1, 0], [], [2]]
    return from_arrays(images, boxes, labels, NAMES).with_classes(NAMES, (5, 7, 9))


@pytest.fixture(scope="session")
def train():
    """Four images and their truth, as `fit` takes arrays."""
    return batch(4, label=0, box=(4, 4, 40, 36))


@pytest.fixture(scope="session")
def shared_model():
    """Compiled once; tests get it by `model`, with its first weights."""
    model = tiny_model()
    # An optimizer of our own: the recipe's schedule is traced anew at each fit.
    model.compile(optimizer=keras.optimizers.SGD(0.01))
    return model


@pytest.fixture
def model(shared_model):
    first = [np.array(value) for value in shared_model.get_weights()]
    state = [np.array(v) for v in shared_model.optimizer.variables]
    shared_model.averages.reset()
    yield shared_model
    shared_model.averages.swap_out()
    shared_model.set_weights(first)
    for variable, value in zip(shared_model.optimizer.variables, state):
        variable.assign(value)
    shared_model.stop_training = False
