"""Quantization-aware training: what rounds, when, to which range, and what is kept."""

import keras
import numpy as np
import pytest
from keras import ops
from support.arrays import assert_equal
from support.tiny import EAGER, batch, tiny_model

from effdet_keras.export.network import evaluated
from effdet_keras.extras.quantization import Quantizer, rounded_kernel
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.computing import computing_with
from effdet_keras.weights.archive import write_archive

pytestmark = pytest.mark.tensorflow

PLACE = "stem/activation"


def outputs_of(model, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (2, 64, 64, 3))
    outputs = model(pixels.astype("float32"), training=False)
    return {name: ops.convert_to_numpy(value) for name, value in outputs.items()}


def quantized(**arguments):
    model = tiny_model()
    model.compile(
        keras.optimizers.SGD(1e-3), clip_norm=None, ema_decay=None, run_eagerly=EAGER
    )
    return model.quantize_aware(**arguments)


def train(model, steps=1):
    model.fit(*batch(), batch_size=2, epochs=steps, verbose=0)


def range_of(model, place=PLACE):
    ranges = model.quantization.ranges()
    (name,) = [name for name in ranges if name.endswith(place)]
    return np.array(ranges[name])


def test_nothing_changes_before_the_first_step():
    model = tiny_model()
    before = outputs_of(model)
    assert model.quantize_aware() is model
    assert_equal(before, outputs_of(model))
    assert not model.quantization.is_rounding


@pytest.mark.smoke
def test_the_network_rounds_after_a_step_and_plain_exports_do_not():
    model = quantized()
    train(model)
    assert model.quantization.is_rounding
    rounded = outputs_of(model)
    for values in rounded.values():
        assert len(np.unique(values)) <= 256  # what 8 bits can tell apart
    with evaluated(model) as plain:
        assert plain.quantization is None
        exact = outputs_of(plain)
    gap = np.abs(rounded["class_logits"] - exact["class_logits"]).max()
    assert 0 < gap < 0.5
    with evaluated(model, quantized=True) as same:
        assert same is model


def test_what_was_compiled_before_sees_the_ranges_of_a_later_training():
    model = quantized()
    images, _ = batch()
    before = model.predict_on_batch(images)["scores"]
    train(model)
    assert not np.array_equal(before, model.predict_on_batch(images)["scores"])


class Watching(Quantizer):
    """A quantizer that keeps what it sees, and changes nothing."""

    def __init__(self):
        self.seen = []

    def point(self, name, x, limits=None):
        if limits is None:
            self.seen.append((float(ops.min(x)), float(ops.max(x))))
        return x


def test_the_first_ranges_are_those_of_the_first_batch():
    model, watching = tiny_model(), Watching()
    with computing_with(quantizer=watching):
        model(batch()[0], training=False)
    model.quantize_aware(delay=9)
    model(batch()[0], training=True)
    expected = [(min(low, 0.0), max(high, 1e-5)) for low, high in watching.seen]
    found = list(model.quantization.ranges().values())
    assert len(found) > 40
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_ranges_have_a_memory_that_grows():
    model = tiny_model().quantize_aware(delay=9)
    for count, factor in enumerate((1.0, 0.5, 0.25)):
        before = range_of(model)
        model(factor * batch()[0], training=True)
        after = range_of(model)
        alone = EfficientDet.from_config(model.get_config())
        alone.set_weights(model.get_weights())
        alone(factor * batch()[0], training=True)
        momentum = count / (9 + count)
        expected = momentum * before + (1 - momentum) * range_of(alone)
        np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-6)


def test_ranges_stop_after_range_steps():
    model = tiny_model().quantize_aware(range_steps=2)
    found = []
    for factor in (1.0, 0.5, 0.25):
        model(factor * batch()[0], training=True)
        found.append(range_of(model))
    assert not np.array_equal(found[0], found[1])
    assert np.array_equal(found[1], found[2])


def test_the_delay_counts_steps():
    model = quantized(delay=2)
    for steps in (1, 2):
        train(model)
        assert not model.quantization.is_rounding
        with evaluated(model) as plain:
            assert_equal(outputs_of(model), outputs_of(plain), atol=1e-6)
        assert int(model.optimizer.iterations) == steps
    train(model)
    assert model.quantization.is_rounding
    assert len(np.unique(outputs_of(model)["class_logits"])) <= 256


@pytest.mark.parametrize(("steps", "moves"), [(0, (False, False)), (1, (True, False))])
def test_batch_norm_takes_moving_statistics(steps, moves):
    model = quantized(batch_norm_steps=steps)
    for expected in moves:
        before = [ops.convert_to_numpy(v) for v in model.batch_norm_statistics()]
        train(model)
        after = [ops.convert_to_numpy(v) for v in model.batch_norm_statistics()]
        is_same = [np.array_equal(a, b) for a, b in zip(before, after)]
        assert not any(is_same) if expected else all(is_same)


