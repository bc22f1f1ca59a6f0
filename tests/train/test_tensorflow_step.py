"""The training step on TensorFlow: clipping, float16, replicas, datasets."""

import gc
import weakref

import keras
import numpy as np
import pytest
from support import programs
from support.arrays import assert_equal
from support.tiny import batch, tiny_model, values

tf = pytest.importorskip("tensorflow")
functions = pytest.importorskip("effdet_keras.train.functions.tensorflow")
pytestmark = pytest.mark.tensorflow


@pytest.mark.equality
@pytest.mark.slow  # half a minute, as the next
def test_overflow_in_float16_is_skipped_and_leaves_no_trace():
    model = tiny_model(dtype="mixed_float16")
    model.compile()
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    images, truth = batch()
    model.fit(images, truth, batch_size=2, verbose=0)
    model.averages.swap_out()
    before = values(model.weights)
    scale = float(model.optimizer.dynamic_scale)
    model.optimizer.dynamic_scale.assign(scale * 2.0**30)  # gradients overflow
    model.train_on_batch(images, truth)
    model.averages.swap_out()
    assert_equal(model.weights, before)
    assert float(model.optimizer.dynamic_scale) == scale * 2.0**29
    for average in model.averages.variables:
        assert np.isfinite(np.array(average)).all()


_TWO_REPLICAS = """
import sys
import keras, numpy as np, tensorflow as tf
from support.tiny import batch, tiny_model, without_stochastic_depth
from effdet_keras.model.efficientdet import EfficientDet

def train(count):
    keras.utils.set_random_seed(2)
    plain = tiny_model()
    config = plain.config.replace(sync_batch_norm=count > 1)
    model = without_stochastic_depth(EfficientDet(config))
    model.set_weights(plain.get_weights())
    model.compile(keras.optimizers.SGD(0.1), clip_norm=0.5)
    images, truth = batch(4)
    data = tf.data.Dataset.from_tensor_slices((images, truth)).batch(4)
    model.fit(data, verbose=0, epochs=2)
    return [np.array(v) - old for v, old in zip(model.weights, plain.get_weights())]

count = int(sys.argv[1])
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * count,
)
if count > 1:
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        weights = train(count)
else:
    weights = train(count)
np.savez(sys.argv[2], *weights)
"""


@pytest.mark.equality
@pytest.mark.slow  # over a minute: two processes that train
def test_two_replicas_equal_one_device(tmp_path):
    results = []
    for count in (1, 2):
        path = tmp_path / f"{count}.npz"
        programs.run_alone("-c", _TWO_REPLICAS, count, path)
        arrays = np.load(path)
        results.append([arrays[name] for name in arrays.files])
    one, two = (np.concatenate([a.ravel() for a in arrays]) for arrays in results)
    # The share of each replica is rounded by itself: 0.0016 apart. (Equal images
    # must not be used: they make 0.06 of a rounding error within two steps.)
    assert np.linalg.norm(one - two) < 0.01 * np.linalg.norm(one)


def test_a_model_that_was_trained_can_be_freed():
    model = tiny_model()
    model.compile()
    model.evaluate(*batch(2), verbose=0)
    model_or_none = weakref.ref(model)
    del model
    gc.collect()
    assert model_or_none() is None


def test_slow_rewrites_are_left_out_of_the_training_step_alone():
    options = tf.config.optimizer.get_experimental_options
    seen = []

    class Watched(type(tiny_model())):
        def train_step(self, data):
            seen.append(options())  # while the step is traced
            return super().train_step(data)

        def test_step(self, data):
            seen.append(options())
            return super().test_step(data)

    before = options()
    model = Watched(tiny_model().config)
    model.compile()
    data = batch()
    model.fit(*data, batch_size=2, verbose=0)
    model.evaluate(*data, batch_size=2, verbose=0)
    assert options() == before
    left_out = dict.fromkeys(functions.SLOW_REWRITES, False)
    assert seen == [before | left_out, before]
    seen.clear()
    tf.config.optimizer.set_experimental_options({"constant_folding": True})
    try:  # what the user chose stays
        model.compile()
        model.train_on_batch(*data)
        assert seen == [before | left_out | {"constant_folding": True}]
        assert options() == before | {"constant_folding": True}
    finally:
        tf.config.optimizer.set_experimental_options({"constant_folding": None})
    assert options() == before
