"""The contract that every layer keeps: `check_layer`."""

import keras
import numpy as np
import pytest
from keras import ops

from effdet_keras.extras.segmentation_head import SegmentationHead
from effdet_keras.network.backbone import EfficientNet
from effdet_keras.network.bifpn import (
    BiFPN,
    BiFPNCell,
    BiFPNNode,
    ConvBN,
    WeightedFusion,
)
from effdet_keras.network.heads import PredictionHead
from effdet_keras.network.layers import (
    BatchNormOptions,
    DropPath,
    Normalize,
    PyramidOptions,
)
from effdet_keras.network.mbconv import FusedMBConv, MBConv, SqueezeExcite
from effdet_keras.network.resample import Resample

POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")


def check_layer(make, inputs, *, changed):
    """Checks config, shapes, dtypes and free batch sizes of a layer.

    Args:
        make: callable `(**kwargs) -> layer`.
        inputs: array or list of arrays, a batch of two or more.
        changed: dict of constructor arguments, each at a value other than the
            default: all of them must be in `get_config` and survive it.
    """
    _check_config(make, changed)
    _check_shapes_and_batches(make(), inputs)
    for policy in POLICIES:
        _check_dtype(make(dtype=policy), inputs, policy)


def _check_config(make, changed):
    layer = make(**changed)
    config = layer.get_config()
    for name in changed:
        assert name in config, f"{name} is missing from get_config"
    again = type(layer).from_config(config)
    assert again.get_config() == config
    default = make().get_config()
    for name in changed:
        assert config[name] != default[name], f"{name} is at its default"


def _check_shapes_and_batches(layer, inputs):
    outputs = keras.tree.flatten(layer(inputs))
    shapes = keras.tree.map_structure(lambda x: tuple(x.shape), inputs)
    declared = layer.compute_output_shape(shapes)
    declared = [declared] if isinstance(declared, tuple) else declared
    assert [tuple(x.shape) for x in outputs] == [tuple(s) for s in declared]
    symbolic = layer(
        keras.tree.map_structure(lambda x: keras.Input(x.shape[1:]), inputs)
    )
    for x, out in zip(keras.tree.flatten(symbolic), outputs):
        assert x.shape == (None, *out.shape[1:])
    one = layer(keras.tree.map_structure(lambda x: x[:1], inputs))
    for single, batch in zip(keras.tree.flatten(one), outputs):
        # Convolutions of another batch size may add in another order.
        np.testing.assert_allclose(
            ops.convert_to_numpy(single),
            ops.convert_to_numpy(batch)[:1],
            rtol=1e-4,
            atol=1e-5,
        )


def _check_dtype(layer, inputs, policy):
    outputs = keras.tree.flatten(layer(inputs))
    allowed = {keras.DTypePolicy(policy).compute_dtype, "float32"}
    for x in outputs:
        assert keras.backend.standardize_dtype(x.dtype) in allowed
        assert np.isfinite(ops.convert_to_numpy(ops.cast(x, "float32"))).all()
    for weight in layer.weights:
        if keras.backend.is_float_dtype(weight.dtype):
            assert weight.dtype == "float32"


MOMENTUM = BatchNormOptions(momentum=0.9, frozen=True)
PLAIN = PyramidOptions(
    graph="qufpn",
    weight_method="sum",
    separable_conv=False,
    downsampling="bilinear",
    upsampling="bilinear",
    batch_norm=MOMENTUM,
)


def image(*shape):
    return np.random.default_rng(3).normal(size=(2, *shape)).astype("float32")


