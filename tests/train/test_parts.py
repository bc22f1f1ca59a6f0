"""What joins the training steps of a model, and leaves them: `Part`."""

import numpy as np
import pytest
from keras import ops
from support.tiny import EAGER, batch, tiny_model

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
