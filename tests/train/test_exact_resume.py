"""Trainings of many kinds go on from within an epoch to the same bits."""

import importlib.util
import json

import pytest
from support import programs

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]
CASES = (
    pytest.param("graph", marks=pytest.mark.equality),
    "several steps",
    "float16",
    "two devices",
    "accumulation",
    "adversarial",
    "quantized",
    "part epochs",
)


def compared(case, backend, folder):
    program = programs.SUPPORT / "exact_resume.py"
    said = programs.run_alone(program, case, folder, KERAS_BACKEND=backend)
    return json.loads(said.splitlines()[-1])


def assert_resumed_exactly(found):
    assert (found["epoch"], found["step"]) == (1, 2)
    assert found["steps"] <= 6  # and not one per device; float16 leaves out some
    assert found["different"] == [] and found["compared"] > 300


@pytest.mark.parametrize("case", CASES)
def test_on_tensorflow(case, tmp_path):
    assert_resumed_exactly(compared(case, "tensorflow", tmp_path))


@pytest.mark.extra_packages
@pytest.mark.parametrize(
    ("backend", "case"),
    [
        ("jax", "graph"),
        ("jax", "part epochs"),
        ("torch", "accumulation"),
        ("torch", "part epochs"),
    ],
)
def test_on_other_backends(backend, case, tmp_path):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    assert_resumed_exactly(compared(case, backend, tmp_path))
