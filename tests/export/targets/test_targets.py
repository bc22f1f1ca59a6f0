"""What each target writes is what its tools read, and what they refuse is refused."""

import json
import os
import pathlib
import re
import stat

import keras
import numpy as np
import pytest
from PIL import Image
from support.tiny import BOTH_HEADS, LITE0, lively_model, spread, tiny_model

from effdet_keras import cli
from effdet_keras.export.litert.operations import Operation, operations_of
from effdet_keras.export.runtime import open_runtime
from effdet_keras.export.targets.edge_tpu_operations import (
    operations_on_cpu,
    require_compilable,
)
from effdet_keras.models import EfficientDet
from effdet_keras.weights.archive import write_archive

pytestmark = pytest.mark.tensorflow

PAGES = pathlib.Path(__file__).parents[3] / "docs"
INT8_OUTPUTS = ["boxes", "classes", "scores", "count"]


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return spread(tiny_model())


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), "uint8")


@pytest.fixture(scope="module")
def exported(model, images, tmp_path_factory):
    """Runs the command that a target's page begins with; gives folder and report.

    More flags make another export. Each is made once.
    """
    root = tmp_path_factory.mktemp("targets")
    write_archive(model, root / "archive.keras")
    (root / "images").mkdir()
    for index, pixels in enumerate(images):
        Image.fromarray(pixels).save(root / "images" / f"{index}.png")
    known = {}

    def export(target, *flags):
        if (target, *flags) not in known:
            words = command_of(target)
            place = {"archive": root / "archive.keras", "images/": root / "images"}
            out = root / str(len(known)) / words[3]
            out.parent.mkdir(parents=True)
            place[words[3]] = out
            words = [str(place.get(word, word)) for word in words]
            assert cli.main([*words[1:], *flags]) == 0
            report = json.loads((out / "export_report.json").read_text())
            known[target, *flags] = out, report
        return known[target, *flags]

    return export


def command_of(target):
    """The words of the first command on a target's page."""
    page = PAGES / f"target_{target.replace('-', '_')}.md"
    first = re.search(r"^```sh\n(.*?)\n```$", page.read_text(), re.S | re.M)[1]
    words = first.split()
    assert words[:2] == ["effdet-keras", "export"] and f"--target {target}" in first
    return words


