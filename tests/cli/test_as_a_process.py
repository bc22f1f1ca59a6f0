"""Every subcommand, started as a user starts it: as a process of its own.

A test that calls `main([...])` has imported the whole package; a process has not.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import types
import urllib.request

import pytest
from support import programs
from support.hugging_face import hub_server
from support.kinds import slow_but
from support.tiny import LITE0
from support.tiny_run import tiny_run

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras.runs.configuration import RunConfiguration

pytestmark = pytest.mark.tensorflow

# What the console script of the package does. The name makes it the command, which
# imports no more than it uses.
_SCRIPT = """
import sys
sys.argv[0] = "effdet-keras"
from effdet_keras.cli import console
sys.exit(console())
"""


# Of what TensorFlow logs while it is imported. What it logs later is another thing: of
# 2.20 a line when XLA first compiles, and those of the converter to LiteRT.
_IMPORT_LOG = (
    "oneDNN custom operations",
    "optimized to use available CPU instructions",
    "Could not find cuda drivers",
    "failed call to cuInit",
    "one has already been registered",
    "placer already registered",
)


def start(*arguments, **variables):
    """Starts `effdet-keras ARGUMENTS` as a process."""
    path = os.pathsep.join(programs.PATHS)
    environment = dict(os.environ)
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)  # it would ask for the log
    return subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, *map(str, arguments)],
        env={**environment, "PYTHONPATH": path, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def effdet_keras(*arguments, status=0, **variables):
    """What `effdet-keras ARGUMENTS` prints, as a process that ends with a status."""
    with start(*arguments, **variables) as process:
        said, log = process.communicate(timeout=programs.TIMEOUT)
    assert process.returncode == status, said[-3000:] + log[-3000:]
    lines = [line for line in log.splitlines() if any(x in line for x in _IMPORT_LOG)]
    assert lines == [], "TensorFlow's log is to be left out"
    return said


@pytest.fixture(scope="module")
def made(shapes, tmp_path_factory):
    """A run of one epoch that the command trained, on `data`; and what it printed."""
    folder = tmp_path_factory.mktemp("made")
    configuration = tiny_run(epochs=1, seed=1)
    configuration["model_config"]["backbone"] = LITE0  # others know no smaller one
    RunConfiguration(**configuration).write(folder / "run.yaml")
    flags = ["--config", folder / "run.yaml", "--out", folder / "run"]
    said = effdet_keras("train", shapes, *flags)
    return types.SimpleNamespace(
        data=shapes,
        images=shapes / "valid",
        run=folder / "run",
        archive=folder / "run" / "archive" / "best.keras",
        said=said,
    )


# --- The usual arguments of each subcommand, and what it makes of them.


def demo_begins_to_train(made, folder):
    """All of it takes minutes: see `test_the_demo_as_a_process`."""
    arguments = ["demo", "--out", folder / "demo", "--epochs", 1, "--images", 2]
    with start(*arguments, PYTHONUNBUFFERED="1") as process:
        lines = iter(process.stdout.readline, "")
        try:
            assert any(line.startswith("Training a detector") for line in lines)
        finally:
            process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=programs.TIMEOUT)
    if os.name != "nt":  # where a process is ended at once
        assert process.returncode == 143, log[-3000:]


def inspect_counts_boxes(made, folder):
    said = effdet_keras("inspect", made.data, "--html", folder / "report.html")
    assert "== train ==" in said and "== valid ==" in said
    assert (folder / "report.html").exists()


def convert_writes_another_format(made, folder):
    effdet_keras("convert", made.data, folder / "yolo", "--to", "yolo")
    assert (folder / "yolo" / "data.yaml").exists()


def selftest_follows_the_boxes(made, folder):
    said = effdet_keras("selftest", made.data, made.run, "--no-training")
    assert "efficientdet-lite0 at 64x64" in said


def train_makes_a_run(made, folder):
    assert "best checkpoint: " in made.said and made.archive.exists()


def eval_writes_a_report(made, folder):
    said = effdet_keras("eval", made.run, made.data, "--out", folder / "report")
    assert "AP50" in said and (folder / "report" / "report.html").exists()


def predict_writes_a_coco_file(made, folder):
    flags = [
        "--out",
        folder / "drawn",
        "--json",
        folder / "found.json",
        "--score-threshold",
        0,
    ]
    said = effdet_keras("predict", made.run, made.images, *flags)
    assert "detections" in said and len(list((folder / "drawn").iterdir())) == 2
    assert len(json.loads((folder / "found.json").read_text())["images"]) == 2


def merge_writes_one_file(made, folder):
    flags = ["--parts", folder / "parts", "--score-threshold", 0]
    effdet_keras("predict", made.run, made.images, *flags)
    effdet_keras("merge", folder / "parts", folder / "all.json")
    assert len(json.loads((folder / "all.json").read_text())["images"]) == 2


def serve_answers(made, folder):
    pytest.importorskip("starlette", reason="needs the extra `serve`")
    pytest.importorskip("uvicorn", reason="needs the extra `serve`")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    image = next(iter(made.images.iterdir())).read_bytes()
    request = urllib.request.Request(
        f"{address}/detect", image, {"Content-Type": "image/jpeg"}
    )
    deadline = time.monotonic() + programs.TIMEOUT
    with start("serve", made.run, "--port", port) as process:
        try:
            while not listens(port):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.2)
            with urllib.request.urlopen(request) as response:
                assert "detections" in json.load(response)
        finally:
            process.terminate()
            process.communicate(timeout=programs.TIMEOUT)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def benchmark_measures(made, folder):
    flags = ["--runs", 1, "--json", folder / "numbers.json"]
    effdet_keras("benchmark", made.run, *flags)
    assert json.loads((folder / "numbers.json").read_text())


def export_writes_a_file(made, folder):
    said = effdet_keras("export", made.run, folder / "model.tflite")
    assert (folder / "model.tflite").stat().st_size > 1000 and "detections" in said


def inspect_weights_names_the_classes(made, folder):
    said = effdet_keras("inspect-weights", made.archive)
    assert "circle, square, triangle" in said


def import_writes_an_archive(made, folder):
    effdet_keras("import", made.archive, folder / "model.weights.h5")
    assert (folder / "model.weights.h5").exists()


def _flags_of_tiny_runs():
    """Flags with which the trainings of a command take seconds, but for `--steps`."""
    config = tiny_run()["model_config"]
    settings = {f"model_config.{name}": value for name, value in config.items()}
    settings["model_config.backbone"] = LITE0
    settings |= {"weights": "none", "tensorboard": "false", "anchors": "null"}
    settings |= {"run_eagerly": "true", "postprocess.max_detections": 5}
    return [f"--set={name}={value}" for name, value in settings.items()]


def forecast_measures_two_parts(made, folder):
    ek.data.write_shapes(folder / "data", num_train=34, num_valid=6)
    flags = _flags_of_tiny_runs()
    flags += ["--steps", 1, "--image-size", 64, "--percents", 25, 50]
    said = effdet_keras("forecast", folder / "data", "--out", folder / "out", *flags)
    assert "25 %: AP 0" in said and "twice as many" in said
    assert (folder / "out" / "forecast.html").is_file()


def choose_hands_over_a_file(made, folder):
    ek.data.write_shapes(folder / "data", num_train=8, num_valid=4)
    flags = _flags_of_tiny_runs()
    flags += ["--steps", 2, "--sizes", "64x64", "--models", "efficientdet-lite0"]
    flags += ["--precisions", "float32", "--timed-images", 1, "--max-ms", 60_000]
    said = effdet_keras("choose", folder / "data", "--out", folder / "out", *flags)
    assert "efficientdet-lite0 at 64x64 as litert: AP" in said
    assert (folder / "out" / "best" / "model.tflite").is_file()
    assert (folder / "out" / "choose.html").is_file()


def label_next_writes_a_file_of_a_tool(made, folder):
    shutil.copytree(made.images, folder / "pool")  # near-duplicates of what is labelled
    arguments = [made.run, folder / "pool", "--out", folder / "next", "--to", "cvat"]
    said = effdet_keras("label-next", *arguments)
    assert "CVAT: create a task" in said
    assert (folder / "next" / "annotations.xml").is_file()


def share_pushes_a_run(made, folder):
    pytest.importorskip("huggingface_hub", reason="needs the extra `huggingface`")
    with hub_server() as hub:
        variables = {"HF_ENDPOINT": hub.address, "HF_TOKEN": "hf_test"}
        variables["HF_HOME"] = str(folder / "hub")
        said = effdet_keras("share", made.run, "hf://me/x", **variables)
        assert "Pushed to hf://me/x" in said
        assert "best.keras" in hub.repositories["me/x"]


CASES = {
    "demo": demo_begins_to_train,
    "inspect": inspect_counts_boxes,
    "convert": convert_writes_another_format,
    "selftest": selftest_follows_the_boxes,
    "train": train_makes_a_run,
    "eval": eval_writes_a_report,
    "predict": predict_writes_a_coco_file,
    "merge": merge_writes_one_file,
    "serve": serve_answers,
    "benchmark": benchmark_measures,
    "export": export_writes_a_file,
    "inspect-weights": inspect_weights_names_the_classes,
    "import": import_writes_an_archive,
    "forecast": forecast_measures_two_parts,
    "choose": choose_hands_over_a_file,
    "label-next": label_next_writes_a_file_of_a_tool,
    "share": share_pushes_a_run,
}


_TRAIN_THEMSELVES = {"demo", "forecast", "choose"}  # for half a minute


@pytest.mark.parametrize(
    "name", slow_but(set(cli.COMMANDS) - _TRAIN_THEMSELVES, cli.COMMANDS)
)
def test_a_subcommand_does_its_work_as_a_process(name, made, tmp_path):
    assert name in CASES, f"`effdet-keras {name}` needs a case here"
    CASES[name](made, tmp_path)


_MODULES = """
import json, sys
sys.argv[0] = "effdet-keras"
from effdet_keras.cli import main
for arguments in json.loads(sys.argv[1]):
    assert main(arguments) == 0, arguments
print(sorted({"keras", "tensorflow", "jax", "torch"} & set(sys.modules)))
"""


def test_commands_that_need_no_keras_do_not_import_it(made, tmp_path):
    model = tmp_path / "model.tflite"
    ek.EfficientDet.from_archive(made.run).export(model, verbose=0)
    commands = [
        ["inspect", made.data],
        ["convert", made.data, tmp_path / "yolo", "--to", "yolo"],
        ["predict", model, made.images, "--json", tmp_path / "found.json"],
        ["predict", model, made.images, "--parts", tmp_path / "parts"],
        ["merge", tmp_path / "parts", tmp_path / "all.json"],
    ]
    words = json.dumps([list(map(str, command)) for command in commands])
    said = programs.run_alone("-c", _MODULES, words)
    assert said.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_the_demo_as_a_process(tmp_path):
    flags = ["--out", tmp_path / "demo", "--epochs", 1, "--images", 4]
    assert "best checkpoint" in effdet_keras("demo", *flags)
