"""A Core ML package: its specification, and its program computed without Core ML."""

import json
import math

import keras
import numpy as np
import pytest
from support.tiny import spread, tiny_model

from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.extras.targets import coreml
from effdet_keras.network.config import TIMM_BACKBONE

pytestmark = [pytest.mark.tensorflow, pytest.mark.extra_packages]


@pytest.fixture(scope="module")
def package(exported):
    pytest.importorskip("coremltools")
    pytest.importorskip("onnxruntime")
    return exported("coreml") / "model.mlpackage"


@pytest.fixture(scope="module")
def spec(package):
    import coremltools

    return coremltools.models.MLModel(str(package), skip_model_load=True).get_spec()


def test_the_package_is_a_detector_for_vision(package, spec, model):
    image, *thresholds = spec.description.input
    assert image.name == "image"
    size = image.type.imageType.height, image.type.imageType.width
    assert size == model.config.image_size
    rgb = image.type.imageType.DESCRIPTOR.fields_by_name["colorSpace"].enum_type
    assert image.type.imageType.colorSpace == rgb.values_by_name["RGB"].number
    assert [t.name for t in thresholds] == ["iouThreshold", "confidenceThreshold"]
    assert all(t.type.isOptional for t in thresholds)
    network, suppression = spec.pipeline.models
    given = {
        f.name: list(f.type.multiArrayType.shape) for f in network.description.output
    }
    count = len(model.anchors)
    assert given == {"raw_confidence": [count, 3], "raw_coordinates": [count, 4]}
    stage = suppression.nonMaximumSuppression
    assert list(stage.stringClassLabels.vector) == ["cat", "dog", "bird"]
    assert (stage.iouThreshold, stage.pickTop.perClass) == (0.5, True)
    assert stage.confidenceThreshold == 0.001
    outputs = [feature.name for feature in spec.description.output]
    assert outputs == ["confidence", "coordinates"]
    # iOS 15, as coremltools' table of versions has it.
    assert spec.specificationVersion == 6


def test_the_report_compares_with_the_model_under_core_mls_rule(package):
    report = json.loads((package.parent / "export_report.json").read_text())
    assert (report["format"], report["precision"]) == ("coreml", "float16")
    assert report["live_detections"] > 100
    assert report["matched"] >= 0.97 * report["live_detections"]
    assert 0 < report["size_bytes"] < 300_000


def test_the_stored_program_has_the_boxes_and_scores_of_the_model(package, model):
    check = coreml.CoreMLCheck(package)
    images = np.random.default_rng(0).uniform(0, 255, (2, 64, 64, 3)).astype("float32")
    raw = {k: keras.ops.convert_to_numpy(v) for k, v in model(images).items()}
    expected = check.description.postprocess(raw, model.anchors, (64, 64))
    found = check.run(images)
    assert expected["num_detections"].min() > 20
    np.testing.assert_allclose(found["scores"], expected["scores"], atol=0.02)
    top = found["boxes"][:, 0], expected["boxes"][:, 0]
    np.testing.assert_allclose(*top, atol=0.3)


def test_rows_of_scores_have_one_class_that_sums_to_no_more_than_one(package):
    session = coreml.CoreMLCheck(package)._session
    planes = np.random.default_rng(0).uniform(0, 255, (1, 3, 64, 64)).astype("float32")
    (given,) = session.get_inputs()
    (scores,) = session.run(["raw_confidence"], {given.name: planes})
    assert scores.max() > 0.5
    assert ((scores > 0).sum(axis=1) == 1).all()


def test_of_classes_with_the_same_score_one_is_kept():
    """Vision adds the scores of a row; two of 0.95 were a confidence of 1.9."""
    mil = pytest.importorskip("coremltools.converters.mil").Builder
    onnxruntime = pytest.importorskip("onnxruntime")
    from effdet_keras.extras.targets.mil_graph import onnx_of_program

    @mil.program(input_specs=[mil.TensorSpec(shape=(1, 3, 3))])
    def program(class_logits):
        return coreml._scores(class_logits)

    session = onnxruntime.InferenceSession(
        onnx_of_program(program).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    logits = np.float32([[[3, 3, -1], [-2, 40, 41], [0, 0, 0]]])
    (scores,) = session.run(None, {"class_logits": logits})
    expected = [[0.952574, 0, 0], [0, 0, 1], [0.5, 0, 0]]
    np.testing.assert_allclose(scores, expected, atol=1e-6)


@pytest.mark.parametrize("change", ["label", "output"])
def test_a_specification_that_vision_would_not_take_is_told(spec, package, change):
    changed = type(spec)()
    changed.CopyFrom(spec)
    if change == "label":
        stage = changed.pipeline.models[1].nonMaximumSuppression
        stage.stringClassLabels.vector[0] = "dog"
    else:
        changed.description.output[0].name = "scores"
    description = coreml.CoreMLCheck(package).description
    with pytest.raises(ValueError, match="not that of an object detector"):
        coreml._check_specification(changed, description)


def test_a_threshold_below_nothing_becomes_zero():
    hard = coreml._postprocess(Postprocess(method="hard"), None, None)
    assert hard.score_threshold == 0.0 and hard.iou_threshold == 0.5
    soft = coreml._postprocess(Postprocess(), 0.25, 0.6)
    assert (soft.method, soft.score_threshold, soft.iou_threshold) == (
        "hard",
        0.25,
        0.6,
    )
    assert soft.pre_nms_top_k == 0 and math.isclose(soft.lowest_score, 0.25)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {**TIMM_BACKBONE, "fpn_padding": "symmetric", "fpn_name": "qufpn"},
        {"fpn_downsampling": "bilinear", "fpn_upsampling": "bilinear", "max_level": 7},
        {"activation": "mish", "backbone": "efficientnet-b0"},
    ],
    ids=["qufpn", "bilinear", "mish"],
)
def test_other_networks_are_translated_too(tmp_path, fields):
    pytest.importorskip("coremltools")
    keras.utils.set_random_seed(0)
    small = tiny_model()
    config = small.config.replace(image_size=(64, 96), **fields)
    model = spread(type(small)(config, class_names=small.class_names))
    options = {"target": "coreml", "precision": "float32", "verbose": 0}
    report = model.export(tmp_path / "pets", **options)
    assert report.live_detections > 50
    assert report.matched == report.live_detections
