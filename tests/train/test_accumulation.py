"""N steps of gradient accumulation are one update by the mean of their gradients."""

import keras
import numpy as np
import pytest
from support.arrays import assert_equal
from support.refused_batches import everything
from support.tiny import (
    EAGER,
    Stream,
    batch,
    tiny_model,
    values,
    without_stochastic_depth,
)

from effdet_keras.train import compile_model
from effdet_keras.train.optimizers import steps_done

# A step is compiled for minutes on JAX.
pytestmark = [] if EAGER else [pytest.mark.slow]


def model_without_batches(accumulated, clip_norm, optimizer="momentum", **options):
    """A model whose result for an image does not depend on the others in its batch."""
    keras.utils.set_random_seed(0)
    model = without_stochastic_depth(tiny_model(), batch_norm=False)
    model.compile(
        optimizer,
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


@pytest.mark.parametrize("clip_norm", [0.05, None])
def test_an_update_is_by_the_mean_of_the_gradients_of_its_steps(clip_norm):
    """Each step's gradients are clipped; an update of SGD is in proportion to them."""
    x, y = images_and_truth(2)
    steps = [(x[i : i + 1], {n: v[i : i + 1] for n, v in y.items()}) for i in range(2)]
    moved = []
    for one in steps:
        model = model_without_batches(1, clip_norm, "sgd")
        start = values(model.trainable_variables)
        model.fit(Stream(one), verbose=0)
        model.averages.swap_out()
        after = values(model.trainable_variables)
        moved.append([b - a for a, b in zip(start, after, strict=True)])
    model = model_without_batches(2, clip_norm, "sgd")
    model.fit(Stream(*steps), shuffle=False, verbose=0)
    model.averages.swap_out()
    assert steps_done(model.optimizer) == 2
    changed = 0
    for variable, before, *both in zip(
        values(model.trainable_variables), start, *moved, strict=True
    ):
        expected = np.mean(both, axis=0)
        np.testing.assert_allclose(variable - before, expected, rtol=1e-3, atol=2e-6)
        changed += not np.allclose(expected, 0.0, atol=1e-5)
    assert changed > 20

    # A step that is no update moves neither weights nor averages.
    kept = arrays(model)
    model.fit(Stream(steps[0]), verbose=0)
    model.averages.swap_out()
    assert_equal(arrays(model), kept)
    assert steps_done(model.optimizer) == 3


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
    assert_equal(everything(interrupted).values(), everything(whole).values())


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_adam_counts_updates_and_not_steps(optimizer):
    """Two steps are one update, the first, whose corrections for zeros it has."""
    x, y = images_and_truth(2)
    halves = [(x[i : i + 1], {n: v[i : i + 1] for n, v in y.items()}) for i in range(2)]
    model = model_without_batches(2, None, optimizer)
    before = values(model.trainable_variables)
    model.fit(Stream(*halves), shuffle=False, verbose=0)
    model.averages.swap_out()
    assert steps_done(model.optimizer) == 2
    assert int(model.optimizer.iterations) == 1
    after = values(model.trainable_variables)
    bias = [v.path for v in model.trainable_variables].index(
        "class_net/class-predict/bias"
    )
    # The first update of Adam is by the learning rate, whatever the gradient's size.
    moved = np.abs(after[bias] - before[bias])
    np.testing.assert_allclose(moved, 0.1, rtol=0.05)


@pytest.mark.tensorflow
def test_compile_refuses_what_keras_cannot_accumulate(monkeypatch):
    monkeypatch.setattr(compile_model, "num_replicas", lambda: 2)
    with pytest.raises(ValueError, match="leave `accumulate_steps` out.*=4"):
        tiny_model().compile(accumulate_steps=4)
