"""Each file of a model is exported, evaluated and measured; what fails says why."""

import json
import pathlib
import re
import shlex
import types

import numpy as np
import pytest
from PIL import Image
from support.tiny import LITE0, lively_model

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras.data import from_arrays
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.registry import FORMATS, TARGETS
from effdet_keras.export.runtime import describe
from effdet_keras.extras.benchmark import benchmark_files as module
from effdet_keras.extras.benchmark.benchmark_files import benchmark_files, candidates
from effdet_keras.extras.benchmark.files_report import FileNumbers, FilesReport

pytestmark = pytest.mark.tensorflow
TIMES = {"median_ms": 3.0, "p95_ms": 4.0, "peak_mb": 100.0}


@pytest.fixture(scope="module")
def model():
    return lively_model()


def dataset_of(model):
    """Four images whose objects are a few of what the model finds in them."""
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 60 * i, (64, 64, 3), "uint8") for i in range(1, 5)]
    found = [model.detect(image, score_threshold=0.0) for image in images]
    return from_arrays(
        images,
        boxes=[x.boxes[i : i + 4] for i, x in enumerate(found)],
        labels=[x.labels[i : i + 4] for i, x in enumerate(found)],
        class_names=["cat", "dog", "bird"],
    )


class LiveRuntime:
    """A file that computes what the model does; one in int8 mixes up the classes."""

    def __init__(self, model, path):
        self.path, self._model = path, model
        self._is_wrong = "int8" in str(path)
        precision = "int8" if self._is_wrong else "float32"
        self.description = describe(model, outputs="raw", precision=precision)

    def run(self, images):
        found = {n: np.asarray(v) for n, v in self._model(images).items()}
        if self._is_wrong:
            found["class_logits"] = np.roll(found["class_logits"], 1, axis=-1)
        return found


@pytest.fixture
def exports(model, monkeypatch):
    """The calls of `export`, which writes five bytes, or fails as its format says."""
    calls = []

    def export(self, path, format=None, **options):
        calls.append({"format": format, **options})
        if format == "onnx":
            raise ImportError('ONNX export needs pip install "effdet-keras[onnx]"')
        if format == "openvino":
            raise InvalidValueError("does not compute the same as the model\nmore")
        if format == "saved_model":
            raise KeyError("converter")
        path.write_bytes(b"12345")
        return types.SimpleNamespace(format=format)

    monkeypatch.setattr(ek.EfficientDet, "export", export)
    monkeypatch.setattr(module, "open_runtime", lambda path: LiveRuntime(model, path))
    monkeypatch.setattr(module._Measurement, "_times", lambda self, path: TIMES)
    return calls


def test_all_are_the_formats_in_each_precision_and_the_targets():
    names = [one.name for one in candidates("all")]
    assert len(set(names)) == len(names)
    assert {"saved_model", "litert", "litert-float16", "litert-int8", "onnx"} <= set(
        names
    )
    assert {*FORMATS, *TARGETS} <= set(names)
    # Each value of an option that makes another file which runs here.
    detectors = TARGETS["frigate"].float_choices["detector"]
    assert {f"frigate-{detector}" for detector in detectors} <= set(names)
    message = r"`targets` must be one of .*'litert-int8'.*Received: targets='int4'"
    with pytest.raises(ValueError, match=message):
        candidates(["onnx", "int4"])


@pytest.mark.smoke
def test_a_file_is_compared_with_the_live_model(model, exports, tmp_path):
    data, images = dataset_of(model), ["a calibration"]
    options = {"calibration": images, "num_draws": 40, "verbose": False}
    found = benchmark_files(model, data, "litert,litert-int8", **options)
    live, same, wrong = found.rows
    assert live.name == "live model" and live.ap > 0.2
    assert (same.ap, same.ap_lost, same.lost_low, same.lost_high) == (live.ap, 0, 0, 0)
    assert (same.median_ms, same.p95_ms, same.peak_mb) == (3.0, 4.0, 100.0)
    assert same.megabytes == 5e-6
    assert wrong.ap < live.ap / 2
    assert wrong.ap_lost == pytest.approx(live.ap - wrong.ap)
    assert 0 < wrong.lost_low < wrong.lost_high
    assert wrong.lost_low - 1e-9 <= wrong.ap_lost <= wrong.lost_high + 1e-9
    assert found.num_images == 4
    (sentence,) = found.explanations
    assert sentence.startswith("litert-int8: its AP is lower") and "8 bits" in sentence
    # The calibration is for int8 alone, and the same seed draws the same.
    assert [call.get("calibration") for call in exports] == [None, images]
    again = benchmark_files(model, data, ["litert-int8"], **options)
    assert again.rows[1] == wrong


