"""Which variables the loss decays, by a number or by their paths."""

import keras
import numpy as np
import pytest
from support.tiny import batch, tiny_model

from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train.gradients import decay_factors
from effdet_keras.train.recipe import tfod_decay


def test_the_object_detection_api_decays_these():
    model = EfficientDet.from_preset("efficientdet-d0", image_size=64, max_level=6)
    decay = tfod_decay(fpn=1.0, heads=2.0, backbone=3.0)
    variables = model.trainable_variables
    factors = dict(zip([v.path for v in variables], decay_factors(decay, variables)))
    expected = {
        "efficientnet-b0/stem/conv2d/kernel": 3.0,
        "efficientnet-b0/blocks_1/conv2d/kernel": 3.0,
        "efficientnet-b0/blocks_1/conv2d_1/kernel": 3.0,
        "efficientnet-b0/blocks_1/se/conv2d/bias": 3.0,
        "efficientnet-b0/blocks_1/depthwise_conv2d/kernel": 0.0,
        "efficientnet-b0/blocks_1/tpu_batch_normalization/gamma": 0.0,
        "resample_p6/conv2d/kernel": 1.0,
        "resample_p6/conv2d/bias": 0.0,
        "box_net/box-0/depthwise_kernel": 2.0,
        "box_net/box-0/pointwise_kernel": 0.0,
        "box_net/box-0/bias": 0.0,
        "class_net/class-predict/depthwise_kernel": 0.0,
        "class_net/class-predict/pointwise_kernel": 0.0,
    }
    assert {path: factors[path] for path in expected} == expected
    nodes = [f for path, f in factors.items() if path.endswith("conv/pointwise_kernel")]
    assert len(nodes) == 3 * 6 and set(nodes) == {1.0}


def test_a_dict_decays_what_its_first_expression_says():
    model = tiny_model()
    decay = {"^box_net/.*bias$": 0.0, "^box_net/": 0.2, "^class_net/.*bias$": 3.0}
    model.compile(recipe="reference", weight_decay=decay)
    images, truth = batch()
    logs = model.test_on_batch(images, truth, return_dict=True)
    expected = 0.0
    for v in model.trainable_variables:
        square = float(np.sum(keras.ops.convert_to_numpy(v).astype("float64") ** 2))
        if v.path.startswith("box_net/") and not v.path.endswith("bias"):
            expected += 0.1 * square
        if v.path.startswith("class_net/") and v.path.endswith("bias"):
            expected += 1.5 * square
    assert expected > 0
    assert logs["reg_l2_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weight_decay": {"kernel$": -1.0}}, "must be a number of at least 0"),
        ({"weight_decay": {"(": 1.0}}, "regular expressions as its keys"),
        ({"weight_decay": {3: 1.0}}, "regular expressions as its keys"),
        ({"weight_decay": {"kernle$": 1.0}}, "Received: 'kernle\\$'. Paths near it"),
        (
            {"weight_decay": {"kernel$": 1.0}, "optimizer": "adamw"},
            "AdamW decays all kernels alike",
        ),
        ({"weight_decay": "much"}, "must be a number of at least 0, a dict"),
    ],
)
def test_wrong_decays_are_named(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        tiny_model().compile(recipe="reference", **arguments)
