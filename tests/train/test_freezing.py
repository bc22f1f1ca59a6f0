"""What is frozen neither trains nor moves, and stays frozen in an archive."""

import pickle
import re

import keras
import numpy as np
import pytest
from keras import ops
from support.arrays import assert_equal
from support.tiny import BACKBONE, batch, tiny_model

from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.train.freezing import WEIGHT_GROUPS, frozen_state
from effdet_keras.train.recipe import Recipe

# A matter of Keras' flags, which are the same on every backend.
pytestmark = pytest.mark.slow_elsewhere

STATISTICS = ("moving_mean", "moving_variance")


def by_path(variables):
    return {v.path: np.array(ops.convert_to_numpy(v)) for v in variables}


def changed(model, before):
    """Paths of the weights that are not what they were."""
    after = by_path(model.weights)
    return {path for path in before if (after[path] != before[path]).any()}


def train(model, steps=2):
    before = by_path(model.weights)
    # Boxes for every level: a head of a level without one has no gradient.
    images, truth = batch(box=((8, 8, 40, 40), (20, 4, 60, 50)))
    for _ in range(steps):
        model.train_on_batch(images, truth)
    return changed(model, before)


def compiled(**options):
    model = tiny_model()
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(optimizer, ema_decay=0.9, run_eagerly=True, **options)
    return model


@pytest.mark.parametrize(
    "field", ["weight_decay", "learning_rate_multipliers", "gradient_multipliers"]
)
def test_a_wrong_regular_expression_is_named_before_training(field):
    message = r"must be a valid regular expression. Received: {}='\('"
    with pytest.raises(ValueError, match=message.format(field)):
        Recipe(**{field: {"(": 2.0}})
    with pytest.raises(ValueError, match=message.format("freeze")):
        Recipe(freeze="(")
    with pytest.raises(ValueError, match=message.format(field)):
        RunConfiguration(**{field: {"(": 2.0}})


def test_the_method_freeze_names_a_wrong_regular_expression():
    with pytest.raises(ValueError, match=r"valid regular expression.*freeze='\['"):
        tiny_model().freeze("[")


# The reference's `var_freeze_expr`, as its users have it, and parts by name.
@pytest.mark.parametrize(
    "what, frozen",
    [
        ("(efficientnet|fpn_cells|resample_p6)", ("efficientnet", "fpn_cells")),
        ("backbone+fpn", ("efficientnet", "fpn_cells")),
        ("backbone", ("efficientnet",)),
        (".*/bias", ()),
    ],
)
def test_frozen_weights_are_bit_equal_after_training(what, frozen):
    model = compiled(freeze=what)
    moved = train(model)
    pattern = re.compile(WEIGHT_GROUPS.get(what, what))
    expected = {
        v.path
        for v in model.weights
        if not pattern.match(v.path)
        and not any(v.path.startswith(part) for part in frozen)
    }
    assert moved <= expected
    trainable = {v.path for v in model.trainable_variables}
    assert trainable == {p for p in expected if not p.endswith(STATISTICS)}
    # Some weights have no gradient in two steps (relu6): most must move.
    assert len(moved & trainable) > 0.9 * len(trainable)
    # The optimizer and the averages hold what trains and no more.
    momenta = [v for v in model.optimizer.variables if "momentum" in v.path]
    assert len(momenta) == len(trainable)
    sources = {v.path for v in model.averages.sources}
    assert {p for p in sources if not p.endswith(STATISTICS)} == trainable


def test_batch_norms_of_frozen_parts_stand_still_unless_asked():
    def changed_statistics(**options):
        model = compiled(freeze="backbone", **options)
        return {
            path.split("/")[0].split("-")[0]
            for path in train(model, steps=1)
            if path.endswith(STATISTICS)
        }

    assert "efficientnet" not in changed_statistics()
    assert "efficientnet" in changed_statistics(freeze_batch_norm=False)


def test_unfreezing_lets_everything_train_again():
    model = compiled(freeze="backbone")
    model.unfreeze()
    assert model.optimizer is not None
    paths = {v.path for v in model.trainable_variables}
    assert len(paths) == len(tiny_model().trainable_variables)
    moved = train(model)
    assert any(path.startswith("efficientnet") for path in moved)
    assert frozen_state(model) == {"weights": [], "batch_norms": []}


@pytest.mark.parametrize("by_hand", [False, True])
def test_an_archive_resumes_with_what_was_frozen(tmp_path, by_hand):
    if by_hand:
        model = tiny_model()
        model.get_layer("fpn_cells").trainable = False
        model.compile("sgd", run_eagerly=True)
    else:
        model = compiled(freeze="backbone")
    train(model, steps=1)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert frozen_state(again) == frozen_state(model)
    assert len(again.trainable_variables) == len(model.trainable_variables)
    assert_equal(again.weights, model.weights)
    assert_equal(again.optimizer.variables, model.optimizer.variables)
    assert_equal(again.averages.variables, model.averages.variables)


def test_what_is_frozen_stays_so_in_files_of_a_model_that_was_never_compiled(tmp_path):
    model = tiny_model()
    assert "frozen" not in model.get_config()
    model.freeze("backbone")
    model.save(tmp_path / "model.keras")
    copies = {
        "file": keras.saving.load_model(tmp_path / "model.keras"),
        "pickle": pickle.loads(pickle.dumps(model)),
        "activation": model.with_activation("hswish"),
    }
    frozen = frozen_state(model)
    assert frozen["weights"] and frozen["batch_norms"]
    for copy in copies.values():
        assert frozen_state(copy) == frozen
        assert_equal(copy.weights, model.weights)


@pytest.mark.parametrize(
    "what, message",
    [
        (
            "bakcbone",
            rf"No weight of the model matches.*'backbone'.*{BACKBONE}, fpn_cells",
        ),
        (".*", "freezes all weights.*nothing is left to train"),
    ],
)
def test_what_freezes_nothing_or_all_is_an_error(what, message):
    model = tiny_model()
    with pytest.raises(ValueError, match=message):
        model.freeze(what)
    assert len(model.trainable_variables) == len(tiny_model().trainable_variables)
