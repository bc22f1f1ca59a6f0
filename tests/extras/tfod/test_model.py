"""The TF Object Detection API's EfficientDet, as a model of ours."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops
from support import tfod_files
from support.odapi import odapi_path

from effdet_keras.detect.detect import letterboxed
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.runs.requested import build_configuration
from effdet_keras.weights.network_arrays import tf1_name

tf = pytest.importorskip("tensorflow")

SIZES = {"a": (200, 200), "b": (150, 240)}
# The golden's means over many pixels are sums by TensorFlow, one pixel after another.
# The sums of JAX and torch round less: their logits differ by up to 3.3e-4.
ROUNDING = 1 if keras.backend.backend() == "tensorflow" else 10


@pytest.fixture(scope="module")
def golden_model():
    """D0 of the exporter's folder, at 256 pixels."""
    return EfficientDet.from_preset(
        "efficientdet-d0", weights=odapi_path("d0_256"), verbose=0
    )


@pytest.fixture(scope="module")
def outputs():
    return np.load(odapi_path("d0_256/outputs.npz"))


def assert_detections(found, outputs, prefix, sides, window=(np.inf, np.inf)):
    count = int(outputs[f"{prefix}/num_detections"][0])
    boxes = outputs[f"{prefix}/detection_boxes"][0, :count] * np.tile(sides, 2)
    # A box beside the image, which only `combined` keeps, begins behind its end there.
    boxes = np.minimum(boxes, np.tile(window, 2))
    scores = outputs[f"{prefix}/detection_scores"][0, :count]
    labels = outputs[f"{prefix}/detection_classes"][0, :count]
    assert len(found.scores) == count
    np.testing.assert_allclose(found.scores, scores, atol=1e-5 * ROUNDING)
    np.testing.assert_array_equal(found.labels, labels)
    # 1e-5 of the image, as for raw boxes.
    atol = 1e-5 * max(sides) * ROUNDING
    np.testing.assert_allclose(found.boxes, boxes, atol=atol, rtol=1e-5)


@pytest.mark.parametrize("name", SIZES)
def test_raw_outputs_and_detections_are_those_of_the_reference(
    golden_model, outputs, name
):
    model, rows = golden_model, outputs["rows"]
    pixels, _ = letterboxed(model.config, outputs[f"{name}/picture"])
    images = (pixels - np.float32(model.config.mean_rgb)) / np.float32(
        model.config.stddev_rgb
    )
    np.testing.assert_allclose(
        images, outputs[f"{name}/preprocessed"][0], rtol=0, atol=1e-6
    )
    raw = {n: ops.convert_to_numpy(v) for n, v in model(pixels[None]).items()}
    logits = raw["class_logits"]
    expected = outputs[f"{name}/class_predictions_rows"]
    tolerance = 1e-4 * ROUNDING
    np.testing.assert_allclose(logits[:, rows], expected, rtol=1e-4, atol=tolerance)
    best = outputs[f"{name}/class_predictions_argmax"].astype(int)[..., None]
    best = np.take_along_axis(logits, best, axis=-1)[..., 0]
    np.testing.assert_allclose(best, logits.max(axis=-1), rtol=0, atol=tolerance)
    codes = outputs[f"{name}/box_encodings"]
    np.testing.assert_allclose(raw["box_deltas"], codes, rtol=1e-4, atol=tolerance)
    np.testing.assert_allclose(model.anchors / 256, outputs["anchors"], atol=2.5e-7)
    found = model.detect(outputs[f"{name}/picture"], score_threshold=0)
    assert_detections(found, outputs, f"{name}/detections", SIZES[name])


VARIANTS = {
    "score_threshold": {
        "score_threshold": 0.2,
        "max_detections": 30,
        "max_detections_per_class": 5,
    },
    "soft_nms": {"method": "gaussian", "sigma": 1.0, "score_threshold": 0.1},
    "class_agnostic": {
        "per_class": False,
        "pre_nms_top_k": 0,
        "score_threshold": 0.1,
        "iou_threshold": 0.4,
    },
    "static": {"score_threshold": 0.2},
    "padded_frame": {"iou_threshold": 0.6},
    "combined": {"drop_empty": False},
}
# These have `change_coordinate_frame: false`: boxes are relative to the padded square.
IN_THE_SQUARE = ("padded_frame", "combined")


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_detections_of_other_settings(golden_model, outputs, variant):
    usual = golden_model.postprocess
    try:
        golden_model.postprocess = dataclasses.replace(usual, **VARIANTS[variant])
        found = golden_model.detect(outputs["b/picture"], score_threshold=0)
    finally:
        golden_model.postprocess = usual
    sides = (max(SIZES["b"]),) * 2 if variant in IN_THE_SQUARE else SIZES["b"]
    window = SIZES["b"] if variant == "combined" else (np.inf, np.inf)
    assert_detections(found, outputs, f"b/variants/{variant}", sides, window)


