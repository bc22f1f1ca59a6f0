"""Moving statistics of batch norm follow the weights from the first steps on."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops
from support.tiny import tiny_model

from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.batch_norm import BatchNormalization, MomentumWarmup


@pytest.mark.parametrize("step", [0, 1, 10, 100, 800, 5000])
@pytest.mark.parametrize("momentum", [0.99, 0.5])
@pytest.mark.parametrize("unbiased", [False, True])
def test_the_momentum_grows_as_the_decay_of_the_averages_does(step, momentum, unbiased):
    """It is how much is left of a mean of 0, where that of the batch is 8."""
    layer = BatchNormalization(momentum=momentum, unbiased=unbiased)
    layer.build((None, 1, 1, 1))
    counter = keras.Variable(step, dtype="int32", trainable=False)
    layer.momentum_warmup = MomentumWarmup(counter)
    layer(np.float32([7.0, 9.0]).reshape(2, 1, 1, 1), training=True)
    expected = min(momentum, (1 + step) / (10 + step))  # or a layer's own
    mean, variance = (float(v[0]) for v in (layer.moving_mean, layer.moving_variance))
    assert 1 - mean / 8.0 == pytest.approx(expected, abs=1e-5)
    variance_of_batch = 2.0 if unbiased else 1.0  # it started at 1
    assert variance == pytest.approx(
        expected + (1 - expected) * variance_of_batch, abs=1e-5
    )


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize("momentum", [None, 0.9])
def test_a_step_of_fit_moves_statistics_by_the_momentum_of_that_step(momentum):
    """Learning rate 0: the same batch gives the same statistics at every step."""
    config = tiny_model().config
    config = dataclasses.replace(config, backbone_batch_norm_momentum=momentum)
    model = EfficientDet(config)
    images = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3)).astype("uint8")
    truth = {"boxes": np.float32([[[8, 8, 40, 40]]] * 2), "labels": np.int32([[0]] * 2)}
    model.compile(keras.optimizers.SGD(0.0), batch_norm_warmup=True, weight_decay=None)
    statistics = [v for v in model.batch_norm_statistics() if "stem" in v.path]
    start = [ops.convert_to_numpy(v) for v in statistics]
    seen = []
    for _ in range(2):
        model.train_on_batch(images, truth)
        model.averages.swap_out()
        seen.append([ops.convert_to_numpy(v) for v in statistics])
    for before, first, second in zip(start, *seen, strict=True):
        of_batch = before + (first - before) / 0.9  # momentum 1/10
        np.testing.assert_allclose(
            second, first + (1 - 2 / 11) * (of_batch - first), rtol=1e-3, atol=1e-3
        )
