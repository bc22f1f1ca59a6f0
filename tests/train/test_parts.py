"""What joins the training steps of a model, and leaves them: `Part`."""

import keras
import numpy as np
import pytest
from keras import ops
from support.tiny import EAGER, batch, tiny_model, without_stochastic_depth

from effdet_keras.extras.moving_normalizer import MovingNormalizer
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.parts import Part


class Still(Part):
    """Adds a term to the loss, and stops all weights."""

    logs = ("extra_loss",)

    def loss(self, truth, outputs):
        return 0.5, ops.ones(())

    def gradients(self, loss, gradients, data, step):
        return loss, [ops.zeros_like(g) for g in gradients]


def test_a_part_takes_part_until_it_is_removed():
    model = tiny_model()
    options = {"weight_decay": None, "ema_decay": None, "run_eagerly": EAGER}
    model.compile("sgd", recipe="reference", **options)

    def step():
        before = [ops.convert_to_numpy(v) for v in model.trainable_variables]
        history = model.fit(*batch(), batch_size=2, verbose=0).history
        after = [ops.convert_to_numpy(v) for v in model.trainable_variables]
        return history, [not np.array_equal(a, b) for a, b in zip(before, after)]

    model.add_part("still", Still())
    history, moved = step()
    assert history["extra_loss"] == [1.0]
    terms = history["class_loss"][0] + 50 * history["box_loss"][0]
    assert history["loss"][0] == pytest.approx(terms + 0.5, rel=1e-4)
    assert not any(moved)
    model.remove_part("still")
    history, moved = step()
    assert "extra_loss" not in history
    assert any(moved)


class Counting(Part):
    """Counts the forward passes of training."""

    def __init__(self):
        self.counts = [keras.Variable([0.0], trainable=False) for _ in range(2)]
        super().__init__(statistics=self.counts[:1], moved=self.counts[1:])

    def call(self, run, training):
        for count in self.counts if training else ():
            count.assign(count + 1.0)
        return run()


@pytest.mark.tensorflow
def test_a_refused_batch_moves_no_variable_that_a_part_declares():
    model, part = tiny_model(), Counting()
    model.add_part("counting", part)
    model.compile("sgd", ema_decay=None, run_eagerly=EAGER)
    images, truth = batch()
    model.fit(images, truth, batch_size=2, verbose=0)
    moved = [float(count[0]) for count in part.counts]
    with pytest.raises(FloatingPointError):
        model.fit(images * np.nan, truth, batch_size=2, verbose=0)
    assert [float(count[0]) for count in part.counts] == moved != [0.0, 0.0]
    with pytest.raises(TypeError, match="statistic"):
        Part(statistic=part.counts)  # or it would be read by nobody


def test_the_moving_average_of_the_positives_by_hand():
    found, store = [], {}
    for count, is_fine in ((9.0, True), (19.0, True), (99.0, False), (0.5, True)):
        part = MovingNormalizer(0.75, lambda count, rule: None)
        assert part.load(store) == bool(store)  # a new one goes on from a file
        found.append(float(part.normalizer(count, lambda count: count + 1.0)))
        part.for_optimizer([], [], step=0, is_fine=is_fine)
        part.save(store)
    # The first; 3/4 of it and 1/4 of 20; with 100, which is refused; without.
    assert found == [10.0, 12.5, 34.375, 9.75]


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

    n = losses(divide_by="one") / losses()
    np.testing.assert_allclose(n, (49.0, 65.0), rtol=1e-4)  # 48 and 64 positives
    expected = losses() * n / (n[0], 0.9 * n[0] + 0.1 * n[1])
    np.testing.assert_allclose(losses(positives_momentum=0.9), expected, rtol=1e-4)
    evaluated = model.evaluate(*many, verbose=0, return_dict=True)["class_loss"]
    np.testing.assert_allclose(evaluated, losses()[1], rtol=1e-4)
    np.testing.assert_allclose(losses(positives_momentum=-1.0), losses(), rtol=1e-5)
