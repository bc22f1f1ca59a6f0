"""The graph of the BiFPN, and what a cell computes."""

import json

import numpy as np
import pytest
from keras import ops

from effdet_keras.model.basic_layers import PyramidOptions
from effdet_keras.model.bifpn import BiFPN, BiFPNCell, BiFPNNode, pyramid_nodes
from effdet_keras.model.config import PYRAMIDS


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


def test_an_unknown_graph_is_named():
    with pytest.raises(ValueError, match="one of bifpn, qufpn.*'panet'"):
        pyramid_nodes("panet", 3, 7)


@pytest.mark.slow_elsewhere
def test_top_down_information_reaches_the_finest_level():
    fpn = BiFPN(4, repeats=1, min_level=3, max_level=5)
    features = [np.zeros((1, n, n, 4), "float32") for n in (8, 4, 2)]
    before = ops.convert_to_numpy(fpn(features)[0])
    features[2] = features[2] + 1.0
    assert np.abs(ops.convert_to_numpy(fpn(features)[0]) - before).max() > 0


def test_bottom_up_information_reaches_the_coarsest_level():
    fpn = BiFPN(4, repeats=1, min_level=3, max_level=5)
    features = [np.zeros((1, n, n, 4), "float32") for n in (8, 4, 2)]
    before = ops.convert_to_numpy(fpn(features)[2])
    features[0] = features[0] + 1.0
    assert np.abs(ops.convert_to_numpy(fpn(features)[2]) - before).max() > 0


def test_pattern_decides_where_the_activation_is():
    inputs = [np.random.default_rng(0).normal(size=(1, 4, 4, 4)).astype("float32")] * 2
    for pattern in (False, True):
        options = PyramidOptions(activation="relu", conv_bn_act_pattern=pattern)
        out = BiFPNNode(4, (4, 4), ["a", "b"], "c", options)(inputs)
        assert (ops.convert_to_numpy(out).min() >= 0) == pattern


def test_a_missing_level_is_named():
    with pytest.raises(ValueError, match="one input per level, from 3 to 7"):
        BiFPNCell(4).build([(1, 4, 4, 4)] * 4)
