"""The files for each of Frigate's detectors, run and read as Frigate does it."""

import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import yaml
from support.target_pages import blocks_of
from support.tiny import spread, tiny_model

import effdet_keras as ek
from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.export.registry import TARGETS
from effdet_keras.export.runtime import open_runtime
from effdet_keras.extras.targets import frigate

pytestmark = pytest.mark.tensorflow
NAMES = ("cat", "dog", "bird")
OVERLAP = 0.3  # above which a box suppresses another


@pytest.fixture(scope="module")
def scaled_model():
    """A detector with `box_scales` and an overlap as of no preset."""
    keras.utils.set_random_seed(0)
    config = tiny_model().config.replace(box_scales=(9.0, 10.0, 4.0, 5.0))
    postprocess = Postprocess(iou_threshold=OVERLAP)
    model = ek.EfficientDet(config, class_names=NAMES, postprocess=postprocess)
    return spread(model)


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(40, 200, (64, 64, 3), "uint8")


def expected_of(model, image, lowest=0.4):
    """What the model itself finds with the suppression that the files have."""
    outputs = model(image[None].astype("float32"), training=False)
    outputs = {n: keras.ops.convert_to_numpy(v) for n, v in outputs.items()}
    postprocess = Postprocess(
        method="hard",
        max_detections=20,
        score_threshold=lowest,
        iou_threshold=OVERLAP,
        pre_nms_top_k=None,
    )
    config = model.config
    found = postprocess(outputs, model.anchors, config.image_size, config.box_scales)
    count = int(found["num_detections"][0])
    return {n: v[0][:count] for n, v in found.items() if n != "num_detections"}


@pytest.mark.slow
def test_tflite_gives_outputs_labels_and_configuration(exported, image):
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    folder = exported("frigate")
    configuration = yaml.safe_load((folder / "frigate.yml").read_text())
    assert configuration["detectors"]["edgetpu_detector"]["type"] == "edgetpu"
    assert configuration["model"]["path"] == "/config/pets/model_edgetpu.tflite"
    assert (configuration["model"]["width"], configuration["model"]["height"]) == (
        64,
        64,
    )
    assert configuration["objects"]["track"] == ["cat", "dog", "bird"]
    assert (folder / "labelmap.txt").read_text() == "0 cat\n1 dog\n2 bird\n"
    report = json.loads((folder / "export_report.json").read_text())
    assert (folder / "frigate.yml").read_text() in report["notes"]
    of_file = open_runtime(folder / "model.tflite").description.postprocess
    assert not of_file.per_class  # the page and the notes say so
    assert "boxes of all classes" in " ".join(report["notes"])
    # As frigate/detectors/plugins/cpu_tfl.py reads the file.
    interpreter = litert.Interpreter(str(folder / "model.tflite"))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image[None])
    interpreter.invoke()
    boxes, classes, scores, count = (
        interpreter.get_tensor(detail["index"])[0]
        for detail in interpreter.get_output_details()
    )
    assert boxes.shape == (20, 4) and scores.shape == (20,)
    assert 0 < count <= 20 and set(classes[: int(count)]) <= {0, 1, 2}
    assert min(scores[: int(count)]) >= 0.4


@pytest.mark.parametrize("lowest", [0.4, 0.975])
def test_openvino_gives_the_rows_of_the_model_type_ssd(
    scaled_model, image, tmp_path, lowest
):
    openvino = pytest.importorskip("openvino")
    folder = tmp_path / "pets"
    report = scaled_model.export(
        folder,
        target="frigate",
        detector="openvino",
        score_threshold=lowest,
        verbose=0,
    )
    assert (report.format, report.precision) == ("openvino", "float32")
    assert report.live_detections == report.matched > 5
    # The file as Frigate runs it: compiled as it is, one input, one output, of fixed
    # shapes; pixels are copied into a tensor of the file's own type.
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(folder / "model.xml", "CPU", options)
    ((source,), (output,)) = compiled.inputs, compiled.outputs
    assert source.get_element_type() == openvino.Type.u8
    assert list(source.get_shape()) == [1, 64, 64, 3]
    assert list(output.get_shape()) == [1, 1, 20, 7]
    rows = np.array(compiled(image[None])[output])[0, 0]
    expected = expected_of(scaled_model, image, lowest)
    count = len(expected["scores"])
    assert 3 < count < (20 if lowest > 0.5 else 21)
    np.testing.assert_allclose(rows[:count, 2], expected["scores"], atol=1e-5)
    np.testing.assert_array_equal(rows[:count, 1], expected["labels"])
    xyxy = expected["boxes"][:, [1, 0, 3, 2]] / 64
    np.testing.assert_allclose(rows[:count, 3:], xyxy, atol=1e-5)
    assert not rows[count:].any()  # a score of 0, at which Frigate stops


