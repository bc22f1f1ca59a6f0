"""Fixtures shared by all tests: golden arrays, and which backend runs."""

import pathlib
import sys

import keras
import numpy as np
import pytest

TESTS = pathlib.Path(__file__).parent
SHARED = TESTS.parents[1] / "shared"

if keras.backend.backend() != "tensorflow":
    # Doctests of the files that import TensorFlow need its backend.
    collect_ignore_glob = ["../effdet_keras/data/*", "../effdet_keras/callbacks/*"]


def pytest_collection_modifyitems(items):
    if keras.backend.backend() == "tensorflow":
        return
    skip = pytest.mark.skip(reason="needs the TensorFlow backend")
    for item in items:
        if item.get_closest_marker("tensorflow"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def golden_path():
    """Finds a golden file: copied into tests/golden, or in ../shared."""

    def find(name):
        for folder in (TESTS / "golden", SHARED / "reference" / "golden"):
            if (folder / name).exists():
                return folder / name
        pytest.skip(f"golden file {name} is not in tests/golden nor ../shared")

    return find


@pytest.fixture(scope="session")
def golden(golden_path):
    """Loads a golden `.npz` by name."""
    return lambda name: np.load(golden_path(name), allow_pickle=False)


@pytest.fixture(scope="session")
def reference_value(golden_path):
    """`value(tf1_name, shape, model)`: the golden weights, by TF1 name."""
    sys.path.insert(0, str(golden_path("refweights.py").parent))
    import refweights

    return refweights


@pytest.fixture(autouse=True)
def fixed_seed():
    """Every test starts from the same random state."""
    keras.utils.set_random_seed(7)


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace):
    doctest_namespace["np"] = np
    doctest_namespace["keras"] = keras
    doctest_namespace["ops"] = keras.ops