def files_of(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def shapes_of(path):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    (details,) = interpreter.get_input_details()
    outputs = interpreter.get_output_details()
    return details, outputs


def test_coral_is_int8_that_the_compiler_takes(exported):
    folder, report = exported("coral")
    assert files_of(folder) == {"model.tflite", "labels.txt", "export_report.json"}
    assert (folder / "labels.txt").read_text() == "cat\ndog\nbird\n"
    operations = operations_of(folder / "model.tflite")
    require_compilable(operations)
    floats = {o.name for o in operations if "FLOAT32" in o.types}
    assert floats <= {"DEQUANTIZE", "TFLite_Detection_PostProcess"}
    details, _ = shapes_of(folder / "model.tflite")
    assert details["dtype"] == np.uint8 and tuple(details["shape"]) == (1, 64, 64, 3)
    text = "\n".join(report["notes"])
    assert "stays on the CPU: DEQUANTIZE (2), TFLite_Detection_PostProcess (1)" in text
    assert f"edgetpu_compiler -s -o {folder}" in text
    assert report["target"] == "coral" and report["precision"] == "int8"


def test_coral_names_what_the_compiler_would_refuse():
    operations = [
        Operation("CONV_2D", 6, False, frozenset({"INT8"}), True, 3),
        Operation("ADD", 2, False, frozenset({"INT8"}), False, 1),
        Operation("GELU", 1, False, frozenset({"INT8"}), True, 1),
        Operation("MyOperation", 1, True, frozenset({"INT8"}), True, 1),
    ]
    with pytest.raises(ValueError) as caught:
        require_compilable(operations)
    for part in (
        "CONV_2D is of version 6, above 5",
        "ADD has a shape that is not fixed",
        "GELU is unknown to it",
        "MyOperation is unknown to it",
    ):
        assert part in str(caught.value)


def test_what_stays_on_the_cpu_is_counted():
    operations = [
        Operation("CONV_2D", 3, False, frozenset({"INT8"}), True, 3),
        Operation("MUL", 1, False, frozenset({"FLOAT32"}), True, 2),
        Operation("HARD_SWISH", 1, False, frozenset({"INT8"}), True, 4),
    ]
    assert operations_on_cpu(operations) == ["MUL (2)", "HARD_SWISH (4)"]


@pytest.mark.skipif(os.name == "nt", reason="the stand-in is a shell script")
def test_the_compiler_runs_where_it_is_installed(model, images, tmp_path, monkeypatch):
    compiler = tmp_path / "bin" / "edgetpu_compiler"
    compiler.parent.mkdir()
    compiler.write_text(
        "#!/bin/sh\n"
        'echo "Number of operations that will run on Edge TPU: 240"\n'
        'cp "$4" "$3/model_edgetpu.tflite"\n'
    )
    compiler.chmod(compiler.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(compiler.parent), prepend=os.pathsep)
    report = model.export(
        *(tmp_path / "pets",), target="coral", calibration=images, verbose=0
    )
    assert (tmp_path / "pets" / "model_edgetpu.tflite").is_file()
    assert "will run on Edge TPU: 240" in str(report)
    compiler.write_text("#!/bin/sh\necho internal error\nexit 1\n")
    with pytest.raises(RuntimeError, match="internal error"):
        model.export(tmp_path / "cats", target="coral", calibration=images, verbose=0)
    assert not (tmp_path / "cats").exists()


@pytest.mark.parametrize("target", ["coral", "frigate"])
def test_models_that_an_edge_tpu_cannot_run_are_refused(target, images, tmp_path):
    d0 = EfficientDet.from_preset("efficientdet-d0", image_size=64, max_level=5)
    with pytest.raises(ValueError, match="takes EfficientDet-Lite0 to Lite3"):
        d0.export(tmp_path / "pets", target=target, calibration=images)
    with pytest.raises(ValueError, match=r"calibration=None.*quantize_aware"):
        tiny_model().export(tmp_path / "pets", target=target)
    assert not list(tmp_path.iterdir())


def test_frigate_reads_four_outputs_a_label_map_and_its_configuration(exported):
    folder, report = exported("frigate")
    assert files_of(folder) == {
        *("model.tflite", "labelmap.txt", "frigate.yml", "export_report.json")
    }
    _, outputs = shapes_of(folder / "model.tflite")
    assert [o["name"] for o in outputs] == INT8_OUTPUTS
    assert [tuple(o["shape"]) for o in outputs] == [(1, 20, 4), (1, 20), (1, 20), (1,)]
    assert (folder / "labelmap.txt").read_text() == "0 cat\n1 dog\n2 bird\n"
    yaml = pytest.importorskip("yaml")
    text = (folder / "frigate.yml").read_text()
    configuration = yaml.safe_load(text)
    assert configuration["model"] == {
        "path": "/config/pets/model_edgetpu.tflite",
        "labelmap_path": "/config/pets/labelmap.txt",
        "width": 64,
        "height": 64,
        "input_tensor": "nhwc",
        "input_pixel_format": "rgb",
        "model_type": "ssd",
    }
    assert configuration["objects"]["track"] == ["cat", "dog", "bird"]
    assert text in report["notes"]


def test_frigate_takes_squares_only(images, tmp_path):
    oblong = EfficientDet(tiny_model().config.replace(image_size=(64, 96)))
    with pytest.raises(ValueError, match="models of a square input"):
        oblong.export(tmp_path / "pets", target="frigate", calibration=images)


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("frigate", {"detector": "cpu"}),
        pytest.param("coral", {}, marks=pytest.mark.slow),
        pytest.param("mediapipe", {}, marks=pytest.mark.slow),
    ],
)
def test_a_quantization_aware_model_needs_no_calibration(
    target, options, images, tmp_path
):
    learned = tiny_model().quantize_aware()
    learned(images.astype("float32"), training=True)
    report = learned.export(tmp_path / "pets", target=target, verbose=0, **options)
    assert report.precision == "int8"
    operations = operations_of(tmp_path / "pets" / "model.tflite")
    floats = {o.name for o in operations if "FLOAT32" in o.types}
    assert floats <= {"DEQUANTIZE", "TFLite_Detection_PostProcess"}


