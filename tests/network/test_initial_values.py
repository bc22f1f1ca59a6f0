"""On JAX initial values have the bits of Keras' own, without a program for each."""

import keras
import numpy as np
import pytest
from keras import initializers, ops

from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.initial_values import QuickInitializer, quick
from effdet_keras.network.mbconv import DepthwiseInitializer

on_jax = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="other backends compile no operation"
)
SHAPES = [(7,), (3, 5), (3, 3, 24, 1), (1, 1, 96, 320), (5, 5, 16, 41)]


def bits(values):
    return ops.convert_to_numpy(values).view("uint32")


@on_jax
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "initializer",
    [
        initializers.Zeros(),
        initializers.Ones(),
        initializers.Constant(-4.6),
        initializers.RandomNormal(mean=0.3, stddev=0.01, seed=5),
        initializers.GlorotUniform(seed=5),
        initializers.VarianceScaling(seed=5),
        initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal", seed=5),
        initializers.HeNormal(seed=5),  # it is Keras' own that draws
    ],
    ids=lambda initializer: type(initializer).__name__,
)
def test_values_have_the_bits_of_keras(initializer, shape):
    found = QuickInitializer(initializer)(shape, dtype="float32")
    np.testing.assert_array_equal(bits(found), bits(initializer(shape, "float32")))


@on_jax
def test_depthwise_kernels_have_the_bits_of_keras():
    shape = (5, 5, 480, 1)
    for seed in (3, None):  # None draws from Keras' global generator
        found, expected = [], []
        keras.utils.set_random_seed(1)
        for _ in range(2):
            found.append(bits(DepthwiseInitializer(seed)(shape, "float32")))
        keras.utils.set_random_seed(1)
        for _ in range(2):
            stddev = (2.0 / 25) ** 0.5
            draw = keras.random.normal(shape, stddev=stddev, seed=seed)
            expected.append(bits(draw))
        np.testing.assert_array_equal(found, expected)


@on_jax
def test_a_large_kernel_is_drawn_in_a_power_of_two():
    normal = initializers.RandomNormal(seed=5)
    shape = (1, 1, 1100, 1000)
    found = QuickInitializer(normal)(shape, dtype="float32")
    np.testing.assert_array_equal(bits(found), bits(normal(shape, "float32")))


@on_jax
def test_other_precisions_are_those_of_keras():
    normal = initializers.RandomNormal(seed=5)
    found = QuickInitializer(normal)((3, 4), dtype="bfloat16")
    assert found.dtype == "bfloat16"
    np.testing.assert_array_equal(found, normal((3, 4), "bfloat16"))


def test_a_quick_initializer_comes_back_from_its_config():
    made = QuickInitializer(initializers.VarianceScaling(2.0, "fan_out", seed=7))
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(made)
    )
    assert isinstance(again, QuickInitializer)
    assert again.initializer.get_config() == made.initializer.get_config()
    assert quick(made) is made


@on_jax
def test_a_model_is_made_and_compiled_with_few_programs():
    import jax

    seen = []

    def listen(event, duration, **_):
        if event.endswith("backend_compile_duration"):
            seen.append(event)

    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        model = EfficientDet.from_preset("efficientdet-lite0", image_size=64)
        model.compile(recipe="reference")
    finally:
        jax.monitoring.clear_event_listeners()
    assert seen and len(seen) < 40  # of Keras' initializers: more than 200