@pytest.mark.parametrize(
    ("name", "is_calibrated"),
    [("litert-int8", False), ("coral", False), ("hailo", True), ("rknn", True)],
)
def test_what_cannot_take_learned_ranges_is_calibrated(name, is_calibrated):
    (one,) = candidates(name)
    learned, not_learned = (types.SimpleNamespace(quantization=x) for x in ({}, None))
    assert module._takes_calibration(one, not_learned)
    assert module._takes_calibration(one, learned) == is_calibrated


def test_images_without_boxes_cannot_judge(model, exports):
    images = [example["image"] for example in dataset_of(model)]
    data = ek.data.from_arrays(images, [[]] * 4, [[]] * 4, ("cat",))
    with pytest.raises(ValueError, match="no image of `data` has a box"):
        benchmark_files(model, data, "litert")
    assert not exports


def test_timed_images_are_the_files_of_the_dataset(tmp_path):
    """A JPEG file takes another time to decode than the same pixels in PNG."""
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype("uint8")
    Image.fromarray(pixels).save(tmp_path / "a.JPG")
    paths = [str(tmp_path / "a.JPG"), pixels]
    data = ek.data.from_arrays(paths, [[]] * 2, [[]] * 2, ("cat",))
    folder = module.write_images(data, tmp_path / "images")
    assert sorted(path.name for path in folder.iterdir()) == ["0.JPG", "1.png"]
    assert (folder / "0.JPG").read_bytes() == (tmp_path / "a.JPG").read_bytes()
    np.testing.assert_array_equal(Image.open(folder / "1.png"), pixels)


def test_what_did_not_run_says_why(model, exports):
    data = dataset_of(model)
    names = ["litert-int8", "onnx", "openvino", "saved_model"]
    found = benchmark_files(model, data, names, num_draws=1, verbose=False)
    told = dict(found.not_run)
    assert told["litert-int8"].startswith("int8 needs calibration images")
    assert told["onnx"].startswith("missing package: ONNX export needs pip install")
    assert told["openvino"] == "does not compute the same as the model"
    assert told["saved_model"] == "KeyError: 'converter'"
    assert [row.is_measured for row in found.rows] == [True, *[False] * 4]


def test_a_file_for_a_device_is_told_to_be_checked_and_not_run(
    model, exports, monkeypatch
):
    """What its writer's check computed is the only thing that runs here."""

    def export(self, path, format=None, *, target, **options):
        path.mkdir()
        (path / "model.onnx").write_bytes(b"x" * 2000)
        (path / "export_report.json").write_bytes(b"{}")
        return types.SimpleNamespace(format=target)

    monkeypatch.setattr(ek.EfficientDet, "export", export)
    options = {"calibration": ["an image"], "num_draws": 1, "verbose": False}
    names = ["coreml", "tensorrt", "hailo", "rknn"]
    found = benchmark_files(model, dataset_of(model), names, **options)
    assert [name for name, _ in found.checked] == names and not found.not_run
    for row in found.rows[1:]:
        assert row.check.startswith("only its structure was checked")
        assert (row.megabytes, row.ap, row.reason) == (0.002, None, "")


def test_files_of_frigates_other_detectors_are_read_as_frigate_does(
    model, exports, monkeypatch
):
    calls, opened = [], []

    def export(self, path, format=None, **options):
        calls.append((format, options["target"], options["detector"]))
        path.mkdir()
        (path / "model.onnx").write_bytes(b"x" * 2000)
        return types.SimpleNamespace(format="onnx")

    def read(path):
        opened.append(path.name)
        return LiveRuntime(model, path)

    monkeypatch.setattr(ek.EfficientDet, "export", export)
    monkeypatch.setattr(module, "open_runtime", None)  # which does not know its rows
    monkeypatch.setitem(module.FLOAT_DETECTORS, "onnx", read)
    options = {"num_draws": 1, "verbose": False}
    found = benchmark_files(model, dataset_of(model), "frigate-onnx", **options)
    live, row = found.rows
    assert calls == [(None, "frigate", "onnx")] and opened == ["model.onnx"]
    assert (row.reason, row.ap, row.ap_lost, row.megabytes) == ("", live.ap, 0, 0.002)
    assert row.time_reason.startswith("not timed: Frigate reads its rows")
    assert row.median_ms is None


