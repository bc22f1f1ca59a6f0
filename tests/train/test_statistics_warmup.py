"""Moving statistics of batch norm follow the weights from the first steps on."""

import keras
import numpy as np
import pytest
from keras import ops
from support.tiny import tiny_model

from effdet_keras.train.parts import StatisticsWarmup

BATCH_MEAN = 8.0


def momentum_at(step, momentum=0.99):
    """How much of an old statistic of 0 ... is left: read off one step."""
    layers = (1 - momentum) * BATCH_MEAN
    moved = StatisticsWarmup(momentum).settled(
        ops.array([0.0]), ops.array([layers]), step
    )
    return 1 - float(moved[0]) / BATCH_MEAN


@pytest.mark.parametrize("step", [0, 1, 10, 100, 800])
def test_the_momentum_grows_as_the_decay_of_the_averages_does(step):
    assert momentum_at(step) == pytest.approx((1 + step) / (10 + step), abs=1e-4)


@pytest.mark.parametrize("step", [891, 5_000])
def test_from_step_891_on_the_layers_have_the_last_word_to_the_bit(step):
    after = ops.array([0.1234567])
    moved = StatisticsWarmup(0.99).settled(ops.array([7.0]), after, step)
    np.testing.assert_array_equal(ops.convert_to_numpy(moved), after)


def test_a_shorter_memory_of_the_layers_stays():
    assert momentum_at(100, momentum=0.5) == pytest.approx(0.5)


def test_frozen_statistics_stay_to_the_bit():
    value = ops.array([0.1, 3.3])
    moved = StatisticsWarmup(0.99).settled(value, value, 0)
    np.testing.assert_array_equal(ops.convert_to_numpy(moved), value)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.mark.slow_elsewhere
def test_a_step_of_fit_moves_statistics_by_the_momentum_of_that_step(model):
    """Learning rate 0: the same batch gives the same statistics at every step."""
    images = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3)).astype("uint8")
    truth = {
        "boxes": np.float32([[[8, 8, 40, 40]]] * 2),
        "labels": np.int32([[0]] * 2),
    }
    model.compile(keras.optimizers.SGD(0.0), batch_norm_warmup=True, weight_decay=None)
    statistics = [v for v in model.batch_norm_statistics() if "stem" in v.path]
    start = [ops.convert_to_numpy(v) for v in statistics]
    seen = []
    for _ in range(2):
        model.train_on_batch(images, truth)
        model.averages.restore()
        seen.append([ops.convert_to_numpy(v) for v in statistics])
    for before, first, second in zip(start, *seen, strict=True):
        of_batch = before + (first - before) / 0.9  # momentum 1/10
        np.testing.assert_allclose(
            second, first + (1 - 2 / 11) * (of_batch - first), rtol=1e-3, atol=1e-3
        )
