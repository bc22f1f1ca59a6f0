"""What tests and doctests share: random seed, names, and the backend's limits."""

import random

import keras
import numpy as np
import pytest

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"

if not ON_TENSORFLOW:
    # Doctests are collected by importing, and these import TensorFlow.
    folders = ("callbacks", "data", "export")
    collect_ignore_glob = [f"effdet_keras/{folder}/*" for folder in folders]


def pytest_collection_modifyitems(items):
    if ON_TENSORFLOW:
        return
    skip = pytest.mark.skip(reason="needs the TensorFlow backend")
    for item in items:
        if item.get_closest_marker("tensorflow"):
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def fixed_seed():
    """Every test starts from the same random state.

    Keras draws the seeds of its initializers from `random`. Its own
    `set_random_seed` would have TensorFlow prepare every graph again.
    """
    random.seed(7)
    np.random.seed(7)


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace):
    doctest_namespace["np"] = np
    doctest_namespace["keras"] = keras
    doctest_namespace["ops"] = keras.ops
