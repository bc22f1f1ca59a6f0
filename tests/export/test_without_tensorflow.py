"""Exports on JAX and torch: files of one backend and the target's own package."""

import json

import keras
import numpy as np
import pytest
from support import programs
from support.tiny import LITE0, lively_model, spread_outputs

import effdet_keras as ek
from effdet_keras.extras.targets.frigate import ONNXCheck, OpenVINOCheck

pytestmark = pytest.mark.tensorflow

ENDINGS = ["onnx", "xml", "tflite"]
PROGRAM = programs.SUPPORT / "exports_without_tensorflow.py"


FRIGATE = {"frigate-onnx": ONNXCheck, "frigate-openvino": OpenVINOCheck}


def settled(model, deviation=1.7):
    """The model with outputs of a usual size, of which no two scores are equal.

    With a small deviation of the logits it finds nothing: among the boxes that a large
    network finds in noise the order of suppression would hang on the last digit.
    """
    rng = np.random.default_rng(5)
    for weight in model.weights:
        if weight.path.endswith("moving_variance"):
            weight.assign(rng.uniform(0.5, 1.5, weight.shape))
        elif weight.path.endswith("moving_mean"):
            weight.assign(rng.normal(0.0, 0.1, weight.shape))
    images = noise(model.config.image_size, seed=1)[None]
    spread_outputs(model, images, "class-predict", "class_logits", deviation)
    spread_outputs(model, images, "box-predict", "box_deltas", 0.3)
    return model


def noise(size, seed):
    return np.random.default_rng(seed).integers(0, 256, (*size, 3)).astype("uint8")


def exported(backend, model, folder, endings):
    """What a process of a backend exports and computes: name -> array."""
    model.save(folder / "model.keras")
    np.save(folder / "image.npy", noise(model.config.image_size, seed=2))
    files = folder / "model.keras", folder / "image.npy", folder
    programs.run_alone(PROGRAM, *files, *endings, KERAS_BACKEND=backend)
    with np.load(folder / "outputs.npz") as arrays:
        return dict(arrays)


def assert_equal_outputs(found, model, endings, tolerance):
    batch = noise(model.config.image_size, seed=2)[None].astype("float32")
    for name, value in model(batch, training=False).items():
        expected = keras.ops.convert_to_numpy(value)
        assert expected.std() > 0.1
        for source in ("live", *endings):
            np.testing.assert_allclose(
                found[f"{source}/{name}"],
                expected,
                atol=tolerance,
                err_msg=f"{source}/{name}",
            )


@pytest.mark.extra_packages
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_files_of_other_backends_compute_what_the_model_does(tmp_path, backend):
    pytest.importorskip(backend)
    endings = [*ENDINGS, "pt2"] if backend == "torch" else ENDINGS
    keras.utils.set_random_seed(0)
    model = settled(lively_model((64, 96), backbone=LITE0))
    found = exported(backend, model, tmp_path, endings)
    assert_equal_outputs(found, model, endings, 1e-4)
    # Files with detections open here, and find what the model finds.
    image = noise((64, 96), seed=2)
    for ending in ENDINGS:
        predictor = ek.Predictor.load(tmp_path / f"pets.{ending}")
        live = ek.EfficientDet(model.config, postprocess=predictor.detector.postprocess)
        live.set_weights(model.get_weights())
        expected, detections = live.detect(image, 0.3), predictor.detect(image, 0.3)
        assert len(expected) > 3
        np.testing.assert_allclose(detections.boxes, expected.boxes, atol=0.01)
        np.testing.assert_allclose(detections.scores, expected.scores, atol=1e-4)
        report = json.loads(
            (tmp_path / f"pets.{ending}.export_report.json").read_text()
        )
        assert report["matched"] == report["live_detections"] > 3


@pytest.mark.extra_packages
@pytest.mark.slow  # half a minute of three processes; other formats are quick
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_float_files_for_frigate_are_those_of_tensorflow(tmp_path, backend):
    """Rows of class, score and box, as Frigate reads them, of the same weights."""
    pytest.importorskip(backend)
    keras.utils.set_random_seed(0)
    model = settled(lively_model((64, 64), backbone=LITE0))
    found = exported(backend, model, tmp_path, [*FRIGATE])
    image, names = (
        noise((64, 64), seed=2),
        {"onnx": "model.onnx", "openvino": "model.xml"},
    )
    for name, check in FRIGATE.items():
        folder, detector = tmp_path / "tensorflow" / name, name.partition("-")[2]
        folder.parent.mkdir(exist_ok=True)
        model.export(folder, target="frigate", detector=detector, verbose=0)
        expected = check(folder / names[detector]).rows(image[None])
        assert (expected[:, 1] > 0.4).sum() > 3
        np.testing.assert_allclose(
            found[f"{name}/rows"], expected, atol=1e-4, err_msg=name
        )
        report = json.loads((tmp_path / name / "export_report.json").read_text())
        assert report["matched"] == report["live_detections"] > 3


@pytest.mark.slow
@pytest.mark.extra_packages
@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("name", ["efficientdet-lite0", "efficientdet-d0"])
def test_full_size_files_of_other_backends_are_equal(tmp_path, name, backend):
    pytest.importorskip(backend)
    endings = [*ENDINGS, "pt2"] if backend == "torch" else ENDINGS
    keras.utils.set_random_seed(0)
    model = settled(ek.EfficientDet.from_preset(name, num_classes=90), 0.3)
    found = exported(backend, model, tmp_path, endings)
    assert_equal_outputs(found, model, endings, 1e-4)


REFUSED = """
import sys
sys.modules["tensorflow"] = None
from support.tiny import tiny_model

def error_of(path, **options):
    try:
        tiny_model().export(f"{sys.argv[1]}/{path}", verbose=0, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

import json
print(json.dumps([
    error_of("pets"),
    error_of("coral", target="coral", calibration=sys.argv[1]),
    error_of("frigate", target="frigate", calibration=sys.argv[1]),
    error_of("pets.tflite", precision="dynamic"),
    error_of("pets.tflite", postprocess_ops="builtin"),
]))
"""


@pytest.mark.extra_packages
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_what_needs_tensorflow_names_itself_and_the_cure(tmp_path, backend):
    pytest.importorskip(backend)
    said = programs.run_alone("-c", REFUSED, tmp_path, KERAS_BACKEND=backend)
    errors = json.loads(said.splitlines()[-1])
    starts = ["Exporting to saved_model", "Exporting to coral", "Exporting to frigate"]
    starts += ["precision='dynamic'", "postprocess_ops='builtin'"]
    for error, start in zip(errors, starts, strict=True):
        assert error.startswith(f"InvalidStateError: {start}"), error
        assert f"Keras runs on {backend}" in error
        assert "KERAS_BACKEND=tensorflow" in error
    assert "'float32', 'float16'" in errors[3] and "'custom'" in errors[4]
    assert "`detector='openvino'` or 'onnx'" in errors[2]
    assert "detector" not in errors[1]


@pytest.mark.extra_packages
def test_a_model_on_torch_detects_in_onnxruntime(tmp_path):
    pytest.importorskip("torch")
    code = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "import effdet_keras as ek\n"
        "from support.tiny import tiny_model\n"
        "predictor = ek.Predictor(tiny_model(), runtime='onnx')\n"
        "print(type(predictor.detector.runtime).__name__)"
    )
    said = programs.run_alone("-c", code, KERAS_BACKEND="torch")
    assert said.split()[-1] == "ONNXRuntime"