def test_files_for_gpus_have_no_custom_operation(exported, model, images):
    compiled = pytest.importorskip("ai_edge_litert.compiled_model")
    folder, report = exported("litert-gpu")
    path = folder / "model.tflite"
    assert not any(o.is_custom for o in operations_of(path))
    assert (
        report["matched"] == report["live_detections"] > 100
    )  # Soft-NMS as in the model
    runner = compiled.CompiledModel.from_file(str(path))
    inputs, outputs = runner.create_input_buffers(0), runner.create_output_buffers(0)
    inputs[0].write(images[:1].astype("float32"))
    runner.run_by_index(0, inputs, outputs)
    found = open_runtime(path).run(images[:1].astype("float32"))
    sizes = [found["boxes"].size, found["labels"].size, found["scores"].size, 1]
    values = [b.read(n, np.float32) for b, n in zip(outputs, sizes)]
    boxes = np.clip(np.reshape(values[0], (-1, 4)) * 64, 0, 64)
    np.testing.assert_allclose(boxes, found["boxes"][0], atol=1e-2)
    np.testing.assert_allclose(values[2], found["scores"][0], atol=1e-4)


def test_tf_serving_gets_a_version_with_requests_that_warm_it_up(exported):
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2

    folder, _ = exported("tf-serving")
    requests = folder / "assets.extra" / "tf_serving_warmup_requests"
    records = [r.numpy() for r in tf.data.TFRecordDataset(str(requests))]
    assert len(records) == 4
    loaded = tf.saved_model.load(str(folder))
    seen = []
    for record in records:
        request = fields(fields(record)[6][0])[1][0]  # PredictLog, its request
        specification, inputs = fields(request)[1][0], fields(request)[2]
        signature = fields(specification)[3][0].decode()
        tensors = {}
        for entry in inputs:
            key, value = fields(entry)[1][0], fields(entry)[2][0]
            proto = tensor_pb2.TensorProto.FromString(value)
            tensors[key.decode()] = tf.constant(tf.make_ndarray(proto))
        outputs = loaded.signatures[signature](**tensors)  # as the server does
        count = len(next(iter(tensors.values())))
        assert all(value.shape[0] == count for value in outputs.values())
        seen.append((signature, count))
    assert sorted(seen) == [
        *(("image_bytes", 1), ("image_bytes", 2)),
        *(("serving_default", 1), ("serving_default", 2)),
    ]


def fields(message):
    """A protobuf message whose fields all have lengths: number to contents."""
    found, place = {}, 0

    def varint():
        nonlocal place
        value, shift = 0, 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(message):
        tag = varint()
        assert tag & 7 == 2
        length = varint()
        found.setdefault(tag >> 3, []).append(message[place : place + length])
        place += length
    return found


def test_tf_serving_needs_a_version(tmp_path):
    with pytest.raises(ValueError, match="ends in the version, a whole number"):
        tiny_model().export(tmp_path / "pets", target="tf-serving")


