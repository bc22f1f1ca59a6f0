"""Recomputed blocks give the same results, gradients and statistics."""

import keras
import numpy as np
import pytest
from keras import ops
from support.kinds import slow_but
from support.tiny import EAGER, batch, tiny_model

from effdet_keras.network import layers as recompute

HALF = "mixed_bfloat16"


def trained(*, dtype="float32", **options):
    """A model with stochastic depth after two steps; and its history."""
    keras.utils.set_random_seed(0)
    model = tiny_model(dtype=dtype)
    rate = 1e-3  # Large steps would make differences of rounding larger.
    model.compile("sgd", learning_rate=rate, schedule="constant", **options)
    images, truth = batch(4)
    history = model.fit(images, truth, batch_size=2, shuffle=False, verbose=0).history
    variables = [*model.weights, *model.non_trainable_variables]
    return [np.array(ops.convert_to_numpy(v), "float64") for v in variables], history


@pytest.mark.slow_elsewhere
def test_a_training_moves_weights_statistics_and_random_states_as_without(monkeypatch):
    """Also with stochastic depth: the second time draws the same numbers."""
    made, remat = [], keras.remat
    monkeypatch.setattr(keras, "remat", lambda f: made.append(f) or remat(f))
    plain, history = trained(run_eagerly=EAGER)
    assert made == []
    less, its_history = trained(run_eagerly=EAGER, grad_checkpoint=True)
    assert len(made) >= 8  # seven blocks and a cell
    for a, b in zip(plain, less, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)
    for name, values in history.items():
        assert its_history[name] == pytest.approx(values, rel=1e-4), name


@pytest.fixture
def casts_in_place():
    """TensorFlow's graph optimizer moves casts: each graph rounds elsewhere."""
    optimizer = pytest.importorskip("tensorflow").config.optimizer
    optimizer.set_experimental_options({"arithmetic_optimization": False})
    yield
    optimizer.set_experimental_options({"arithmetic_optimization": None})


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize("dtype", slow_but((HALF,), ("float32", HALF)))
def test_compiled_as_well(dtype, casts_in_place):
    """In half precision both passes cast weights, which recomputing has as they are."""
    plain, _ = trained(dtype=dtype)
    less, _ = trained(dtype=dtype, grad_checkpoint=True)
    tolerance = 1e-5 if dtype == "float32" else 2e-3
    for a, b in zip(plain, less, strict=True):
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)


def test_nothing_is_recomputed_outside_of_training(monkeypatch):
    monkeypatch.setattr(keras, "remat", lambda f: pytest.fail("was recomputed"))
    block = keras.layers.BatchNormalization()
    block.build((None, 2, 2, 3))
    block.recomputes = True
    recompute.call_block(block, ops.ones((1, 2, 2, 3)), training=False)
