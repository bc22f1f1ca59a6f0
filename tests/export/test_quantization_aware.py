"""int8 files of quantization-aware models: what the live model computes, no float."""

import numpy as np
import pytest
from keras import ops
from support.kinds import slow_but
from support.tiny import BOTH_HEADS, lively_model, tiny_model

from effdet_keras.export.runtime import open_runtime
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.config import MODEL_NAMES, EfficientDetConfig

pytestmark = pytest.mark.tensorflow
litert = pytest.importorskip("ai_edge_litert.interpreter")

HEADS = {
    "class_net": "class_logits",
    "box_net": "box_deltas",
    "segmentation_head": "segmentation_logits",
}
AT_THE_ENDS = {"QUANTIZE", "DEQUANTIZE", "TFLite_Detection_PostProcess"}


def float_operations(path):
    """Names of the operations in a file that read or write a float."""
    interpreter = litert.Interpreter(str(path))
    tensors = interpreter.get_tensor_details()
    floats = {t["index"] for t in tensors if t["dtype"] == np.float32}
    return {
        operation["op_name"]
        for operation in interpreter._get_ops_details()
        if floats & {*operation["inputs"], *operation["outputs"]}
    }


def noise(size):
    return np.random.default_rng(0).integers(0, 256, (1, *size, 3)).astype("float32")


def learned(model):
    """The model with the ranges of one batch."""
    model.quantize_aware()
    model(noise(model.config.image_size), training=True)
    return model


def assert_computes_the_same(model, path):
    """But for numbers that lie at the edge between two steps, and what follows them."""
    images = noise(model.config.image_size)
    found = open_runtime(path).run(images)
    ranges = model.quantization.ranges()
    for head, name in HEADS.items():
        if f"{head}/predictions" in ranges:
            low, high = ranges[f"{head}/predictions"]
            value = ops.convert_to_numpy(model(images, training=False)[name])
            steps = np.abs(found[name] - value) / (high - low) * 255
            assert steps.mean() < 1 and steps.max() < 8, (name, steps.max())


# What no published model has.
OTHER = {
    "both heads": {"heads": BOTH_HEADS},
    "hswish": {"activation": "hswish"},
    "relu": {"activation": "relu"},
    "bilinear": {"fpn_downsampling": "bilinear", "fpn_upsampling": "bilinear"},
    "full": {"separable_conv": False, "conv_bn_act_pattern": True},
    "qufpn": {"fpn_name": "qufpn", "fpn_weight_method": "channel_attn"},
    "sum": {"fpn_weight_method": "sum"},
}


@pytest.mark.parametrize("name", slow_but(["both heads"], [*OTHER, *MODEL_NAMES]))
def test_the_file_computes_what_the_model_does_without_a_float(name, tmp_path):
    if name in OTHER:
        config = tiny_model(heads=BOTH_HEADS).config.replace(
            **{"heads": ("object_detection",), **OTHER[name]}
        )
    else:
        config = EfficientDetConfig.from_name(name, image_size=128, num_classes=3)
    model = learned(EfficientDet(config))
    path = tmp_path / "cats.tflite"
    model.export(path, precision="int8", outputs="raw", verbose=0)
    assert float_operations(path) <= AT_THE_ENDS
    assert_computes_the_same(model, path)


@pytest.mark.parametrize("int8_scores", [False, True])
def test_scores_are_float_or_int8(int8_scores, tmp_path):
    model = learned(tiny_model())
    path = tmp_path / "cats.tflite"
    report = model.export(
        path,
        precision="int8",
        int8_scores=int8_scores,
        score_threshold=0.001,
        verbose=0,
    )
    in_float = set() if int8_scores else {"LOGISTIC", "SUB"}
    assert float_operations(path) == AT_THE_ENDS - {"QUANTIZE"} | in_float
    assert not report.rounding_errors and not report.advice
    scores = open_runtime(path).run(noise((64, 64)))["scores"][0]
    assert len(scores) > 0
    assert np.allclose(scores * 256, np.round(scores * 256)) == int8_scores


def test_the_models_own_suppression_stays_in_float(tmp_path):
    model = learned(lively_model())
    path = tmp_path / "cats.tflite"
    report = model.export(path, precision="int8", postprocess_ops="builtin", verbose=0)
    assert "CONV_2D" not in float_operations(path)
    assert "NON_MAX_SUPPRESSION_V5" in float_operations(path)
    assert report.matched >= 0.8 * report.live_detections > 0
