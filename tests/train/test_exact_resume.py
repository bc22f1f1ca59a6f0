"""Trainings of many kinds go on from within an epoch to the same bits."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]
CASES = (
    *("graph", "several steps", "float16", "two devices", "accumulation"),
    *("adversarial", "quantized"),
)


def compared(case, backend, folder):
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    result = subprocess.run(
        [sys.executable, TESTS / "support" / "exact_resume.py", case, folder],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "KERAS_BACKEND": backend},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])


def assert_equal(found):
    assert (found["epoch"], found["step"]) == (1, 2)
    assert found["steps"] <= 6  # and not one per device; float16 leaves out some
    assert found["different"] == [] and found["compared"] > 300


@pytest.mark.parametrize("case", CASES)
def test_on_tensorflow(case, tmp_path):
    assert_equal(compared(case, "tensorflow", tmp_path))


@pytest.mark.extra_packages
@pytest.mark.parametrize(
    ("backend", "case"), [("jax", "graph"), ("torch", "accumulation")]
)
def test_on_other_backends(backend, case, tmp_path):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    assert_equal(compared(case, backend, tmp_path))
