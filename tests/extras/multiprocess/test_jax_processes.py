"""Real processes and devices on JAX: they train as one, and end when one is gone."""

import json
import pathlib
import signal

import numpy as np
import pytest
from support import several_processes

pytestmark = pytest.mark.extra_packages
pytest.importorskip("jax")

SUPPORT = pathlib.Path(__file__).parents[2] / "support"
TWO_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}


def test_processes_gather_and_one_that_is_left_alone_ends(tmp_path):
    program = [SUPPORT / "jax_gathers.py"]
    started = several_processes.launch(program, tmp_path, backend="jax")
    left, killed = several_processes.statuses(started)
    assert killed == -signal.SIGKILL
    # JAX itself ends the process where it notices first.
    assert left in (1, -signal.SIGABRT)
    said = several_processes.output(tmp_path, 0)
    assert "gathered ['of 0', 'of 1']" in said
    assert "has lost another process" in said or "another task died" in said


def weights_in(path):
    arrays = np.load(path)
    return np.concatenate([arrays[name].ravel() for name in arrays.files])


def trained(how, name, folder, **options):
    """The weights of a training, and its history and numbers, in each process."""
    program = [SUPPORT / "trained_by_several.py", how, folder / name]
    count = options.get("count", 2)
    several_processes.run(program, folder, backend="jax", **options)
    return [
        (
            weights_in(folder / f"{name}-{i}.npz"),
            json.loads((folder / f"{name}-{i}.json").read_text()),
        )
        for i in range(count)
    ]


@pytest.mark.slow  # minutes: four processes that compile a training step
def test_two_devices_and_two_processes_train_as_one(tmp_path):
    ((expected, result),) = trained("one", "one", tmp_path, count=1)
    several = trained("jax", "processes", tmp_path)
    several += trained("jax", "devices", tmp_path, count=1, **TWO_DEVICES)
    for weights, found in several:
        difference = np.linalg.norm(weights - expected) / np.linalg.norm(expected)
        assert difference < 1e-5
        assert found["numbers"] == pytest.approx(result["numbers"], abs=1e-3)
        for name, (value,) in result["history"].items():
            assert found["history"][name][0] == pytest.approx(value, rel=1e-3, abs=1e-3)


@pytest.mark.slow  # minutes: six processes that compile a training step
def test_a_training_goes_on_after_a_process_was_killed(tmp_path):
    def train(run, name, *die_before, victim=1):
        program = [SUPPORT / "jax_process.py", tmp_path / run, tmp_path / name]
        dying = {"DIE_BEFORE_STEP": str(*die_before), "VICTIM": str(victim)}
        started = several_processes.launch(
            program, tmp_path, backend="jax", **(dying if die_before else {})
        )
        return several_processes.statuses(started)

    for victim in (0, 1):
        statuses = train(f"run-{victim}", f"again-{victim}", 4, victim=victim)
        assert statuses[victim] == -signal.SIGKILL
        assert statuses[1 - victim] != 0  # and it has ended
        assert train(f"run-{victim}", f"again-{victim}") == [0, 0]
    assert train("run", "whole") == [0, 0]
    expected = weights_in(tmp_path / "whole-0.npz")
    for victim in (0, 1):
        for i in (0, 1):
            found = weights_in(tmp_path / f"again-{victim}-{i}.npz")
            np.testing.assert_array_equal(found, expected)
