"""Activations, stochastic depth, normalisation, heads, options."""

import keras
import numpy as np
import pytest
from keras import ops

from effdet_keras._internal import backend
from effdet_keras.network import mbconv
from effdet_keras.network.config import ACTIVATIONS
from effdet_keras.network.heads import PredictionHead
from effdet_keras.network.layers import (
    BatchNormOptions,
    DropPath,
    Normalize,
    get_activation,
)
from effdet_keras.network.mbconv import DepthwiseInitializer, MBConv, conv_initializer


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_equals_the_reference(golden, name):
    arrays = golden("layers.npz")
    theirs = {"hard_swish": "hswish"}.get(name, name)
    ours = get_activation(name)(ops.array(arrays["act/x"]))
    # srelu takes the logarithm of numbers near one million
    np.testing.assert_allclose(
        ops.convert_to_numpy(ours), arrays[f"act/{theirs}"], rtol=1e-5, atol=2e-6
    )


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("is_fused", "dtype"), [(True, "float32"), (False, "float32"), (True, "bfloat16")]
)
def test_the_slope_of_swish_is_that_of_its_formula(monkeypatch, is_fused, dtype):
    """Where XLA compiles the gradient, and where TensorFlow has none, or a GPU."""
    import tensorflow as tf

    if not is_fused:
        monkeypatch.setattr(backend, "runs_on_processors", lambda: False)

    x = tf.constant([-1e4, -90.0, -20.0, -1.0, 0.0, 0.5, 30.0, 1e8], dtype)
    upstream = tf.constant(np.linspace(1.0, 2.0, 8), dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = get_activation("swish")(x)
    gradient = tape.gradient(y, x, output_gradients=upstream)
    assert gradient.dtype == dtype
    x, y, upstream, gradient = (
        tensor.numpy().astype("float64") for tensor in (x, y, upstream, gradient)
    )
    sigmoid = 1 / (1 + np.exp(-np.clip(x, -700, 700)))
    slope = sigmoid * (1 + x * (1 - sigmoid))
    # In bfloat16 `y` is known to 2**-8 of itself, and at -1 the slope is near zero.
    rtol, atol = (1e-5, 1e-6) if dtype == "float32" else (2**-8, 2**-9)
    np.testing.assert_allclose(gradient, upstream * slope, rtol=rtol, atol=atol)
    rtol = 1e-6 if dtype == "float32" else 2**-7
    np.testing.assert_allclose(y, x * sigmoid, rtol=rtol, atol=1e-30)


def test_drop_path_equals_the_reference_for_the_same_draw(golden, monkeypatch):
    arrays = golden("layers.npz")
    draw = arrays["drop_connect/u"]
    monkeypatch.setattr(keras.random, "uniform", lambda *a, **k: ops.array(draw))
    dropped = DropPath(0.8)(arrays["drop_connect/in"], training=True)
    np.testing.assert_allclose(
        ops.convert_to_numpy(dropped), arrays["drop_connect/p0.8"], rtol=1e-6
    )


def test_drop_path_is_idle_in_evaluation_and_draws_anew_in_training():
    layer, x = DropPath(0.5, seed=1), ops.ones((64, 1))
    np.testing.assert_array_equal(ops.convert_to_numpy(layer(x)), 1.0)
    first, second = (ops.convert_to_numpy(layer(x, training=True)) for _ in range(2))
    assert (first != second).any()


def test_normalize_tells_bright_pixels_apart_in_float16():
    layer = Normalize((127.0,) * 3, (128.0,) * 3, dtype="float16")
    out = layer(np.arange(253, 256, dtype="uint8").reshape(3, 1, 1, 1).repeat(3, -1))
    assert len(np.unique(ops.convert_to_numpy(out))) == 3


@pytest.mark.slow_elsewhere
def test_residual_is_added_only_where_shapes_agree():
    x = np.random.default_rng(0).normal(size=(1, 4, 4, 4)).astype("float32")
    for filters, stride, residual in ((4, 1, True), (4, 2, False), (6, 1, False)):
        block = MBConv(filters, stride=stride)
        block.build(x.shape)
        block.project_conv.kernel.assign(np.zeros(block.project_conv.kernel.shape))
        out = ops.convert_to_numpy(block(x))
        if residual:
            np.testing.assert_array_equal(out, x)
        else:
            np.testing.assert_array_equal(out, 0.0)


def test_convolutions_start_with_the_reference_spread():
    plain = ops.convert_to_numpy(conv_initializer()((1, 1, 96, 400)))
    assert plain.std() == pytest.approx(np.sqrt(2 / 400), rel=0.02)
    depthwise = ops.convert_to_numpy(DepthwiseInitializer()((5, 5, 2000, 1)))
    assert depthwise.std() == pytest.approx(np.sqrt(2 / 25), rel=0.02)
    # Plain normal: about 0.27 % lie beyond three standard deviations.
    assert (np.abs(plain) > 3 * plain.std()).mean() == pytest.approx(0.0027, rel=0.3)


def test_head_starts_at_the_prior_probability():
    head = PredictionHead(2, repeats=1, filters=4, prior_bias=-np.log(99))
    out = head([np.zeros((1, 2, 2, 4), "float32")])
    np.testing.assert_allclose(ops.convert_to_numpy(ops.sigmoid(out)), 0.01, rtol=1e-4)


def test_a_head_of_a_former_version_is_read():
    config = PredictionHead(2, filters=4).get_config()
    config["values"] = config.pop("outputs_per_anchor")
    assert PredictionHead.from_config(config).outputs_per_anchor == 2


def test_head_counts_level_row_column_anchor():
    head = PredictionHead(1, num_anchors=2, filters=1, repeats=0, separable_conv=False)
    levels = [np.zeros((1, 2, 2, 1), "float32"), np.zeros((1, 1, 1, 1), "float32")]
    levels[0][0, 0, 1] = 1.0  # first row, second column
    levels[1][0, 0, 0] = 2.0
    head.build([x.shape for x in levels])
    kernel = np.zeros((3, 3, 1, 2), "float32")
    kernel[1, 1, 0] = [1.0, 10.0]  # anchor 0 copies, anchor 1 is ten times it
    head.predict_conv.kernel.assign(kernel)
    out = ops.convert_to_numpy(head(levels)).ravel()
    assert out.tolist() == [0, 0, 1, 10, 0, 0, 0, 0, 2, 20]


def test_head_shares_convolutions_and_not_batch_norms():
    head = PredictionHead(4, filters=4, repeats=2, prefix="box")
    head.build([(None, 4, 4, 4), (None, 2, 2, 4)])
    names = {w.path.split("/", 1)[1] for w in head.trainable_weights}
    assert {"box-0/bias", "box-1/bias", "box-predict/bias"} < names
    assert {f"box-{r}-bn-{level}/gamma" for r in (0, 1) for level in (3, 4)} < names
    assert len(names) == 3 * 3 + 4 * 2


def test_residual_head_changes_only_with_survival_prob():
    x = [np.ones((8, 2, 2, 4), "float32")]
    plain = PredictionHead(4, filters=4, repeats=2)
    residual = PredictionHead(4, filters=4, repeats=2, survival_prob=0.5)
    plain(x), residual(x)
    residual.set_weights(plain.get_weights())
    assert np.abs(ops.convert_to_numpy(plain(x) - residual(x))).max() > 0
    drawn = ops.convert_to_numpy(residual(x, training=True))
    assert len(np.unique(drawn.round(4), axis=0)) == 2


def test_batch_norm_in_training_normalises_as_the_reference(golden):
    arrays = golden("layers.npz")
    bn = BatchNormOptions().layer("bn")
    out = bn(arrays["bn/input"], training=True)
    np.testing.assert_allclose(
        ops.convert_to_numpy(out), arrays["bn/default/y"], rtol=1e-4, atol=1e-5
    )
    for ours, key in ((bn.moving_mean, "mean"), (bn.moving_variance, "var")):
        # The cross-replica norms move by the biased variance, as Keras 3 does;
        # the reference's default one by the unbiased (shared README).
        np.testing.assert_allclose(
            ops.convert_to_numpy(ours),
            arrays[f"bn/SyncBatchNormalization/{key}"],
            rtol=1e-4,
            atol=1e-6,
        )


@pytest.mark.tensorflow
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize(
    ("size", "shape"), [(3, (2, 9, 8, 5)), (5, (2, 13, 16, 4)), (7, (1, 8, 7, 3))]
)
def test_the_gradients_of_a_depthwise_convolution(size, shape, dtype, stride, padding):
    """They equal Keras', in narrow pieces, and under a stride in float32."""
    import tensorflow as tf

    def whole(shape, seed=0):
        """From -1 to 1: bfloat16 has their sums too, whatever the processor adds in."""
        numbers = tf.random.stateless_uniform(shape, [seed, 1], -1, 2, "int32")
        return tf.cast(numbers, "float32")

    arguments = {"strides": stride, "padding": padding, "use_bias": False}
    x, found, graphs = whole(shape), [], []
    for kind, policy in (
        (keras.layers.DepthwiseConv2D, "float32"),
        (mbconv.DepthwiseConv2D, dtype),
    ):
        layer = kind(size, dtype=policy, **arguments)
        layer.build(shape)
        layer.set_weights([whole((size, size, shape[-1], 1))])

        @tf.function
        def gradients(layer=layer):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.cast(layer(x), "float32")
                total = tf.reduce_sum(y * whole(y.shape, 1))
            return y, *tape.gradient(total, [x, layer.kernel.value])

        found.append(gradients())
        graphs.append(gradients.get_concrete_function().graph.get_operations())
    for theirs, ours in zip(*found):
        np.testing.assert_array_equal(ours, theirs)
    of_kernel = [o for o in graphs[1] if o.type.endswith("BackpropFilter")]
    (of_input,) = [o for o in graphs[1] if o.type.endswith("BackpropInput")]
    assert of_kernel
    half = dtype.removeprefix("mixed_")
    assert {o.outputs[0].dtype for o in of_kernel} == {tf.as_dtype(half)}
    assert of_input.outputs[0].dtype == ("float32" if stride > 1 else half)