def test_kernels_round_to_a_scale_for_each_channel():
    kernel = np.random.default_rng(0).normal(size=(3, 3, 4, 5)).astype("float32")
    kernel[..., 2] = 0.0
    found = ops.convert_to_numpy(rounded_kernel(kernel, 3))
    for channel in range(5):
        largest = np.abs(kernel[..., channel]).max()
        steps = found[..., channel] / (largest / 127 if largest else 1.0)
        np.testing.assert_allclose(steps, np.round(steps), atol=1e-3)
        assert np.abs(steps).max() == pytest.approx(127 if largest else 0)
        gap = np.abs(found[..., channel] - kernel[..., channel]).max()
        assert gap <= largest / 127 / 2 * 1.001


def test_gradients_pass_through_the_rounding():
    """Those of the rounded network are near those of the plain one, for all weights."""
    import tensorflow as tf

    model = tiny_model()
    model.compile(clip_norm=None, ema_decay=None)

    def gradients():
        with tf.GradientTape() as tape:
            outputs = model(batch()[0], training=True)
            loss = sum(tf.reduce_sum(value**2) for value in outputs.values())
        return [g.numpy().ravel() for g in tape.gradient(loss, variables)]

    variables = [v.value for v in model.trainable_variables]
    model.quantize_aware(delay=1)  # with moving statistics, and not rounded
    plain = np.concatenate(gradients())
    rounded = gradients()
    assert all(np.any(gradient) for gradient in rounded)
    rounded = np.concatenate(rounded)
    cosine = plain @ rounded / np.linalg.norm(plain) / np.linalg.norm(rounded)
    assert cosine > 0.9


def test_files_keep_ranges(tmp_path):
    model = quantized(delay=0, range_steps=7)
    train(model)
    expected = outputs_of(model)
    model.save(tmp_path / "cats.keras")
    other = EfficientDet.from_archive(tmp_path / "cats.keras")
    assert other.quantization.get_config() == {
        "delay": 0,
        "batch_norm_steps": 0,
        "range_steps": 7,
    }
    assert_equal(expected, outputs_of(other))
    model.save_weights(tmp_path / "cats.weights.h5")
    other = quantized()
    other.load_weights(tmp_path / "cats.weights.h5")
    assert_equal(expected, outputs_of(other))


def test_a_checkpoint_goes_on_with_the_ranges_and_steps(tmp_path):
    model = quantized(delay=2, batch_norm_steps=1, range_steps=4)
    train(model, steps=3)
    path = tmp_path / "cats.keras"
    write_archive(model, path)
    other = EfficientDet.from_archive(path, resume=True)
    assert other.quantization.get_config() == model.quantization.get_config()
    for ours, theirs in zip(model.quantization.variables, other.quantization.variables):
        np.testing.assert_array_equal(ours, theirs)
    train(model)
    other.run_eagerly = True
    train(other)
    assert range_of(model).tolist() == range_of(other).tolist()
    assert_equal(outputs_of(model), outputs_of(other), atol=1e-5)


def test_other_weights_forget_the_ranges(tmp_path):
    tiny_model().save_weights(tmp_path / "plain.weights.h5")
    model = quantized()
    train(model)
    model.load_weights(tmp_path / "plain.weights.h5")
    assert not model.quantization.is_rounding


def test_the_weights_that_early_stopping_restores_keep_their_ranges():
    model = quantized()
    stopping = keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    model.fit(*batch(), batch_size=2, epochs=2, verbose=0, callbacks=[stopping])
    assert stopping.best_weights is not None
    assert int(model.quantization.variables[1]) == 2  # steps
    assert model.quantization.is_rounding and range_of(model).any()


def test_the_rate_that_weights_were_trained_with_becomes_a_tenth(tmp_path):
    model = tiny_model()
    model.compile("adamw", learning_rate=1e-3, run_eagerly=EAGER)
    model.quantize_aware()
    assert model.settings.recipe.learning_rate == 1e-3  # nothing was trained with it
    train(model)
    model.save(tmp_path / "cats.keras")
    other = EfficientDet.from_archive(tmp_path / "cats.keras")
    for _ in range(2):  # and not a hundredth the second time
        other.quantize_aware()
        assert other.settings.recipe.learning_rate == pytest.approx(1e-4)


def test_what_cannot_be_rounded_is_refused():
    with pytest.raises(ValueError, match="`range_steps` must be above `delay`"):
        tiny_model().quantize_aware(delay=5, range_steps=5)
    with pytest.raises(ValueError, match="needs a model in float32"):
        tiny_model(dtype="mixed_bfloat16").quantize_aware()
    config = tiny_model().config.replace(activation="mish")
    with pytest.raises(ValueError, match="activation='mish'"):
        EfficientDet(config).quantize_aware()


def test_a_model_that_has_not_learned_ranges_cannot_be_exported(tmp_path):
    pytest.importorskip("ai_edge_litert")
    model = tiny_model().quantize_aware()
    with pytest.raises(RuntimeError, match="Call `fit` first"):
        model.export(tmp_path / "cats.tflite", precision="int8", verbose=0)
    with pytest.raises(ValueError, match="leave `calibration` out"):
        model.export(
            tmp_path / "cats.tflite",
            precision="int8",
            calibration=batch()[0],
            verbose=0,
        )
    assert not list(tmp_path.iterdir())
