"""Two real processes on TensorFlow: they train as one, and notice when one is gone."""

import json
import pathlib
import signal

import numpy as np
import pytest
from support import several_processes

pytestmark = pytest.mark.tensorflow

SUPPORT = pathlib.Path(__file__).parents[2] / "support"


def test_processes_gather_and_one_that_is_left_alone_ends(tmp_path):
    started = several_processes.launch([SUPPORT / "gathers.py"], tmp_path)
    assert several_processes.statuses(started) == [1, -signal.SIGKILL]
    said = several_processes.output(tmp_path, 0)
    assert "Process 0 of 2 has lost another process" in said


def trained(how, folder):
    """The weights of a training, and its history and numbers, in each process."""
    arguments = [SUPPORT / "trained_by_several.py", how, folder / how]
    count = 2 if how == "multiworker" else 1
    several_processes.run(arguments, folder, count=count)
    found = []
    for i in range(count):
        arrays = np.load(folder / f"{how}-{i}.npz")
        weights = np.concatenate([arrays[name].ravel() for name in arrays.files])
        result = json.loads((folder / f"{how}-{i}.json").read_text())
        found.append((weights, result))
    return found


@pytest.mark.slow  # minutes: four processes that train
def test_two_devices_and_two_processes_train_as_one(tmp_path):
    ((expected, result),) = trained("one", tmp_path)
    for how in ("mirrored", "multiworker"):
        for weights, found in trained(how, tmp_path):
            difference = np.linalg.norm(weights - expected) / np.linalg.norm(expected)
            # Rounding alone makes 1.5e-6: see docs/distributed.md.
            assert difference < 1e-5, (how, difference)
            for name, (value,) in result["history"].items():
                close = pytest.approx(value, rel=1e-3, abs=1e-4)
                assert found["history"][name][0] == close, (how, name)
