"""The learning-rate range test."""

import numpy as np
import pytest
from support.tiny import EAGER, tiny_model

import effdet_keras as ek
from effdet_keras.data import from_arrays
from effdet_keras.extras import rate_test
from effdet_keras.extras.rate_test import find_learning_rate

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (64, 64, 3), "uint8") for _ in range(4)]
    return from_arrays(
        images, [[[8, 8, 40, 40]]] * 4, [[1]] * 4, ["cat", "dog", "bird"]
    )


@pytest.fixture
def model():
    model = tiny_model()
    model.compile(run_eagerly=EAGER)
    return model


def variables_of(model):
    owners = (model, model.optimizer, model.averages)
    return [np.array(v) for owner in owners for v in owner.variables]


@pytest.mark.smoke
def test_the_rate_rises_exponentially(model):
    rising = rate_test._Rising(1e-4, 1.0, 5)
    rising.set_model(model)
    rising.on_train_begin()
    rates = []
    for step in range(5):
        model.optimizer.iterations.assign(step)
        rates.append(float(model.optimizer.learning_rate))
    np.testing.assert_allclose(rates, [1e-4, 1e-3, 1e-2, 1e-1, 1.0], rtol=1e-5)


@pytest.mark.slow
def test_the_model_stays_as_it_is_and_the_copy_is_trained(model, dataset, tmp_path):
    before, settings = variables_of(model), model.settings
    found = find_learning_rate(
        model, dataset, 2, num_steps=12, lowest=1e-5, highest=1e-1
    )
    for old, new in zip(before, variables_of(model)):
        np.testing.assert_array_equal(old, new)
    assert model.settings is settings
    assert model.trainable_variables == tiny_trainable(model)
    assert 10 <= len(found.losses) == len(found.rates) <= 12
    assert found.rates[:2] == pytest.approx((1e-5, 1e-5 * 1e4 ** (1 / 11)))
    assert found.losses[0] > min(found.losses)  # it learned
    best = found.rates[int(np.argmin(found.smoothed))]
    assert found.suggestion == pytest.approx(best / 10, rel=0.06)
    expected = {"optimizer": "muon", "learning_rate": found.suggestion}
    assert found.arguments == expected

    figure = found.plot(tmp_path / "rates.png")
    assert figure.axes[0].get_xscale() == "log"
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")


def tiny_trainable(model):
    return [v for v in model.weights if v.trainable]


def test_a_loss_that_grows_ends_the_test(model, dataset, monkeypatch):
    callback = rate_test._Rising(1e-6, 1.0, 100)
    callback.set_model(model)
    for batch in range(20):
        mean = 1.0 if batch < 12 else 1.0 + 14.0 * (batch - 11) / (batch + 1)
        callback.on_train_batch_end(batch, {"loss": mean})
        if model.stop_training:
            break
    assert batch == 13  # smoothed: 1.0, 2.9, 4.4
    assert callback.losses[:12] == pytest.approx([1.0] * 12)
    assert callback.losses[12:] == pytest.approx([15.0] * (batch - 11))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lowest": 0.0}, "must be above 0, and `highest` above"),
        ({"lowest": 2.0}, "lowest=2.0, highest=1.0"),
        ({"num_steps": 5}, "`num_steps` must be a whole number of at least 10"),
    ],
)
def test_numbers_out_of_range_are_told(model, dataset, fields, message):
    with pytest.raises(ek.errors.InvalidValueError, match=message):
        find_learning_rate(model, dataset, **fields)
