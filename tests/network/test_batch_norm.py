"""Batch norm: the fused kernel gives what Keras' own layer gives."""

import keras
import numpy as np
import pytest
from keras import ops
from support.arrays import assert_equal
from support.gradients import gradient
from support.programs import run_alone

from effdet_keras.network.batch_norm import BatchNormalization
from effdet_keras.network.layers import BatchNormOptions


def pair(channels=5, **kwargs):
    """Our layer and Keras', with equal and uneven weights, and a batch."""
    rng = np.random.default_rng(0)
    layers = [
        cls(epsilon=1e-3, momentum=0.9, name="bn", **kwargs)
        for cls in (BatchNormalization, keras.layers.BatchNormalization)
    ]
    weights = rng.uniform(0.5, 2.0, (4, channels)).astype("float32")
    for layer in layers:
        layer.build((None, 3, 4, channels))
        layer.set_weights(list(weights))
    return layers, rng.normal(3.0, 2.0, (2, 3, 4, channels)).astype("float32")


def assert_layers_agree(ours, theirs, x, training, tolerance=1e-5):
    """Both give the same outputs for a batch, and move their statistics alike."""
    found, expected = (bn(x, training=training) for bn in (ours, theirs))
    assert found.dtype == expected.dtype
    assert_equal([found], [expected], rtol=tolerance, atol=tolerance)
    assert_equal(ours.get_weights(), theirs.get_weights(), rtol=1e-5)


@pytest.mark.parametrize("training", [False, True])
def test_equals_keras(training):
    (ours, theirs), x = pair()
    before = ours.get_weights()
    assert_layers_agree(ours, theirs, x, training)
    has_moved = not np.array_equal(before[2], ours.get_weights()[2])
    assert has_moved == training


def test_on_one_device_synchronized_statistics_are_its_own():
    # Also on JAX and torch, where Keras' layer refuses to synchronize.
    _, x = pair()
    plain = BatchNormOptions(epsilon=1e-3).layer("plain")
    synchronized = BatchNormOptions(epsilon=1e-3, synchronized=True).layer("all")
    assert_layers_agree(synchronized, plain, x, True)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("channels", [5, 16])
def test_equals_keras_in_16_bits(policy, training, channels):
    (ours, theirs), x = pair(channels, dtype=policy)
    # One step of bfloat16 at 4 is 0.03: the last bit may differ.
    assert_layers_agree(ours, theirs, ops.cast(x, ours.compute_dtype), training, 0.04)


@pytest.mark.tensorflow  # elsewhere the layer is Keras' own
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("policy", "channels", "atol"), [("float32", 5, 1e-5), ("mixed_bfloat16", 16, 0.02)]
)
def test_gradients_equal_keras(policy, channels, atol, training):
    (ours, theirs), x = pair(channels, dtype=policy)
    slope = np.random.default_rng(1).normal(size=x.shape).astype("float32")
    mine, other = (
        gradient(lambda x, bn=bn: ops.sum(bn(x, training=training) * slope), x)
        for bn in (ours, theirs)
    )
    np.testing.assert_allclose(mine, other, atol=atol)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="a kernel of torch")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize(
    ("policy", "tolerance"), [("float32", 1e-5), ("mixed_bfloat16", 0.04)]
)
def test_the_fused_kernel_of_torch_gives_what_the_composed_layer_gives(
    policy, tolerance, unbiased, training
):
    """Graphics cards have it; processors compute the same, and are asked here."""
    layers, x = pair(dtype=policy)
    fused, composed = (
        BatchNormalization(epsilon=1e-3, momentum=0.9, unbiased=unbiased, dtype=policy)
        for _ in range(2)
    )
    for layer in (fused, composed):
        layer.build(x.shape)
        layer.set_weights(layers[0].get_weights())
    slope = np.random.default_rng(1).normal(size=x.shape).astype("float32")
    slope, seen = ops.convert_to_tensor(slope), []

    def of_layer(run):
        """A scalar of the layer's result, which is kept."""

        def loss(x):
            seen.append(run(ops.cast(x, fused.compute_dtype)))
            return ops.sum(ops.cast(seen[-1], "float32") * slope)

        return loss

    gradients = [
        gradient(of_layer(run), x)
        for run in (
            lambda x: fused._by_torch(x, training),
            lambda x: composed(x, training=training),
        )
    ]
    np.testing.assert_allclose(*gradients, atol=tolerance)
    assert seen[0].dtype == seen[1].dtype and seen[0].is_contiguous()
    found, expected = (ops.convert_to_numpy(ops.cast(y, "float32")) for y in seen)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    # The statistics have moved once.
    assert_equal(fused.get_weights(), composed.get_weights(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axes", [(4, 5), (3,)])
def test_an_unbiased_moving_variance_is_that_of_a_sample(axes):
    x = np.random.default_rng(3).normal(size=(2, *axes, 3)).astype("float32")
    norm = BatchNormalization(momentum=0.9, unbiased=True)
    norm(x, training=True)
    variance = x.reshape(-1, 3).var(axis=0, ddof=1)
    found = keras.ops.convert_to_numpy(norm.moving_variance)
    np.testing.assert_allclose(found, 0.9 + 0.1 * variance, rtol=1e-5)
    before = found
    norm(x, training=False)
    np.testing.assert_array_equal(norm.moving_variance, before)
    assert type(norm).from_config(norm.get_config()).unbiased


# Two threads, whose layers differ in their channels alone.
_THREADS = """
import concurrent.futures
import tensorflow as tf
from effdet_keras.network.batch_norm import BatchNormalization

def call(channels):
    layer, x = BatchNormalization(), tf.ones([1, 32, 32, channels])
    for _ in range(1000):
        layer(x, training=False), layer(x, training=True)

with concurrent.futures.ThreadPoolExecutor(2) as threads:
    list(threads.map(call, [16, 32]))
print("done")
"""


@pytest.mark.tensorflow
def test_two_threads_may_call_layers_eagerly():
    """With TensorFlow 2.20 the process died: see `_one_eager_kernel_at_a_time`."""
    assert run_alone("-c", _THREADS).endswith("done\n")
