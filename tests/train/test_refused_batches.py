"""A batch that is refused changes nothing of the model, on any backend."""

import keras
import numpy as np
import pytest
from support import programs
from support.arrays import assert_equal
from support.refused_batches import everything, with_pixel
from support.tiny import EAGER, Stream, batch, tiny_model


def huge():
    images, truth = batch()
    return np.full_like(images, 1e30), truth


BAD = {
    "one NaN pixel": lambda: with_pixel(np.nan),
    "one infinite pixel": lambda: with_pixel(np.inf),
    "pixels whose variance overflows": huge,
    "a label that there is not": lambda: batch(label=7),
    "a box that ends before it begins": lambda: batch(box=(40, 40, 8, 8)),
}


@pytest.fixture(scope="module", params=["compiled", "eager"])
def model(request):
    if request.param == "eager" and keras.backend.backend() != "tensorflow":
        pytest.skip("one step is enough where no graph is made of it")
    model = tiny_model()
    model.compile(
        keras.optimizers.SGD(1e-3, momentum=0.9), run_eagerly=request.param == "eager"
    )
    model.fit(Stream(batch()), verbose=0)
    return model


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_refused_batch_changes_nothing(model, bad):
    before = everything(model)
    with pytest.raises((FloatingPointError, ValueError), match="did not change"):
        model.fit(Stream(bad()), verbose=0)
    assert_equal(before, everything(model))


@pytest.mark.tensorflow
@pytest.mark.parametrize("run_eagerly", [True, False])
def test_ranges_of_quantization_aware_training_do_not_move_either(run_eagerly):
    model = tiny_model()
    model.compile(keras.optimizers.SGD(1e-3), run_eagerly=run_eagerly)
    model.quantize_aware(delay=1)
    for good in (batch(), batch(count=1)):  # before the first that rounds, and after
        before = everything(model)
        with pytest.raises(FloatingPointError, match="did not change"):
            model.fit(Stream(with_pixel(np.nan)), verbose=0)
        assert_equal(before, everything(model))
        model.fit(Stream(good), verbose=0)
    assert model.quantization.is_rounding


@pytest.mark.smoke
@pytest.mark.slow_elsewhere
def test_in_float16_a_loss_scale_hides_nothing():
    """It is for gradients; a loss that is not finite no scale will mend."""
    model = tiny_model(dtype="mixed_float16")
    model.compile(keras.optimizers.SGD(1e-3), run_eagerly=EAGER)
    before = everything(model)
    with pytest.raises(FloatingPointError, match="did not change"):
        model.fit(Stream(with_pixel(np.nan)), verbose=0)
    assert_equal(before, everything(model))


_REPLICAS = """
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)

import keras
import pytest
from support.arrays import assert_equal
from support.refused_batches import everything, with_pixel
from support.tiny import Stream, tiny_model

with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = tiny_model()
    model.compile(keras.optimizers.SGD(1e-3))
before = everything(model)
with pytest.raises(FloatingPointError):
    model.fit(Stream(with_pixel(float("nan"))), verbose=0)
assert_equal(before, everything(model))
"""


@pytest.mark.slow  # a process of its own, for two devices
@pytest.mark.tensorflow
def test_replicas_refuse_together():
    """Also the one whose half of the batch was fine."""
    programs.run_alone("-c", _REPLICAS)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="of train/functions/jax")
def test_of_several_steps_at_once_no_batch_is_blamed():
    """All have run before anybody sees that one of them was not finite."""
    model = tiny_model()
    model.compile(keras.optimizers.SGD(1e-3), steps_per_execution=2)

    def both_steps(state, iterator):
        assert len([next(iterator), next(iterator)]) == 2
        return {"loss": np.nan}, state

    images, truth = batch()
    named = [(images, {**truth, "image_id": np.array([n, n])}) for n in (11, 22)]
    state = model._get_jax_state(
        trainable_variables=True,
        non_trainable_variables=True,
        optimizer_variables=True,
        metrics_variables=True,
    )
    run = model._with_finite_check(both_steps, is_training=True)
    with pytest.raises(FloatingPointError, match="another step that ran together") as e:
        run(state, iter(named))
    assert "22" not in str(e.value)
