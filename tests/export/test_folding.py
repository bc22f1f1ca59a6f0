"""Folded batch norms: the same numbers, fewer nodes."""

import numpy as np
import pytest
from support.tiny import tiny_model

from effdet_keras.export.network import frozen, network_function
from effdet_keras.export.saved_model import folded

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

KERNELS = {
    "convolution": (3, 3, 4, 6),
    "depthwise": (3, 3, 4, 1),
    "depthwise, two of each channel": (3, 3, 4, 2),
}


def convolved(x, kernel, is_depthwise):
    if is_depthwise:
        return tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "SAME")
    return tf.nn.conv2d(x, kernel, 2, "SAME")


def normed(x, rng, is_training=False):
    count = x.shape[-1]
    gamma, beta, mean = (rng.normal(size=count).astype("float32") for _ in range(3))
    variance = rng.uniform(0.5, 2, count).astype("float32")
    moving = (None, None) if is_training else (mean, variance)
    return tf.compat.v1.nn.fused_batch_norm(
        x, gamma, beta, *moving, epsilon=0.1, is_training=is_training
    )[0]


def frozen_function(function):
    return frozen(tf.function(function, input_signature=[tf.TensorSpec((2, 5, 7, 4))]))


def operations(function):
    graph = function.graph.as_graph_def()
    return [node.op for node in graph.node]


def image():
    return tf.constant(np.random.default_rng(1).normal(size=(2, 5, 7, 4)), "float32")


def assert_same(folded, function, atol=1e-5):
    for ours, theirs in zip(folded(image()), function(image()), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=atol)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("kind", KERNELS)
def test_a_batch_norm_becomes_kernel_and_bias(kind, with_bias):
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=KERNELS[kind]).astype("float32")

    def run(x):
        x = tf.constant([1.0] * 4) * x  # a one for each channel is no lone one
        x = convolved(x, kernel, kind.startswith("depthwise"))
        if with_bias:
            bias = rng.normal(size=(1, 1, 1, x.shape[-1])).astype("float32")
            x = tf.nn.bias_add(x, tf.squeeze(tf.constant(bias)))
        return [tf.nn.silu(normed(x, rng))]

    function = frozen_function(run)
    result = folded(function)
    assert "FusedBatchNormV3" not in operations(result)
    assert_same(result, function)


def test_swish_is_left_next_to_the_bias():
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=(3, 3, 4, 6)).astype("float32")
    result = folded(
        frozen_function(lambda x: [tf.nn.silu(normed(convolved(x, kernel, 0), rng))])
    )
    nodes = {node.name: node for node in result.graph.as_graph_def().node}
    (sigmoid,) = (node for node in nodes.values() if node.op == "Sigmoid")
    assert nodes[sigmoid.input[0]].op == "BiasAdd"
    product = [n for n in nodes.values() if n.op == "Mul" and sigmoid.name in n.input]
    assert [set(n.input) for n in product] == [{sigmoid.name, sigmoid.input[0]}]


@pytest.mark.parametrize(
    "case",
    ["no convolution", "kernel that is computed", "kernel in another shape", "train"],
)
def test_what_cannot_be_folded_stays(case):
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=(3, 3, 4, 6)).astype("float32")

    def run(x):
        if case == "no convolution":
            return [normed(tf.abs(x), rng)]
        used = tf.constant(kernel)
        if case == "kernel that is computed":
            used += tf.reduce_mean(x)
        if case == "kernel in another shape":
            used = tf.reshape(kernel.reshape(-1), kernel.shape)
        return [normed(convolved(x, used, False), rng, is_training=case == "train")]

    function = frozen_function(run)
    result = folded(function)
    assert operations(result).count("FusedBatchNormV3") == 1
    assert_same(result, function)


def test_a_convolution_that_others_use_too_stays():
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=(3, 3, 4, 6)).astype("float32")

    def run(x):
        x = convolved(x, kernel, False)
        return [x, normed(x, rng), normed(x, rng)]

    function = frozen_function(run)
    assert_same(folded(function), function)


def test_of_a_whole_network_no_batch_norm_is_left():
    model, rng = tiny_model(), np.random.default_rng(0)
    for weight in model.weights:
        if weight.path.endswith(("gamma", "moving_variance")):
            weight.assign(rng.uniform(0.5, 2, weight.shape))
        if weight.path.endswith(("beta", "moving_mean", "bias")):
            weight.assign(rng.normal(0, 0.1, weight.shape))
    function = frozen(network_function(model))
    result = folded(function)
    assert "FusedBatchNormV3" in operations(function)
    assert "FusedBatchNormV3" not in operations(result)
    images = tf.constant(rng.uniform(0, 255, (3, 64, 64, 3)), "float32")
    for ours, theirs in zip(result(images), function(images), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)  # 40 layers of rounding