def test_onnx_gives_the_rows_of_the_model_type_yolonas(scaled_model, image, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    folder = tmp_path / "pets"
    report = scaled_model.export(
        folder, target="frigate", detector="onnx", score_threshold=0.975, verbose=0
    )
    assert report.live_detections == report.matched > 5
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    (source,), (output,) = session.get_inputs(), session.get_outputs()
    assert (source.type, source.shape) == ("tensor(uint8)", [1, 64, 64, 3])
    assert output.shape == [20, 7]
    (rows,) = session.run(None, {source.name: image[None]})
    expected = expected_of(scaled_model, image, 0.975)
    count = len(expected["scores"])
    assert 3 < count < 20
    xyxy = expected["boxes"][:, [1, 0, 3, 2]]  # pixels
    np.testing.assert_allclose(rows[:count, 1:5], xyxy, atol=1e-3)
    np.testing.assert_allclose(rows[:count, 5], expected["scores"], atol=1e-5)
    np.testing.assert_array_equal(rows[:count, 6], expected["labels"])
    assert not rows[:, 0].any()
    assert (rows[count:, 6] == -1).all()  # at which Frigate stops


def test_the_suppression_is_openvinos_whatever_the_models_is():
    """Hard, per class, of all boxes, 20 of them, clipped: as DetectionOutput does."""
    own = Postprocess(
        max_detections=7,
        iou_threshold=0.3,
        method="gaussian",
        pre_nms_top_k=10,
        per_class=False,
        clip=False,
        max_detections_per_class=2,
        drop_empty=True,
        score_threshold=0.1,
    )
    model = SimpleNamespace(postprocess=own)
    for given, lowest in ((None, 0.4), (0.0, 0.0), (0.7, 0.7)):
        found = frigate._hard_postprocess(model, given)
        assert found == Postprocess(
            max_detections=20,
            iou_threshold=0.3,
            method="hard",
            pre_nms_top_k=None,
            score_threshold=lowest,
        )


@pytest.mark.parametrize("detector", ["openvino", "onnx"])
def test_the_configuration_names_file_and_model_type(
    scaled_model, tmp_path, monkeypatch, detector
):
    written = {
        "openvino": ("model.xml", "ssd", {"type": "openvino", "device": "CPU"}),
        "onnx": ("model.onnx", "yolonas", {"type": "onnx"}),
    }
    file, model_type, wanted = written[detector]
    nothing = frigate.Written(tmp_path, detector)
    monkeypatch.setattr(frigate, f"_write_{detector}", lambda *_: nothing)
    done = frigate.write_frigate(
        scaled_model, tmp_path, tmp_path / "pets", detector=detector
    )
    text = (tmp_path / "frigate.yml").read_text()
    configuration = yaml.safe_load(text)
    assert configuration["detectors"] == {f"{detector}_detector": wanted}
    assert configuration["model"] == {
        "path": f"/config/pets/{file}",
        "labelmap_path": "/config/pets/labelmap.txt",
        "width": 64,
        "height": 64,
        "input_tensor": "nhwc",
        "input_pixel_format": "rgb",
        "model_type": model_type,
    }
    assert (tmp_path / "labelmap.txt").read_text() == "0 cat\n1 dog\n2 bird\n"
    assert done.notes[-1] == text


def test_the_page_shows_what_the_target_writes():
    shown = blocks_of("frigate", "yaml")
    for detector in ("edgetpu", "openvino"):
        text = frigate._configuration("pets", detector, (320, 320), NAMES)
        assert text in shown
    quoted = frigate._configuration("it's", "cpu", (64, 64), ("a: b",))
    read = yaml.safe_load(quoted)
    assert read["model"]["path"] == "/config/it's/model.tflite"
    assert read["objects"]["track"] == ["a: b"]


def test_float_files_take_no_images_to_calibrate_with(scaled_model, tmp_path):
    with pytest.raises(
        ValueError, match="needs no `calibration`.*`detector='edgetpu'`"
    ):
        scaled_model.export(
            tmp_path / "pets", target="frigate", detector="onnx", calibration=["x.jpg"]
        )
    assert not list(tmp_path.iterdir())


def test_a_quantization_aware_model_is_compared_as_the_file_computes():
    target = TARGETS["frigate"]
    assert target.is_int8({}) and target.is_int8({"detector": "cpu"})
    assert not target.is_int8({"detector": "openvino"})
    assert not target.is_int8({"detector": "onnx"})
    assert not TARGETS["coreml"].is_int8({})


def test_the_check_reads_rows_until_the_first_low_score():
    description = frigate.Description(
        ek.EfficientDetConfig(num_classes=3),
        postprocess=Postprocess(score_threshold=0.4),
    )
    rows = np.zeros((20, 6), "float32")
    rows[:4, 0], rows[:4, 1] = [2, 0, 1, 1], [0.9, 0.4, 0.3, 0.8]
    kept = frigate._tracked(rows, description)
    np.testing.assert_array_equal(kept, rows[:2])
    rows[:, 1] = 0.5
    assert len(frigate._tracked(rows, description)) == 20
    rows[1, 0] = 3
    with pytest.raises(ValueError, match="classes that the model does not have"):
        frigate._tracked(rows, description)
