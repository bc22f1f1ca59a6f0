"""Which arrays of a file a network finds, and which network a file is of."""

import dataclasses

import numpy as np
import pytest

from effdet_keras.extras.older_tools import to_layout_of
from effdet_keras.extras.tfod.checkpoint import TFOD
from effdet_keras.network.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.weights.identify import (
    identify,
    match_arrays,
    num_classes_of,
    to_our_layout,
)
from effdet_keras.weights.kinds.automl import OBJECT_GRAPH
from effdet_keras.weights.kinds.keras_h5 import APPLICATIONS
from effdet_keras.weights.kinds.own import OWN
from effdet_keras.weights.kinds.torch_state_dict import (
    EFFICIENTNET_PYTORCH,
    TIMM,
    TORCH,
)
from effdet_keras.weights.network_arrays import TF1, WeightSource, network_arrays

SCHEMES = (TF1, OBJECT_GRAPH, TORCH, OWN)
# Models that no file can tell apart: their networks are the same.
ALIKE = {"efficientdet-d6": "efficientdet-d7", "efficientdet-d7": "efficientdet-d6"}


def stand_in(array, scheme):
    """An array of the right shape that takes no memory."""
    shape = array.shape
    if scheme == TORCH and array.torch_axes:
        shape = tuple(shape[axis] for axis in array.torch_axes)
    return np.broadcast_to(np.float32(0), shape)


def source_of(name, scheme, keep=lambda array: True, **overrides):
    config = EfficientDetConfig.from_name(name, **overrides)
    arrays = {
        scheme.name_of(array): stand_in(array, scheme)
        for array in network_arrays(config)
        if scheme.name_of(array) and keep(array)
    }
    told = {"backbone_padding": config.backbone_padding}
    return WeightSource("file", "kind", scheme, arrays, config=told)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_model_is_whole_and_recognised_in_every_scheme(name, scheme):
    source = source_of(name, scheme, num_classes=7)
    config = EfficientDetConfig.from_name(name, num_classes=7)
    match = match_arrays(source, config)
    assert len(match.found) == len(network_arrays(config)) == len(source.arrays)
    assert (match.missing, match.mismatched, match.left_over) == ([], {}, [])
    identity = identify(source)
    assert set(identity.names) == {name, ALIKE.get(name, name)}
    assert (identity.num_classes, identity.is_backbone) == (7, False)


@pytest.mark.parametrize("scheme", [TF1, APPLICATIONS])
@pytest.mark.parametrize("name", MODEL_NAMES)
def test_a_backbone_alone_is_recognised(name, scheme):
    identity = identify(source_of(name, scheme, lambda array: array.is_backbone))
    assert name in identity.names
    backbones = {EfficientDetConfig.from_name(n).backbone for n in identity.names}
    assert len(backbones) == 1
    assert identity.is_backbone and identity.num_classes is None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_classes_are_counted_by_the_anchors_of_the_file(scheme):
    source = source_of("efficientdet-lite0", scheme, num_classes=3, num_scales=2)
    assert num_classes_of(source) == 3
    arrays = {array.name: array for array in network_arrays(EfficientDetConfig())}
    del source.arrays[scheme.name_of(arrays["box_net/box-predict/bias"])]
    assert num_classes_of(source) == 18 // 9  # those of google/automl


def test_a_layer_too_many_is_another_network():
    source = source_of("efficientdet-d0", TF1)
    source.arrays["fpn_cells/cell_3/fnode0/WSM"] = np.float32(0)
    identity = identify(source)
    assert (identity.names, identity.nearest) == ((), "efficientdet-d0")
    # And a file that does not tell its padding is taken for Google's.
    source = dataclasses.replace(source_of("effdet-d4", TORCH), config=None)
    assert identify(source).names == ("efficientdet-d4",)


def test_layouts_go_to_torch_and_back_bit_by_bit():
    for array in network_arrays(EfficientDetConfig(num_classes=2)):
        value = np.random.default_rng(0).normal(size=array.shape).astype("float32")
        there = to_layout_of(value, array, TORCH)
        np.testing.assert_array_equal(to_our_layout(there, array, TORCH), value)
    # O, I, H, W of a 1x3 kernel of 4 to 5 channels
    conv = next(a for a in network_arrays(EfficientDetConfig()) if a.torch_axes)
    kernel = np.zeros((1, 3, 4, 5))
    kernel[0, 1, 2, 3] = 1
    assert to_layout_of(kernel, conv, TORCH)[3, 2, 0, 1] == 1


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_names_of_one_scheme_differ_from_each_other(name):
    arrays = network_arrays(EfficientDetConfig.from_name(name))
    for scheme in (*SCHEMES, APPLICATIONS, EFFICIENTNET_PYTORCH, TIMM, TFOD):
        names = [n for n in map(scheme.name_of, arrays) if n is not None]
        assert len(set(names)) == len(names) > 0
