"""Weighted fusion, and the BiFPN."""

import json

import numpy as np
import pytest
from keras import ops

from effdet_keras.network.bifpn import (
    BiFPNCell,
    BiFPNNode,
    WeightedFusion,
    pyramid_nodes,
)
from effdet_keras.network.config import FUSION_METHODS, PYRAMIDS
from effdet_keras.network.layers import PyramidOptions


def fuse(method, inputs, weights=None):
    layer = WeightedFusion(method)
    layer.build([x.shape for x in inputs])
    if weights is not None and method != "sum":
        for variable, value in zip(layer.fusion_weights, weights):
            variable.assign(value)
    return ops.convert_to_numpy(layer(inputs))


@pytest.mark.parametrize("count, prefix", [(3, "fuse"), (2, "fuse2")])
@pytest.mark.parametrize("method", FUSION_METHODS)
def test_equals_the_reference(golden, method, count, prefix):
    arrays = golden("layers.npz")
    inputs = [arrays[f"fuse/node{i}"] for i in range(count)]
    kind = "channel" if "channel" in method else "scalar"
    weights = arrays[f"fuse/{kind}_weights"][:count]
    np.testing.assert_allclose(
        fuse(method, inputs, weights),
        arrays[f"{prefix}/{method}"],
        rtol=1e-5,
        atol=1e-6,  # the order of three additions
    )


def test_all_weights_negative_give_zero_and_not_nan():
    inputs = [np.ones((1, 2, 2, 3), "float32")] * 2
    np.testing.assert_array_equal(fuse("fastattn", inputs, [-1.0, -2.0]), 0.0)


@pytest.mark.parametrize("shapes", [[(1, 2, 2, 3), (1, 4, 4, 3)], [(1, 2, 2, 3)]])
def test_wrong_shapes_are_named(shapes):
    with pytest.raises(ValueError, match="two or more inputs of one shape"):
        WeightedFusion().build(shapes)


@pytest.mark.parametrize("graph", PYRAMIDS)
@pytest.mark.parametrize("levels", [(3, 7), (3, 8), (3, 5), (2, 7)])
def test_graph_equals_the_reference(golden_path, levels, graph):
    graphs = json.loads(golden_path("bifpn_graphs.json").read_text())
    expected = graphs["{}_{}_{}".format(graph, *levels)]
    nodes = pyramid_nodes(graph, *levels)
    assert [[node.level, list(node.inputs)] for node in nodes] == expected


def test_the_last_nodes_of_qufpn_have_a_method_of_their_own():
    cell = BiFPNCell(4, 3, 5, PyramidOptions(graph="qufpn", weight_method="sum"))
    cell.build([(1, n, n, 4) for n in (8, 4, 2)])
    methods = [node.fusion.method for node in cell.nodes]
    assert methods == ["sum"] * 8 + ["fastattn"] * 3


def test_pattern_decides_where_the_activation_is():
    inputs = [np.random.default_rng(0).normal(size=(1, 4, 4, 4)).astype("float32")] * 2
    for pattern in (False, True):
        options = PyramidOptions(activation="relu", conv_bn_act_pattern=pattern)
        out = BiFPNNode(4, (4, 4), ["a", "b"], "c", options)(inputs)
        assert (ops.convert_to_numpy(out).min() >= 0) == pattern