BLOCK = {
    "filters": 6,
    "kernel_size": 5,
    "stride": 2,
    "expand_ratio": 1,
    "activation": "relu6",
    "survival_prob": 0.9,
    "padding": "symmetric",
    "batch_norm": MOMENTUM,
}
EDGE = PyramidOptions(
    apply_bn_for_resampling=False,
    conv_after_downsample=True,
    redundant_bias=False,
    padding="symmetric",
    batch_norm=MOMENTUM,
)
DOWN, UP = (
    {"filters": 4, "target_size": (4, 2)},
    {"filters": 4, "target_size": (13, 14)},
)
NODE = {"filters": 4, "target_size": (4, 4), "edge_names": ["a", "b"], "conv_name": "c"}
TWO_LEVELS = [image(3, 3, 2), image(2, 2, 4)]
# A layer, its arguments, what it is called with, and other arguments.
CASES = {
    "DropPath": (DropPath, {}, image(3, 3, 4), {"survival_prob": 0.5, "seed": 3}),
    "Normalize": (
        Normalize,
        {"mean": (1.0, 2.0, 3.0), "stddev": (1.0, 1.0, 2.0)},
        image(3, 3, 3),
        {"mean": (0.0, 0.0, 0.0), "stddev": (2.0, 2.0, 2.0)},
    ),
    "WeightedFusion": (
        WeightedFusion,
        {},
        [image(3, 3, 4), image(3, 3, 4)],
        {"method": "channel_attn", "epsilon": 1e-3},
    ),
    "Resample down": (
        Resample,
        {**DOWN, "filters": 8},
        image(7, 4, 4),
        {"filters": 2, "target_size": (2, 2), "options": EDGE},
    ),
    "Resample down bilinear": (
        Resample,
        {**DOWN, "options": PyramidOptions(downsampling="bilinear")},
        image(7, 4, 4),
        {"options": EDGE},
    ),
    "Resample up bilinear": (
        Resample,
        {**UP, "options": PyramidOptions(upsampling="bilinear")},
        image(7, 7, 4),
        {"options": PyramidOptions()},
    ),
    "Resample up": (Resample, UP, image(7, 7, 4), {"options": EDGE}),
    "SqueezeExcite": (
        SqueezeExcite,
        {"reduced_filters": 2},
        image(3, 3, 4),
        {"reduced_filters": 1, "activation": "relu6"},
    ),
    "MBConv": (MBConv, {"filters": 4}, image(5, 4, 4), {**BLOCK, "se_ratio": None}),
    "FusedMBConv": (
        FusedMBConv,
        {"filters": 4},
        image(5, 4, 4),
        {**BLOCK, "project": False},
    ),
    "ConvBN": (
        ConvBN,
        {"filters": 4},
        image(3, 3, 4),
        {
            "filters": 3,
            "separable_conv": False,
            "use_bias": False,
            "batch_norm": MOMENTUM,
        },
    ),
    "BiFPNNode": (
        BiFPNNode,
        NODE,
        [image(4, 4, 4), image(2, 2, 3)],
        {
            "filters": 3,
            "target_size": (8, 8),
            "edge_names": ["c"],
            "conv_name": "d",
            "options": PLAIN,
        },
    ),
    "BiFPNCell": (
        BiFPNCell,
        {"filters": 4, "max_level": 4},
        TWO_LEVELS,
        {"filters": 3, "min_level": 2, "max_level": 5, "options": PLAIN},
    ),
    "BiFPN": (
        BiFPN,
        {"filters": 4, "repeats": 2, "max_level": 4},
        TWO_LEVELS,
        {"filters": 3, "repeats": 1, "min_level": 2, "max_level": 5, "options": PLAIN},
    ),
    "PredictionHead": (
        PredictionHead,
        {"outputs_per_anchor": 2, "filters": 4},
        [image(3, 3, 4), image(2, 2, 4)],
        {
            "outputs_per_anchor": 4,
            "num_anchors": 3,
            "filters": 6,
            "repeats": 2,
            "min_level": 2,
            "prefix": "box",
            "separable_conv": False,
            "redundant_bias": False,
            "activation": "relu6",
            "survival_prob": 0.9,
            "prior_bias": -4.0,
            "batch_norm": MOMENTUM,
        },
    ),
    "SegmentationHead": (
        SegmentationHead,
        {"num_classes": 2, "filters": 4},
        [image(7, 8, 4), image(4, 4, 4), image(2, 2, 3)],
        {
            "num_classes": 5,
            "filters": 6,
            "activation": "relu6",
            "output_size": (13, 16),
            "batch_norm": MOMENTUM,
        },
    ),
    "EfficientNet": (
        EfficientNet,
        {},
        image(32, 40, 3),
        {
            "variant": "efficientnet-lite0",
            "min_level": 4,
            "activation": "relu6",
            "survival_prob": 0.8,
            "padding": "symmetric",
            "batch_norm": MOMENTUM,
        },
    ),
}


# The backbone is MBConv many times over; JAX alone compiles it for a minute.
SLOW_TO_COMPILE = {
    "EfficientNet": pytest.mark.tensorflow,
    "MBConv": pytest.mark.slow_elsewhere,
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=SLOW_TO_COMPILE.get(n, ())) for n in CASES]
)
def test_layer_keeps_the_contract(name):
    layer, arguments, inputs, changed = CASES[name]
    check_layer(lambda **kw: layer(**{**arguments, **kw}), inputs, changed=changed)
