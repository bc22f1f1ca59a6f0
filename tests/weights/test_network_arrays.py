"""The list of a network's arrays and the layers that make it: one and the same."""

import keras
import pytest

from effdet_keras.network.build import build_network
from effdet_keras.network.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.weights.network_arrays import network_arrays, tf1_name

QUICK = ("efficientdet-d0", "efficientdet-lite0")


def smallest(name, **fields):
    """The config of a published model, at the smallest size that has all levels."""
    max_level = EfficientDetConfig.from_name(name).max_level
    return EfficientDetConfig.from_name(
        name, image_size=2**max_level, num_classes=2, **fields
    )


def shapes_of_layers(config):
    """Shape by TF1 name of every weight that the network's layers make."""
    model = keras.Model(*build_network(config, None, None))
    named = [(tf1_name(variable), tuple(variable.shape)) for variable in model.weights]
    shapes = dict(named)
    assert len(shapes) == len(named), "two weights of one name"
    return shapes


def shapes_of_list(config):
    arrays = network_arrays(config)
    shapes = {array.name: array.shape for array in arrays}
    assert len(shapes) == len(arrays), "two arrays of one name"
    return shapes


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in MODEL_NAMES
    ],
)
def test_the_list_has_exactly_the_weights_of_the_layers(name):
    config = smallest(name)
    assert shapes_of_list(config) == shapes_of_layers(config)


@pytest.mark.parametrize(
    "fields",
    [
        {"fpn_weight_method": "sum"},
        {"fpn_weight_method": "channel_fastattn"},
        {"separable_conv": False},
        {"conv_bn_act_pattern": True},
        {"apply_bn_for_resampling": False},
        {"conv_after_downsample": True},
        {"fpn_name": "qufpn", "fpn_weight_method": "sum"},
        {"redundant_bias": False},
        {"redundant_bias": False, "apply_bn_for_resampling": False},
        {"backbone": "efficientnetv2-b0"},
        {"min_level": 2, "max_level": 6},
        {"num_scales": 2, "aspect_ratios": (1.0,)},
        {"head_repeats": 1, "fpn_cell_repeats": 1, "fpn_num_filters": 112},
        {"heads": ("object_detection", "segmentation"), "seg_num_classes": 5},
        {"heads": ("segmentation",), "max_level": 6},
    ],
    ids=lambda fields: ",".join(fields),
)
def test_options_of_the_network_change_list_and_layers_alike(fields):
    small = {"fpn_cell_repeats": 2, "head_repeats": 2}
    config = smallest("efficientdet-lite0", **{**small, **fields})
    assert shapes_of_list(config) == shapes_of_layers(config)
