"""Real trainings that are told to stop, and the same command again."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from support.tiny_run import MODEL_CONFIG, TINY_RUN

from effdet_keras.data import write_shapes
from effdet_keras.weights.archive import read_archive_info

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(os.name == "nt", reason="signals of other systems"),
]
TESTS = pathlib.Path(__file__).parents[1]
# The small backbone of the tests has to be known there, too; and where the tests run in
# the background, Ctrl-C is ignored.
PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "import sys; import support.tiny; from effdet_keras import cli; "
    "sys.exit(cli.console())"
)
PATIENCE = 300  # seconds, for a machine that does other things


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_shapes(folder, num_train=12, num_valid=4, image_size=64)
    return folder


def started(data, out, *arguments):
    fields = {f"model_config.{n}": v for n, v in MODEL_CONFIG.items()}
    fields |= {"run_eagerly": "true", "tensorboard": "false", "anchors": "null"}
    fields["postprocess.max_detections"] = TINY_RUN["postprocess"]["max_detections"]
    flags = [f"--set={name}={value}" for name, value in fields.items()]
    flags += ["--weights", "none", "--image-size", "64", "--batch-size", "4"]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "train", data, "--out", out, "--resume"]
        + [*flags, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"},
    )


def stopped(process, number, moment):
    """What it said, and its exit status, after a signal once `moment()` is true."""
    end = time.monotonic() + PATIENCE
    while not moment() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(number)
    said, _ = process.communicate(timeout=PATIENCE)
    return said, process.returncode


def test_a_command_that_is_terminated_saves_and_says_how_to_go_on(data, tmp_path):
    out = tmp_path / "run"
    process = started(data, out, "--epochs", "1000", "--evaluate-every", "0")
    said, status = stopped(process, signal.SIGTERM, (out / "log.jsonl").exists)
    assert status == 143, said
    assert f"To resume: effdet-keras train --resume --out {out}" in said
    assert "terminated" in said and "Traceback" not in said
    assert not list((out / "archive").glob(".*"))
    info = read_archive_info(out / "archive" / "last.keras")
    position = info["training_position"]
    # The log's line comes before the epoch has ended: it may be the first one still.
    assert position["total_steps"] >= 3
    if "a checkpoint was written" in said:  # there was something to save
        assert position["step"] >= 1
    steps = 3 * position["epoch"] + position["step"]
    assert position["total_steps"] == steps
