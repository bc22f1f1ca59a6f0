"""Fixtures for golden data of the reference system."""

import pathlib
import sys

import numpy as np
import pytest

TESTS = pathlib.Path(__file__).parent
SHARED = TESTS.parents[1] / "shared"


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
def refweights(golden_path):
    """The module of golden weights: `value(tf1_name, shape, model)`, `image`."""
    sys.path.insert(0, str(golden_path("refweights.py").parent))
    import refweights

    return refweights