@pytest.mark.parametrize(
    "backend", ["onnxruntime", pytest.param("tensorflow", marks=pytest.mark.slow)]
)
def test_triton_gets_a_model_of_a_repository(exported, backend, model):
    flags = () if backend == "onnxruntime" else ("--backend", backend)
    folder, report = exported("triton", *flags)
    text = (folder / "config.pbtxt").read_text()
    parse = pytest.importorskip("google.protobuf.text_format")
    assert parse is not None
    assert 'name: "pets"' in text and "max_batch_size: 8" in text
    assert text.count("{") == text.count("}") and text.count("[") == text.count("]")
    assert f"--model-repository={folder.parent}" in report["notes"][0]
    if backend == "onnxruntime":
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(str(folder / "1" / "model.onnx"))
        kinds = {"tensor(float)": "TYPE_FP32", "tensor(int32)": "TYPE_INT32"}
        for tensor in (*session.get_inputs(), *session.get_outputs()):
            dims = ", ".join(map(str, tensor.shape[1:])) or "1"
            expected = (
                f'  name: "{tensor.name}"\n  data_type: {kinds[tensor.type]}\n'
                f"  dims: [ {dims} ]\n"
            )
            assert expected in text
            assert isinstance(tensor.shape[0], str)  # any number of images
    else:
        assert (folder / "1" / "model.savedmodel" / "saved_model.pb").is_file()
        assert "dims: [ -1, -1, 3 ]" in text


def test_what_a_target_chooses_cannot_be_given(model, tmp_path):
    cases = [
        ({"target": "phone"}, ValueError, "`target` must be one of mediapipe"),
        ({"target": "coral", "format": "litert"}, ValueError, "chooses the format"),
        ({"target": "coral", "precision": "float16"}, ValueError, "chooses `precisi"),
        ({"target": "coral", "speed": 3}, TypeError, "has the options calibration"),
        ({"target": "triton", "backend": "torch"}, ValueError, "must be one of"),
    ]
    for arguments, error, message in cases:
        with pytest.raises(error, match=message):
            model.export(tmp_path / "pets", **arguments)
    with pytest.raises(ValueError, match="without the ending '.tflite'"):
        model.export(tmp_path / "pets.tflite", target="coral")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["mediapipe", "coral", "frigate", "browser"])
def test_segmentation_is_refused_where_there_is_no_place(target, images, tmp_path):
    both = tiny_model(heads=BOTH_HEADS)
    with pytest.raises(ValueError, match="models that detect and nothing else"):
        both.export(tmp_path / "pets", target=target)


@pytest.mark.slow
def test_an_export_of_before_is_replaced_and_other_folders_are_not(model, tmp_path):
    folder = tmp_path / "pets"
    model.export(folder, target="browser", verbose=0)
    model.export(folder, target="browser", verbose=0, score_threshold=0.7)
    assert '"threshold": 0.7' in (folder / "index.html").read_text()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not an export"):
        model.export(tmp_path / "mine", target="browser", verbose=0)


def test_the_browser_s_page_names_its_runtime(exported):
    folder, report = exported("browser", "--runtime-address", "ort")
    assert files_of(folder) == {"index.html", "model.onnx", "export_report.json"}
    assert '"runtime": "ort/"' in (folder / "index.html").read_text()
    assert "python -m http.server" in report["notes"][0]


def test_mediapipe_gets_int8_and_is_told_of_its_shape(exported):
    folder, report = exported("mediapipe")
    assert report["precision"] == "int8" and files_of(folder) >= {"model.tflite"}
    assert "stretches images to 64x64" in report["notes"][0]


@pytest.mark.extra_packages
def test_mediapipe_opens_what_is_written_for_it(tmp_path, images):
    mediapipe = pytest.importorskip("mediapipe")
    from mediapipe.tasks import python as tasks

    keras.utils.set_random_seed(0)
    folder = tmp_path / "pets"
    lively_model(backbone=LITE0).export(folder, target="mediapipe", verbose=0)
    options = tasks.vision.ObjectDetectorOptions(
        base_options=tasks.BaseOptions(model_asset_path=str(folder / "model.tflite"))
    )
    with tasks.vision.ObjectDetector.create_from_options(options) as detector:
        image = mediapipe.Image(mediapipe.ImageFormat.SRGB, images[0])
        found = detector.detect(image).detections
    assert {d.categories[0].category_name for d in found} <= {"cat", "dog", "bird"}
    assert found
