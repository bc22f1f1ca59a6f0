"""N steps of gradient accumulation are one update by a batch N times as large."""

import keras
import numpy as np
import pytest
from support import tiny
from support.tiny import (
    EAGER,
    Stream,
    batch,
    tiny_model,
    values,
    without_stochastic_depth,
)
from train.test_refused_batches import assert_equal, everything

from effdet_keras.train.parts import steps_done

# A step is compiled for minutes on JAX.
pytestmark = [] if EAGER else [pytest.mark.slow]
SIZE = 2  # of the large batch
UPDATES = 2


def model_without_batches(accumulated, clip_norm, **options):
    """A model whose result for an image does not depend on the others in its batch."""
    keras.utils.set_random_seed(0)
    model = without_stochastic_depth(tiny_model(), batch_norm=False)
    model.compile(
        "momentum",
        accumulate_steps=accumulated,
        learning_rate=0.1,
        schedule="constant",
        clip_norm=clip_norm,
        ema_decay=0.5,
        batch_norm_warmup=True,
        **{"run_eagerly": EAGER, **options},
    )
    return model


def images_and_truth(count):
    """Images with boxes of which some have many anchors, and some few."""
    images, truth = batch(count)
    sides = 8.0 + 10.0 * np.arange(count, dtype="float32")
    truth["boxes"][:, 0, 2:] = truth["boxes"][:, 0, :2] + sides[:, None]
    return images, truth


def arrays(model):
    return values([*model.variables, *model.averages.variables])


def test_gradient_multipliers_act_on_what_is_added_up():
    x, y = images_and_truth(SIZE * UPDATES)
    arrays_of = {}
    for accumulated in (1, UPDATES):
        multipliers = {"gradient_multipliers": {"bias$": 3.0}}
        model = model_without_batches(accumulated, 0.05, **multipliers)
        size = SIZE * UPDATES // accumulated
        model.fit(x, y, batch_size=size, shuffle=False, verbose=0)
        arrays_of[accumulated] = arrays(model)
    for one, other in zip(arrays_of[1], arrays_of[UPDATES], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "clip_norm", [0.05, pytest.param(None, marks=pytest.mark.slow)]
)
def test_small_batches_add_up_to_a_large_one(clip_norm):
    x, y = images_and_truth(SIZE * UPDATES)
    whole = model_without_batches(1, clip_norm)
    before = arrays(whole)
    whole.fit(x, y, batch_size=SIZE, shuffle=False, verbose=0)
    parts = model_without_batches(SIZE, clip_norm)
    parts.fit(x, y, batch_size=1, shuffle=False, verbose=0)
    assert (steps_done(whole.optimizer), steps_done(parts.optimizer)) == (2, 4)
    moved = 0
    for a, b, start in zip(arrays(whole), arrays(parts), before, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=2e-6)
        moved += not np.allclose(a, start, rtol=1e-4, atol=1e-5)
    assert moved > 50

    # A step that is no update moves nothing but the sums.
    kept = arrays(parts)
    parts.fit(x[:1], {n: v[:1] for n, v in y.items()}, batch_size=1, verbose=0)
    tiny.assert_equal(arrays(parts), kept)
    assert steps_done(parts.optimizer) == 5


@pytest.mark.parametrize("place", [1, 2])
def test_a_batch_that_is_refused_between_them_is_as_if_it_had_not_been(place):
    x, y = images_and_truth(3)
    parts = [(x[i : i + 1], {n: v[i : i + 1] for n, v in y.items()}) for i in range(3)]
    bad = (np.full_like(x[:1], np.nan), parts[0][1])
    whole, interrupted = (model_without_batches(3, 0.05) for _ in range(2))
    whole.fit(Stream(*parts), shuffle=False, verbose=0)
    interrupted.fit(Stream(*parts[:place]), shuffle=False, verbose=0)
    before = everything(interrupted)
    with pytest.raises(FloatingPointError, match="did not change"):
        interrupted.fit(Stream(bad), verbose=0)
    assert_equal(before, everything(interrupted))  # also the sums of the gradients
    interrupted.fit(Stream(*parts[place:]), shuffle=False, verbose=0)
    tiny.assert_equal(everything(interrupted).values(), everything(whole).values())
