"""Real processes and devices: they train as one, end when one is gone, and go on."""

import functools
import io
import json
import pathlib
import signal
import time
import zipfile

import h5py
import numpy as np
import pytest
from support import programs
from support.tiny_run import MODEL_CONFIG, TINY_RUN

from effdet_keras.data import write_shapes
from effdet_keras.weights.archive import read_archive_info

BACKENDS = {"multiworker": "tensorflow", "jax": "jax"}
EACH_ENGINE = pytest.mark.parametrize(
    "engine",
    [
        pytest.param("multiworker", marks=pytest.mark.tensorflow),
        pytest.param("jax", marks=pytest.mark.extra_packages),
    ],
)
# JAX itself ends the process where it notices first.
AFTER_A_LOSS = {"multiworker": (1,), "jax": (1, -signal.SIGABRT)}
TWO_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
# The small backbone of the tests has to be known there, too.
COMMAND = (
    "import sys; import support.tiny; from effdet_keras import cli; "
    "sys.exit(cli.console())"
)


@EACH_ENGINE
def test_processes_gather_and_one_that_is_left_alone_ends(engine, tmp_path):
    pytest.importorskip(BACKENDS[engine])
    program = [programs.SUPPORT / "gathers.py", engine, tmp_path]
    backend = BACKENDS[engine]
    left, killed = programs.statuses(
        programs.launch(program, tmp_path, backend=backend)
    )
    said = programs.output(tmp_path, 0)
    assert killed == -signal.SIGKILL
    assert left in AFTER_A_LOSS[engine]
    assert "gathered" in said
    lost = "rank 0 of 2: another worker of the training died" in said
    assert lost or (engine == "jax" and "another task died" in said)


def weights_in(path):
    arrays = np.load(path)
    return np.concatenate([arrays[name].ravel() for name in arrays.files])


def trained(how, folder, *, name=None, count=1, **options):
    """The weights of a training, and its history and numbers, in each process."""
    out = folder / (name or how)
    program = [programs.SUPPORT / "trained_by_several.py", how, out]
    programs.run(program, folder, count=count, **options)
    return [
        (
            weights_in(f"{out}-{i}.npz"),
            json.loads(pathlib.Path(f"{out}-{i}.json").read_text()),
        )
        for i in range(count)
    ]


@pytest.mark.slow  # minutes: four processes that compile a training step
@EACH_ENGINE
def test_two_devices_and_two_processes_train_as_one(engine, tmp_path):
    pytest.importorskip(BACKENDS[engine])
    train = functools.partial(trained, folder=tmp_path, backend=BACKENDS[engine])
    ((expected, result),) = train("one")
    several = train(engine, count=2)
    if engine == "jax":
        several += train("jax", name="devices", **TWO_DEVICES)
    else:
        several += train("mirrored")
    for weights, found in several:
        difference = np.linalg.norm(weights - expected) / np.linalg.norm(expected)
        # Rounding alone makes 1.5e-6: see docs/distributed.md.
        assert difference < 1e-5
        for name, (value,) in result["history"].items():
            slack = 1e-3 if engine == "jax" else 1e-4
            close = pytest.approx(value, rel=1e-3, abs=slack)
            assert found["history"][name][0] == close, name
        if engine == "jax":
            assert found["numbers"] == pytest.approx(result["numbers"], abs=1e-3)


def launched(folder, out, engine, *flags):
    """The command of docs/distributed.md, with a small network, in two processes."""
    fields = {f"model_config.{name}": value for name, value in MODEL_CONFIG.items()}
    fields |= {"anchors": "null", "tensorboard": "false"}
    fields["postprocess.max_detections"] = TINY_RUN["postprocess"]["max_detections"]
    command = ["-c", COMMAND, "train", folder / "data", "--out", out, "--resume"]
    command += [f"--set={name}={value}" for name, value in fields.items()]
    command += ["--weights", "none", "--image-size", "64", "--deterministic"]
    command += ["--epochs", "3", "--batch-size", "4", "--save-every-steps", "1"]
    command += ["--distribute", engine, *flags]
    return programs.launch(command, folder, backend=BACKENDS[engine])


def saved(out):
    path = out / "archive" / "last.keras"
    return (
        read_archive_info(path)["training_position"]["total_steps"]
        if path.exists()
        else 0
    )


def wait_until(condition, started):
    end = time.monotonic() + programs.TIMEOUT
    while not condition() and time.monotonic() < end:
        if any(process.poll() is not None for process in started):
            break
        time.sleep(0.05)
    assert condition()


def weights_of(out):
    found = {}

    def add(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = np.asarray(item)

    with zipfile.ZipFile(out / "archive" / "last.keras") as archive:
        content = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(content) as file:
        file.visititems(add)
    return found


@pytest.mark.equality
@pytest.mark.slow  # a minute: six processes that train
@pytest.mark.tensorflow
def test_a_worker_is_killed_and_the_training_ends_with_the_same_bits(tmp_path):
    kill_and_resume("multiworker", tmp_path, [1], "--evaluate-every", "0")


@pytest.mark.slow  # minutes: eight processes that train
@EACH_ENGINE
def test_the_command_goes_on_after_either_was_killed(engine, tmp_path):
    pytest.importorskip(BACKENDS[engine])
    out = kill_and_resume(engine, tmp_path, [1, 0])  # process 0 writes the checkpoints
    for name in ("log.txt", "report.html", "archive/best.keras"):
        assert (out / name).exists()


def kill_and_resume(engine, tmp_path, kills, *flags):
    """Kills these processes, one in each start of a run, and compares where it ends.

    Returns the folder of that run, which ends with the bits of one that nobody killed.
    """
    write_shapes(tmp_path / "data", num_train=12, num_valid=3, image_size=64)
    out, whole = tmp_path / "run", tmp_path / "whole"

    for killed in kills:
        at = saved(out)
        started = launched(tmp_path, out, engine, *flags)
        wait_until(lambda at=at: saved(out) > at, started)
        started[killed].kill()
        statuses = programs.statuses(started)
        said = programs.output(tmp_path, 1 - killed)
        assert statuses.pop(killed) == -signal.SIGKILL
        assert statuses[0] in AFTER_A_LOSS[engine], said
        is_told = "another worker of the training died" in said
        assert statuses[0] != 1 or is_told, said

    for folder in (out, whole):
        found = programs.statuses(launched(tmp_path, folder, engine, *flags))
        assert found == [0, 0], programs.output(tmp_path, 0)
    rows, expected = (
        [json.loads(line) for line in (folder / "log.jsonl").open()]
        for folder in (out, whole)
    )
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert [row["steps"] for row in rows] == [3, 6, 9]
    assert rows[-1]["loss"] == pytest.approx(expected[-1]["loss"], rel=1e-4)
    weights, expected = weights_of(out), weights_of(whole)
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(weights[name], value, err_msg=name)
    return out
