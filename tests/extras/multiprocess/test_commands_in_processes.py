"""`effdet-keras train --distribute` in two processes, which are killed and go on."""

import io
import json
import signal
import time
import zipfile

import h5py
import numpy as np
import pytest
from support import several_processes
from support.tiny_run import MODEL_CONFIG, TINY_RUN

from effdet_keras.data import write_shapes
from effdet_keras.weights.archive import read_archive_info

ENGINES = [
    pytest.param("multiworker", "tensorflow", marks=pytest.mark.tensorflow),
    pytest.param("jax", "jax", marks=pytest.mark.extra_packages),
]
# The small backbone of the tests has to be known there, too.
PROGRAM = (
    "import sys; import support.tiny; from effdet_keras import cli; "
    "sys.exit(cli.console())"
)


def launched(folder, out, engine, backend):
    """The command of docs/distributed.md, with a small network, in two processes."""
    fields = {f"model_config.{name}": value for name, value in MODEL_CONFIG.items()}
    fields |= {"anchors": "null", "tensorboard": "false"}
    fields["postprocess.max_detections"] = TINY_RUN["postprocess"]["max_detections"]
    command = ["-c", PROGRAM, "train", folder / "data", "--out", out, "--resume"]
    command += [f"--set={name}={value}" for name, value in fields.items()]
    command += ["--weights", "none", "--image-size", "64", "--deterministic"]
    command += ["--epochs", "3", "--batch-size", "4", "--save-every-steps", "1"]
    command += ["--distribute", engine]
    return several_processes.launch(command, folder, backend=backend)


def saved(out):
    path = out / "archive" / "last.keras"
    return read_archive_info(path)["place"]["steps"] if path.exists() else 0


def wait_until(condition, started):
    end = time.monotonic() + several_processes.TIMEOUT
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


@pytest.mark.slow  # minutes: eight processes that train
@pytest.mark.parametrize(("engine", "backend"), ENGINES)
def test_the_command_goes_on_after_either_was_killed(engine, backend, tmp_path):
    pytest.importorskip(backend)
    write_shapes(tmp_path / "data", num_train=12, num_valid=3, image_size=64)
    out, whole = tmp_path / "run", tmp_path / "whole"

    for killed in (1, 0):  # also the one that writes
        at = saved(out)
        started = launched(tmp_path, out, engine, backend)
        wait_until(lambda at=at: saved(out) > at, started)
        started[killed].kill()
        statuses = several_processes.statuses(started)
        said = several_processes.output(tmp_path, 1 - killed)
        assert statuses.pop(killed) == -signal.SIGKILL
        # JAX itself ends the process where it notices first.
        assert statuses[0] in ((1, -signal.SIGABRT) if engine == "jax" else (1,)), said
        is_told = "has lost another process of the training" in said
        assert statuses[0] != 1 or is_told, said

    for folder in (out, whole):
        found = several_processes.statuses(launched(tmp_path, folder, engine, backend))
        assert found == [0, 0], several_processes.output(tmp_path, 0)
    for name in ("log.txt", "report.html", "archive/best.keras"):
        assert (out / name).exists()
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
