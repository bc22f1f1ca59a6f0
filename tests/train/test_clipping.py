"""Two-stage clipping, on every backend, alone and in a step."""

import keras
import numpy as np
import pytest
from keras import ops
from support.tiny import EAGER, batch, tiny_model

from effdet_keras.train.gradients import clipped


@pytest.mark.parametrize("scale", [None, 1024.0])
@pytest.mark.parametrize("limit", [0.5, 3.0, 100.0, None])
def test_gradients_are_clipped_one_by_one_and_then_together(limit, scale):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in ((5, 3), (), (40,))]
    expected = arrays
    if limit:
        expected = [g * min(1, limit / np.linalg.norm(g)) for g in arrays]
        together = np.sqrt(sum(np.sum(g**2) for g in expected))
        expected = [g * min(1, limit / together) for g in expected]
    given = [ops.array(g * (scale or 1.0), "float32") for g in arrays]
    ours, norm = clipped(given, limit, scale=scale)
    for a, b in zip(ours, expected, strict=True):
        a = ops.convert_to_numpy(a) / (scale or 1.0)
        np.testing.assert_allclose(a, b, rtol=1e-5)
    total = np.sqrt(sum(np.sum(g**2) for g in expected))
    assert float(norm) == pytest.approx(total, rel=1e-5)


@pytest.mark.slow_elsewhere
def test_a_step_logs_its_norm_and_rate_and_moves_by_what_was_clipped():
    model = tiny_model()
    model.compile(
        keras.optimizers.SGD(0.5),
        clip_norm=0.02,
        weight_decay=None,
        run_eagerly=EAGER,
    )
    before = [np.array(ops.convert_to_numpy(v)) for v in model.trainable_variables]
    model.averages = None
    logs = model.fit(*batch(), verbose=0).history
    assert logs["gradient_norm"] == [pytest.approx(0.02, rel=1e-4)]
    assert logs["learning_rate"] == [0.5]
    after = [ops.convert_to_numpy(v) for v in model.trainable_variables]
    moved = np.sqrt(sum(np.sum((a - b) ** 2.0) for a, b in zip(after, before)))
    assert moved == pytest.approx(0.5 * 0.02, rel=1e-3)
    assert "gradient_norm" not in model.evaluate(*batch(), verbose=0, return_dict=True)