@pytest.mark.slow
def test_box_scales_are_those_of_the_config(outputs, tmp_path):
    text = odapi_path("d0_256/pipeline.config").read_text()
    for name, scale in (("y", 10), ("x", 10), ("height", 5), ("width", 5)):
        text = text.replace(f"{name}_scale: {scale}.0", f"{name}_scale: 1.0")
    (tmp_path / "pipeline.config").write_text(text)
    model = EfficientDet.from_preset(
        "efficientdet-d0",
        weights=odapi_path("d0_256") / "checkpoint" / "ckpt-0",
        pipeline_config=tmp_path,
        verbose=0,
    )
    assert model.config.box_scales == (1.0,) * 4
    found = model.detect(outputs["b/picture"], score_threshold=0)
    assert_detections(found, outputs, "b/variants/zoo_box_scales", SIZES["b"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An exported model with two classes that have names, of random weights."""
    folder = tmp_path_factory.mktemp("model")
    keras.utils.set_random_seed(1)
    model = EfficientDet(tfod_files.SMALL)
    values = {tf1_name(v): ops.convert_to_numpy(v) for v in model.weights}
    arrays = tfod_files.tfod_arrays(tfod_files.SMALL, values)
    entries = {f"model/{name}": value for name, value in arrays.items()}
    tfod_files.write_by_name(folder / "checkpoint" / "ckpt-0", entries)
    (folder / "pipeline.config").write_text(tfod_files.pipeline_text(tfod_files.SMALL))
    items = "item { id: 1 name: 'cat' } item { id: 2 name: 'dog' }"
    (folder / "labels.pbtxt").write_text(items)
    return folder


def test_a_model_of_a_pipeline_config(folder, capsys, tmp_path):
    path = folder / "pipeline.config"
    model = EfficientDet.from_pipeline_config(path, weights=folder)
    told = capsys.readouterr().out
    assert "Differences from" in told
    assert model.class_names == ("cat", "dog") and model.category_ids == (1, 2)
    assert model.config.anchor_order == "aspect_first"
    assert model.settings.recipe.optimizer["name"] == "momentum"
    assert model.postprocess.drop_empty and model.postprocess.method == "hard"

    same = EfficientDet.from_preset("efficientdet-d0", weights=folder, verbose=0)
    assert same.config == model.config and same.postprocess == model.postprocess
    image = np.random.default_rng(0).integers(0, 255, (90, 121, 3), "uint8")
    found = model.detect(image, score_threshold=0)
    again = same.detect(image, score_threshold=0)
    np.testing.assert_array_equal(found.boxes, again.boxes)
    assert (found.boxes[:, 2:] > found.boxes[:, :2]).all()

    model.save(tmp_path / "model.keras")
    saved = EfficientDet.from_archive(tmp_path / "model.keras")
    assert saved.config == model.config and saved.postprocess == model.postprocess
    loaded = saved.detect(image, score_threshold=0)
    np.testing.assert_array_equal(loaded.scores, found.scores)

    with pytest.raises(ValueError, match="anchor_order='aspect_first'"):
        model.export_checkpoint(tmp_path / "d0", format="automl-tf1")


def test_other_classes_take_over_what_both_name(folder, capsys):
    path = folder / "pipeline.config"
    model = EfficientDet.from_pipeline_config(
        path, weights=folder, class_names=["bird", "dog", "cow"]
    )
    assert model.num_classes == 3
    assert "carried over by name: dog" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.tensorflow
def test_an_export_has_all_outputs_of_that_of_the_api(tmp_path):
    expected = np.load(odapi_path("d0_256/exported.npz"))
    model = EfficientDet.from_pipeline_config(
        odapi_path("d0_256/pipeline.config"), weights=odapi_path("d0_256"), verbose=0
    )
    path = tmp_path / "saved_model"
    model.export(path, names="tfod", verbose=0)
    loaded = tf.saved_model.load(str(path))
    pixels = expected["picture"][None]
    inputs = {
        "image_tensor": pixels,
        "float_image_tensor": pixels.astype("float32"),
        "encoded_image_string_tensor": [expected["png"].tobytes()],
        "tf_example": [expected["tf_example"].tobytes()],
    }
    inputs["serving_default"] = inputs["image_tensor"]
    for name, value in inputs.items():
        found = loaded.signatures[name](input_tensor=tf.constant(value))
        assert len(found) == 8
        golden = "tf_example" if name == "serving_default" else name
        for output, values in found.items():
            assert values.dtype == tf.float32
            key = f"{golden}/{output}"
            if output == "raw_detection_scores":
                values, key = values.numpy()[:, expected["rows"]], f"{key}_rows"
            if key in expected:
                np.testing.assert_allclose(values, expected[key], atol=1e-5)


def _with_training(folder, train="", rewriter=""):
    """A `pipeline.config` beside that of the exported model, with more fields."""
    text = (folder / "pipeline.config").read_text()
    assert "train_config: {" in text
    text = text.replace("train_config: {", f"train_config: {{ {train}", 1) + rewriter
    path = folder / "train.config"
    path.write_text(text)
    return path


def _weights_named(model, part):
    found = [w for w in model.weights if part in w.path and w.path.endswith("kernel")]
    return ops.convert_to_numpy(found[0])


def test_the_model_starts_from_the_checkpoint_that_the_file_names(folder, capsys):
    checkpoint = folder / "checkpoint" / "ckpt-0"
    trained = EfficientDet.from_preset("efficientdet-d0", weights=folder, verbose=0)
    for kind, has_heads in (("full", True), ("detection", False)):
        start = f"fine_tune_checkpoint: '{checkpoint}' fine_tune_checkpoint_type: "
        path = _with_training(folder, f"{start}'{kind}'")
        model = EfficientDet.from_pipeline_config(path)
        told = capsys.readouterr().out
        assert "Loaded" in told and "Differences from" in told
        for part, is_loaded in (("fpn_cells", True), ("class-predict", has_heads)):
            pair = [_weights_named(one, part) for one in (model, trained)]
            assert np.array_equal(*pair) == is_loaded, (kind, part)
        assert build_configuration(None, None, {}, path).weights == str(checkpoint)
    other = EfficientDet.from_pipeline_config(path, weights="none", verbose=0)
    pair = [_weights_named(one, "fpn_cells") for one in (other, trained)]
    assert not np.array_equal(*pair)


def test_the_model_starts_from_a_classifier_as_the_published_configs_do(folder):
    checkpoint = tf.train.load_checkpoint(str(folder / "checkpoint" / "ckpt-0"))
    start, end = "model/_feature_extractor/_efficientnet/", "/.ATTRIBUTES/"
    values = {
        f"feature_extractor/{key.removeprefix(start).partition(end)[0]}": (
            checkpoint.get_tensor(key)
        )
        for key in checkpoint.get_variable_to_shape_map()
        if key.startswith(start)
    }
    tfod_files.write_by_name(folder / "classifier" / "ckpt-0", values)
    path = _with_training(
        folder,
        f"fine_tune_checkpoint: '{folder / 'classifier' / 'ckpt-0'}' "
        "fine_tune_checkpoint_type: 'classification'",
    )
    model = EfficientDet.from_pipeline_config(path, verbose=0)
    detector = EfficientDet.from_preset("efficientdet-d0", weights=folder, verbose=0)
    for part, is_loaded in (("efficientnet", True), ("fpn_cells", False)):
        pair = [_weights_named(one, part) for one in (model, detector)]
        assert np.array_equal(*pair) == is_loaded, part
    assert model.pretrained == "backbone" and model.class_names == ("cat", "dog")


def test_a_missing_checkpoint_of_the_file_stops_model_and_run_alike(folder):
    start = "fine_tune_checkpoint: 'nowhere/ckpt-0'"
    path = _with_training(folder, start)
    words = "`fine_tune_checkpoint` that does not exist: 'nowhere/ckpt-0'"
    with pytest.raises(FileNotFoundError, match=words):
        EfficientDet.from_pipeline_config(path)
    with pytest.raises(FileNotFoundError, match=words):
        build_configuration(None, None, {}, path)
    for weights in (None, "none", folder):
        model = EfficientDet.from_pipeline_config(path, weights=weights, verbose=0)
        assert model.class_names == ("cat", "dog")


@pytest.mark.tensorflow
def test_a_graph_rewriter_makes_the_model_quantization_aware(folder):
    rewriter = "graph_rewriter { quantization { delay: 600 %s } }"
    path = _with_training(folder, rewriter=rewriter % "")
    model = EfficientDet.from_pipeline_config(path, verbose=0)
    assert model.quantization.delay == 600
    assert model.settings.recipe.optimizer["name"] == "momentum"
    assert build_configuration(None, None, {}, path).quantization == {"delay": 600}
    path = _with_training(folder, rewriter=rewriter % "weight_bits: 4")
    with pytest.raises(ValueError, match="weight_bits=4: weights always have 8 bits"):
        EfficientDet.from_pipeline_config(path, verbose=0)
