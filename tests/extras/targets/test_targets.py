"""Each target's page is run as it stands, and what it wrote is used."""

import json
import pathlib
import re
import shlex
import shutil
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from support.target_pages import commands_of
from support.tiny import BOTH_HEADS, tiny_model

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.cli import files
from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.export.registry import TARGETS, target_to_write
from effdet_keras.extras.targets import tflite
from effdet_keras.extras.targets.builtin_postprocess import (
    builtin_operations,
    nearest_postprocess,
)
from effdet_keras.network.anchors import anchors_of

pytestmark = pytest.mark.tensorflow


def report_of(folder):
    return json.loads((folder / "export_report.json").read_text())


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(40, 200, (64, 64, 3), "uint8")


def test_coral_is_int8_with_a_note_on_its_compiler(exported):
    pytest.importorskip("ai_edge_litert")
    folder = exported("coral")
    assert (folder / "labels.txt").read_text() == "cat\ndog\nbird\n"
    report = report_of(folder)
    assert (report["target"], report["precision"]) == ("coral", "int8")
    (note,) = report["notes"]
    assert "edgetpu_compiler -s -o" in note


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A stand-in for `edgetpu_compiler` that copies the file, or fails."""

    def install(status=0):
        script = tmp_path / "edgetpu_compiler"
        script.write_text(
            "#!/bin/sh\n"
            'echo "Number of operations that will run on CPU: 3"\n'
            'cp "$4" "$3/model_edgetpu.tflite"\n'
            f"exit {status}\n"
        )
        script.chmod(0o755)
        monkeypatch.setattr(shutil, "which", lambda name: str(script))

    return install


def test_the_compiler_of_coral_runs_where_it_is_installed(exported, compiler, tmp_path):
    pytest.importorskip("ai_edge_litert")
    shutil.copy(exported("coral") / "model.tflite", tmp_path)
    compiler()
    notes = tflite.compile_for_edge_tpu(tmp_path, pathlib.Path("out"))
    assert (tmp_path / "model_edgetpu.tflite").is_file()
    assert notes == (
        "  compiled: model_edgetpu.tflite",
        "  Number of operations that will run on CPU: 3",
    )
    compiler(status=1)
    with pytest.raises(ek.errors.InvalidStateError, match="could not compile"):
        tflite.compile_for_edge_tpu(tmp_path, pathlib.Path("out"))


def test_a_file_for_gpus_runs_in_compiled_model_with_the_models_detections(
    exported, model, image
):
    compiled_model = pytest.importorskip("ai_edge_litert.compiled_model")
    path = exported("litert-gpu") / "model.tflite"
    compiled = compiled_model.CompiledModel.from_file(str(path))
    inputs, outputs = (
        compiled.create_input_buffers(0),
        compiled.create_output_buffers(0),
    )
    inputs[0].write(image[None].astype("float32"))
    compiled.run_by_index(0, inputs, outputs)
    details = compiled.get_output_tensor_details("serving_default")
    found = {
        name: buffer.read(int(np.prod(detail["shape"])), np.float32)
        for (name, detail), buffer in zip(details.items(), outputs)
    }
    expected = model.detect(image)
    assert len(expected) > 5
    # The weights are rounded to float16, which moves the scores by less than this.
    np.testing.assert_allclose(
        np.sort(found["scores"])[::-1][: len(expected)][:5],
        np.sort(expected.scores)[::-1][:5],
        atol=0.02,
    )


def test_built_in_operations_compute_the_models_postprocess():
    config = ek.EfficientDetConfig.from_name("efficientdet-lite0")
    config = config.replace(image_size=64, max_level=5, num_classes=3)
    anchors, rng = anchors_of(config), np.random.default_rng(0)
    raw = {
        "class_logits": rng.normal(-2, 3, (1, len(anchors), 3)).astype("float32"),
        "box_deltas": rng.normal(0, 0.5, (1, len(anchors), 4)).astype("float32"),
    }
    for wanted in (
        Postprocess(per_class=True, clip=False, drop_empty=False),
        Postprocess(method="hard", per_class=False, clip=False, drop_empty=False),
        Postprocess(method="hard", pre_nms_top_k=0, clip=False, drop_empty=False),
    ):
        postprocess = nearest_postprocess(wanted)
        function = builtin_operations(postprocess, config)
        boxes, classes, scores, count = function(
            tf.convert_to_tensor(raw["box_deltas"]),
            tf.convert_to_tensor(raw["class_logits"]),
        )
        expected = postprocess(raw, anchors, config.image_size, config.box_scales)
        expected = {k: keras.ops.convert_to_numpy(v) for k, v in expected.items()}
        rows = int(expected["num_detections"][0])
        assert rows > 5 and int(count[0]) == rows, wanted
        np.testing.assert_allclose(scores, expected["scores"], atol=1e-5)
        np.testing.assert_allclose(
            boxes[0, :rows] * 64, expected["boxes"][0, :rows], atol=1e-3
        )
        np.testing.assert_array_equal(classes[0, :rows], expected["labels"][0, :rows])


@pytest.mark.slow
def test_tf_serving_gets_a_version(exported, image):
    folder = exported("tf-serving")
    assert folder.parts[-3:] == ("models", "pets", "1")
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    assert len(served(images=tf.constant(image[None]))["num_detections"]) == 1


@pytest.mark.smoke
def test_triton_gets_a_repository_whose_configuration_fits_the_file(exported):
    onnxruntime = pytest.importorskip("onnxruntime")
    folder = exported("triton")
    assert (folder / "labels.txt").read_text() == "cat\ndog\nbird\n"
    text = (folder / "config.pbtxt").read_text()
    assert 'name: "pets"' in text and "max_batch_size: 8" in text
    assert 'platform: "onnxruntime_onnx"' in text
    session = onnxruntime.InferenceSession(folder / "1" / "model.onnx")
    kinds = {"tensor(float)": "TYPE_FP32", "tensor(int32)": "TYPE_INT32"}
    tensors = [*session.get_inputs(), *session.get_outputs()]
    told = re.findall(
        r'name: "(\w+)"\n  data_type: (\w+)\n  dims: \[ ([\d, ]+) \]', text
    )
    assert len(told) == len(tensors) == 5
    for name, kind, dims in told:
        tensor = next(t for t in tensors if t.name == name)
        assert kinds[tensor.type] == kind
        # The batch is no part of it; Triton knows no tensor without dimensions.
        assert [int(d) for d in dims.split(",")] == (tensor.shape[1:] or [1])


def test_a_predictor_opens_the_folder_of_a_target(exported, model, image):
    pytest.importorskip("onnxruntime")
    found = ek.Predictor.load(exported("triton")).detect(image, 0.5)
    expected = model.detect(image, 0.5)
    assert len(expected) > 3
    np.testing.assert_array_equal(found.labels, expected.labels)


@pytest.mark.parametrize(
    ("target", "format", "file"),
    [
        ("hailo", "hailo", ""),
        ("frigate", "onnx", ""),
        ("imx500", "imx500", "model.onnx"),
    ],
)
def test_a_predictor_says_of_what_target_a_file_is(tmp_path, target, format, file):
    pytest.importorskip("onnxruntime")
    (tmp_path / "model.onnx").write_bytes(b"without a checksum")
    told = json.dumps({"target": target, "format": format})
    (tmp_path / "export_report.json").write_text(told)
    with pytest.raises(ValueError, match=f"export for '{target}'.*without `target`"):
        ek.Predictor.load(tmp_path / file)


def test_an_option_of_none_is_the_default(model, tmp_path):
    pytest.importorskip("onnxruntime")
    options = {"target": "triton", "max_batch_size": None, "verbose": 0}
    model.export(tmp_path / "pets", **options)
    assert "max_batch_size: 8\n" in (tmp_path / "pets" / "config.pbtxt").read_text()


@pytest.mark.parametrize("target", TARGETS)
def test_every_command_of_a_page_is_one_that_the_target_takes(target, monkeypatch):
    """The first is run above, where the target is tested."""
    checked = []

    class Model:
        def export(self, out, format, *, images, target, **options):
            path = pathlib.Path(out)
            checked.append(target_to_write(path, target, format, options).name)

    monkeypatch.setattr(files, "open_live_model", lambda model: Model())
    monkeypatch.setattr(files.DatasetSource, "load", lambda *_: [])
    for line in commands_of(target):
        assert cli.main(shlex.split(line)[1:]) == 0
    assert checked and set(checked) == {target}


@pytest.mark.parametrize(
    "target, path, options, message",
    [
        ("phone", "out", {}, "`target` must be one of .mediapipe., .coral."),
        ("coral", "out", {"format": "onnx"}, "chooses the format itself"),
        ("coral", "out.tflite", {}, "writes a folder"),
        ("coral", "out", {}, "needs images of the kind"),
        ("frigate", "out", {"detector": "tpu"}, "`detector` must be one of"),
        ("tf-serving", "out", {}, r"such as '.*out/1'"),
        ("triton", "out", {"max_batch_size": 0}, "a whole number of at least 1"),
    ],
)
def test_what_a_target_refuses_is_told(model, tmp_path, target, path, options, message):
    with pytest.raises(ValueError, match=message):
        model.export(tmp_path / path, target=target, **options)
    assert not list(tmp_path.iterdir())


def refused(target, tmp_path, **fields):
    """What a target says to a model with these fields of its config: no network."""
    config = ek.EfficientDetConfig.from_name("efficientdet-lite0").replace(**fields)
    write = TARGETS[target].load_writer()
    with pytest.raises(ValueError) as error:
        write(SimpleNamespace(config=config), tmp_path, tmp_path, **given(target))
    assert not list(tmp_path.iterdir())
    return str(error.value)


def given(target):
    needs_images = target in ("coral", "frigate", "hailo", "imx500")
    return {"calibration": ["x.jpg"]} if needs_images else {}


@pytest.mark.parametrize(
    "target",
    [
        "mediapipe",
        "coral",
        "frigate",
        "litert-npu",
        "imx500",
        "browser",
        "ncnn",
        "mnn",
        "executorch",
        "coreml",
        "tensorrt",
    ],
)
def test_targets_of_boxes_refuse_a_segmentation_head(tmp_path, target):
    message = refused(target, tmp_path, heads=BOTH_HEADS)
    assert "models that have just a detection head" in message


@pytest.mark.parametrize("target", ["coral", "frigate"])
@pytest.mark.parametrize("backbone", ["efficientnet-b0", "efficientnet-lite4"])
def test_the_edge_tpu_refuses_other_backbones(tmp_path, target, backbone):
    message = refused(target, tmp_path, backbone=backbone)
    assert "Lite0 to Lite3" in message and backbone in message
    message = refused(target, tmp_path, activation="swish")
    assert "activation='swish'" in message
    message = refused(target, tmp_path, backbone_activation="swish")
    assert "backbone_activation='swish'" in message


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("frigate", {"detector": "cpu"}),
        pytest.param("coral", {}, marks=pytest.mark.slow),
        pytest.param("mediapipe", {}, marks=pytest.mark.slow),
    ],
)
def test_a_quantization_aware_model_needs_no_calibration(target, options, tmp_path):
    learned = tiny_model().quantize_aware()
    pixels = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3))
    learned(pixels.astype("float32"), training=True)
    report = learned.export(tmp_path / "pets", target=target, verbose=0, **options)
    assert report.precision == "int8"
