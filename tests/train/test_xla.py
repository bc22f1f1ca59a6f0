"""XLA on TensorFlow: its step is the default one, and refuses alike."""

import keras
import numpy as np
import pytest
from support.arrays import assert_equal
from support.refused_batches import everything, with_pixel
from support.tiny import (
    Stream,
    batch,
    lively_model,
    tiny_model,
    values,
    without_stochastic_depth,
)

from effdet_keras.network.resample import Resample

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("size", "target"),
    [((4, 4), (8, 8)), ((5, 3), (9, 6)), ((7, 7), (4, 4))],
    ids=["a whole factor", "one that is not", "pooling"],
)
def test_gradients_of_resampling_are_those_without_xla(size, target):
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=(2, *size, 3)), tf.float32)
    upstream = tf.constant(rng.normal(size=(2, *target, 3)), tf.float32)
    layer = Resample(3, target)
    layer.build(x.shape)

    def gradient(x, training):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x, training=training) * upstream)
        return tape.gradient(loss, x)

    # Outside of training an up-sampling is TensorFlow's own operation.
    expected = gradient(x, False)
    np.testing.assert_allclose(gradient(x, True), expected, rtol=1e-5, atol=1e-6)
    compiled = tf.function(gradient, jit_compile=True)(x, True)
    np.testing.assert_allclose(compiled, expected, rtol=1e-5, atol=1e-6)


def trained(jit_compile, **options):
    keras.utils.set_random_seed(0)
    # Batch norms over a few pixels would make a rounding a hundred times larger.
    model = without_stochastic_depth(tiny_model(), batch_norm=False)
    model.compile(
        "momentum",
        learning_rate=0.01,
        schedule="constant",
        ema_decay=0.9,
        jit_compile=jit_compile,
        **options,
    )
    images, truth = batch(4)
    history = model.fit(
        images, truth, batch_size=1, epochs=2, shuffle=False, verbose=0
    ).history
    losses = model.evaluate(images, truth, batch_size=2, verbose=0)
    weights = [*model.weights, *model.averages.variables, *model.optimizer.variables]
    return values(weights), history, losses


@pytest.mark.slow  # compiled for a minute
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.equality),
        {"accumulate_steps": 2, "steps_per_execution": 2, "clip_norm": 0.5},
    ],
)
def test_a_training_equals_that_of_the_default_step(options):
    plain, history, losses = trained(False, **options)
    compiled, its_history, its_losses = trained(True, **options)
    for a, b in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6)
    for name, numbers in history.items():
        assert its_history[name] == pytest.approx(numbers, rel=1e-4), name
    assert its_losses == pytest.approx(losses, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_a_batch_that_is_not_fine_is_refused_and_changes_nothing(dtype):
    model = tiny_model(dtype=dtype)
    # "auto" chooses again in each `fit` until a step is done; float16 may do none.
    optimizer = keras.optimizers.SGD(1e-3, momentum=0.9)
    model.compile(optimizer, recipe="reference", jit_compile=True)
    model.fit(Stream(batch()), verbose=0)
    before = everything(model)
    with pytest.raises(FloatingPointError, match="did not change"):
        model.fit(Stream(with_pixel(np.nan)), verbose=0)
    assert_equal(before, everything(model))
    with pytest.raises(ValueError, match="label"):
        model.fit(Stream(batch(label=7)), verbose=0)
    assert_equal(before, everything(model))


@pytest.mark.slow
def test_detections_are_those_without_xla():
    images, _ = batch(2)
    model = lively_model()
    plain = model.predict_on_batch(images)
    model.predict_function, model.jit_compile = None, True
    compiled = model.predict_on_batch(images)
    assert plain["num_detections"].sum() > 10
    np.testing.assert_allclose(compiled["scores"], plain["scores"], atol=1e-4)
    np.testing.assert_array_equal(compiled["num_detections"], plain["num_detections"])
