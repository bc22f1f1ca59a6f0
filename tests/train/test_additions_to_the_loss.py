"""What some trainings add to the step: terms of the loss, a moving normalizer."""

import keras
import numpy as np
import pytest
from keras import ops
from support.tiny import EAGER, batch, tiny_model, without_stochastic_depth

from effdet_keras.extras.moving_normalizer import MovingNormalizer
from effdet_keras.train.losses import DetectionLoss


class Constant:
    """A term of the loss that no weight changes."""

    weight = 0.5

    def __call__(self, ground_truth, outputs):
        return ops.ones(())


def test_an_auxiliary_loss_counts_until_it_is_removed():
    model = tiny_model()
    options = {"weight_decay": None, "ema_decay": None, "run_eagerly": EAGER}
    model.compile("sgd", recipe="reference", **options)

    def loss_and_terms():
        logs = model.fit(*batch(), batch_size=2, verbose=0).history
        terms = logs["class_loss"][0] + 50 * logs["box_loss"][0]
        return logs, logs["loss"][0], terms

    model.add_auxiliary_loss("constant_loss", Constant())
    logs, loss, terms = loss_and_terms()
    assert logs["constant_loss"] == [1.0]
    assert loss == pytest.approx(terms + 0.5, rel=1e-4)
    model.remove_auxiliary_loss("constant_loss")
    logs, loss, terms = loss_and_terms()
    assert "constant_loss" not in logs
    assert loss == pytest.approx(terms, rel=1e-4)


def test_the_moving_average_of_the_positives_by_hand():
    found, store = [], {}
    for normalizer in (10.0, 20.0, 1.5):
        average = MovingNormalizer(0.75)
        assert average.load(store) == bool(store)  # a new one goes on from a file
        found.append(float(average(ops.array(normalizer))))
        average.save(store)
    # The first; 3/4 of it and 1/4 of 20; 3/4 of that and 1/4 of 1.5.
    assert found == [10.0, 12.5, 9.75]


def test_a_refused_batch_does_not_move_it():
    model = tiny_model()
    loss = DetectionLoss(positives_momentum=0.9)
    options = {"ema_decay": None, "run_eagerly": EAGER, "recipe": "reference"}
    model.compile("sgd", loss=loss, **options)
    images, truth = batch()
    model.fit(images, truth, batch_size=2, verbose=0)
    (average,) = model.moving_normalizer.variables
    before = float(average)
    with pytest.raises(FloatingPointError):
        model.fit(images * np.nan, truth, batch_size=2, verbose=0)
    assert float(average) == before > 0.0


@pytest.mark.slow_elsewhere
def test_losses_of_training_alone_are_divided_by_it():
    keras.utils.set_random_seed(0)
    model = without_stochastic_depth(tiny_model(), batch_norm=False)
    few, many = batch(box=(8, 8, 24, 24)), batch(box=(4, 4, 60, 60))

    def losses(**options):
        """The class loss of two steps that leave the weights as they are."""
        options = {"loss": DetectionLoss(**options), "run_eagerly": EAGER}
        model.compile(keras.optimizers.SGD(0.0), ema_decay=None, **options)
        runs = [model.fit(*one, verbose=0).history for one in (few, many)]
        return np.ravel([history["class_loss"] for history in runs])

    n = losses(normalizer="one") / losses()
    np.testing.assert_allclose(n, (49.0, 65.0), rtol=1e-4)  # 48 and 64 positives
    expected = losses() * n / (n[0], 0.9 * n[0] + 0.1 * n[1])
    np.testing.assert_allclose(losses(positives_momentum=0.9), expected, rtol=1e-4)
    evaluated = model.evaluate(*many, verbose=0, return_dict=True)["class_loss"]
    np.testing.assert_allclose(evaluated, losses()[1], rtol=1e-4)
    np.testing.assert_allclose(losses(positives_momentum=-1.0), losses(), rtol=1e-5)


def test_a_validation_loss_is_the_mean_over_batches_on_every_backend():
    """A last batch of fewer images counts as much as the others, as in training."""
    model = tiny_model()
    model.compile(run_eagerly=EAGER)
    images, truth = batch(3)
    truth["boxes"][2, 0] = (4, 4, 60, 60)
    parts = [slice(0, 2), slice(2, 3)]
    each = [
        model.evaluate(
            images[part],
            {name: value[part] for name, value in truth.items()},
            batch_size=2,
            verbose=0,
            return_dict=True,
        )
        for part in parts
    ]
    both = model.evaluate(images, truth, batch_size=2, verbose=0, return_dict=True)
    for name in ("loss", "class_loss", "box_loss"):
        assert abs(each[0][name] - each[1][name]) > 1e-3
        mean = (each[0][name] + each[1][name]) / 2
        assert both[name] == pytest.approx(mean, rel=1e-4), name