def test_times_are_those_of_a_process_of_its_own(monkeypatch, tmp_path):
    words = []

    def run(command, **options):
        words.extend(command)
        times = {"stages": {"all": {"median_ms": 1.0, "p95_ms": 2.0, "p90_ms": 1.5}}}
        path = command[command.index("--json") + 1]
        with open(path, "w") as file:
            json.dump({**times, "peak_mb": 7.0}, file)
        return types.SimpleNamespace(returncode=0)

    monkeypatch.setattr(module.subprocess, "run", run)
    measure = module._Measurement([], tmp_path, 5, 2, 1, 0, False)
    times = measure._times(tmp_path / "a.onnx")
    assert times == {"median_ms": 1.0, "p95_ms": 2.0, "peak_mb": 7.0}
    assert words[1:4] == ["-m", "effdet_keras", "benchmark"]
    assert words[4] == tmp_path / "a.onnx"
    assert words[words.index("--runs") + 1] == "5"
    assert words[words.index("--threads") + 1] == "2"
    failed = types.SimpleNamespace(returncode=1, stderr="Traceback\nMemoryError: no\n")
    monkeypatch.setattr(module.subprocess, "run", lambda *x, **y: failed)
    assert measure._times(tmp_path) == {"time_reason": "not timed: MemoryError: no"}


def test_the_file_in_a_target_and_what_belongs_to_it(tmp_path):
    for name, size in (("model_edgetpu.tflite", 3), ("model.tflite", 5)):
        (tmp_path / name).write_bytes(b"x" * size)
    assert module.file_of_export(tmp_path, "litert") == tmp_path / "model.tflite"
    assert module.file_of_export(tmp_path, "saved_model") == tmp_path
    for name, size in (("pets.xml", 10), ("pets.bin", 100), ("export_report.json", 7)):
        (tmp_path / name).write_bytes(b"x" * size)
    assert module.file_megabytes(tmp_path / "pets.xml") == 110 / 1e6
    assert module.file_megabytes(tmp_path) == 118 / 1e6


PAGE = pathlib.Path(__file__).parents[3] / "docs" / "benchmark_files.md"


def test_the_commands_of_the_page_write_the_table_in_all_its_forms(
    model, shapes, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "DATA").symlink_to(shapes)
    calls = []

    def files(live, data, targets, **options):
        calls.append((len(data), targets, len(options["calibration"]), options["runs"]))
        return FilesReport("pets", 2, 3, (FileNumbers("live model", ap=0.5),))

    monkeypatch.setattr(module, "benchmark_files", files)
    monkeypatch.setattr("effdet_keras.cli.files.open_live_model", lambda path: model)
    commands = re.findall(r"^effdet-keras (benchmark .*)$", PAGE.read_text(), re.M)
    for command in commands:
        assert cli.main(shlex.split(command)) == 0
    # Images of "valid" and of "train".
    assert calls == [(2, "all", 4, 30), (2, "onnx,litert-int8,coral", 4, 100)]
    names = {"benchmark.json", "benchmark.md", "benchmark.html"}
    assert names == {path.name for path in (tmp_path / "files").iterdir()}
    assert (tmp_path / "three.json").is_file()
    assert "0.5000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pets.onnx", "DATA"], "DATA and --targets can only be given together"),
        (
            ["pets.onnx", "--targets", "all"],
            "DATA and --targets can only be given together",
        ),
        (["pets.onnx", "--out", "x"], "and --reader-option work only with DATA"),
        (
            ["pets.keras", "DATA", "--targets", "all", "--batch-size", "8"],
            "--precision work only without DATA",
        ),
        (
            ["pets.keras", "DATA", "--targets", "all", "--images", "x"],
            "--precision work only without DATA",
        ),
    ],
)
def test_what_does_not_go_together_is_told(words, told, capsys):
    assert cli.main(["benchmark", *words]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_a_real_file_in_a_real_process(tmp_path):
    pytest.importorskip("onnxruntime")
    model = lively_model(backbone=LITE0)
    options = {"runs": 2, "num_draws": 20, "verbose": False, "folder": tmp_path}
    found = benchmark_files(model, dataset_of(model), "onnx", **options)
    live, onnx = found.rows
    assert not found.not_run
    assert abs(onnx.ap_lost) < 0.02 and onnx.lost_low <= onnx.lost_high
    assert 0 < onnx.median_ms <= onnx.p95_ms
    assert (tmp_path / "onnx" / "model.onnx").is_file()
    # The runtime's process has neither Keras nor TensorFlow.
    assert onnx.peak_mb is None or onnx.peak_mb < live.peak_mb / 2
