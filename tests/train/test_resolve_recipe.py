"""A recipe is resolved once: no field of what trains is "auto"."""

import dataclasses

import keras
import pytest
from support.tiny import EAGER, batch, tiny_model, values

from effdet_keras.train.auto_recipe import LONG, TrainingFacts
from effdet_keras.train.optimizers import Muon
from effdet_keras.train.recipe import NAMES, Recipe, shorten_warmup
from effdet_keras.train.resolve_recipe import resolve_auto_fields


def unresolved(recipe):
    """The names of the fields that are still "auto"."""
    fields = dataclasses.fields(recipe)
    return [f.name for f in fields if getattr(recipe, f.name) == "auto"]


OPTIMIZERS = {
    "none": lambda: None,
    "adamw": lambda: "adamw",
    "sgd": lambda: "sgd",
    "Keras SGD": lambda: keras.optimizers.SGD(1e-3),
    "Keras AdamW": lambda: keras.optimizers.AdamW(1e-3, weight_decay=0.1),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_resolved_recipe_is_auto(name, optimizer):
    requested = Recipe(name, optimizer=OPTIMIZERS[optimizer]())
    recipe = requested.resolve()
    assert unresolved(recipe) == [] and not recipe.has_auto_fields
    assert recipe.loss is not None and requested.loss is None
    assert recipe.resolve() == recipe
    # The decay is the one that the requested recipe trains with.
    assert recipe.l2_decay == requested.l2_decay
    ours, other = requested.new_optimizer(), recipe.new_optimizer()
    assert type(ours) is type(other) and ours.weight_decay == other.weight_decay


@pytest.mark.parametrize(
    ("arguments", "l2_decay", "own_decay"),
    [
        ({"name": "reference"}, 4e-5, None),
        ({"name": "reference", "optimizer": "adamw"}, 0.0, 0.004),
        ({"name": "reference", "optimizer": "adamw", "weight_decay": 0.1}, 0.0, 0.1),
        ({"name": "reference", "weight_decay": None}, 0.0, None),
    ],
)
def test_the_decay_goes_with_the_optimizer(arguments, l2_decay, own_decay):
    recipe = Recipe(**arguments).resolve()
    assert (recipe.l2_decay, recipe.new_optimizer().weight_decay) == (
        l2_decay,
        own_decay,
    )


def test_what_is_given_is_not_auto():
    recipe = Recipe(ema_decay=None, optimizer="adamw")
    assert set(recipe.given_fields) == {"ema_decay", "optimizer"}
    assert recipe.is_auto("clip_norm") and not recipe.is_auto("ema_decay")
    assert not recipe.is_auto("learning_rate")  # it goes with the optimizer
    assert recipe.resolve(ema_decay=0.5, clip_norm=2.0).ema_decay is None
    assert recipe.resolve(clip_norm=2.0).clip_norm == 2.0


@pytest.mark.parametrize("name", ["reference", "tfod"])
def test_nothing_of_a_named_recipe_is_auto(name):
    recipe = Recipe(name)
    assert not recipe.has_auto_fields and not recipe.is_auto("clip_norm")


def test_former_names_work_for_one_release():
    recipe = Recipe(clip_norm=2.0)
    for old, value in (("is_open", True), ("given", ["clip_norm"])):
        with pytest.warns(DeprecationWarning, match=f"`Recipe.{old}` is `Recipe"):
            assert getattr(recipe, old) == value
    with pytest.warns(DeprecationWarning, match="`Recipe.is_auto`"):
        assert recipe.may_choose("freeze")
    with pytest.warns(DeprecationWarning, match="`Recipe.resolve`"):
        assert recipe.chosen(ema_decay=0.5) == recipe.resolve(ema_decay=0.5)


def test_a_model_keeps_the_requested_recipe_and_trains_with_the_resolved_one():
    model = tiny_model()
    requested = Recipe(clip_norm=5.0)
    model.compile(recipe=requested)
    resolve_auto_fields(model, TrainingFacts(20, 8, steps=50), verbose=False)
    assert model.settings.requested_recipe == requested
    recipe = model.settings.recipe
    assert unresolved(recipe) == [] and recipe.clip_norm == 5.0
    assert recipe.optimizer == "muon" and isinstance(model.optimizer, Muon)


def test_before_fit_a_compiled_model_has_what_the_reference_trains_with():
    """`train_on_batch` and `evaluate` need no `fit`, and neither do files."""
    model = tiny_model()
    model.compile(run_eagerly=EAGER)
    expected = Recipe("reference").resolve()
    assert model.settings.recipe == expected
    assert isinstance(model.optimizer, keras.optimizers.SGD)
    assert model.optimizer.built and model.averages is not None
    model.train_on_batch(*batch())
    assert int(model.optimizer.iterations) == 1


@pytest.mark.parametrize(
    ("arguments", "rate"),
    [
        ({}, 0.08 / 64),
        ({"optimizer": "adamw", "learning_rate": 1e-3, "schedule": "stepwise"}, 1e-3),
    ],
)
def test_before_fit_every_step_trains_at_the_full_rate(arguments, rate):
    """The schedule is as long as a training whose length nobody knows yet."""
    model = tiny_model()
    model.compile(**arguments, run_eagerly=EAGER)
    (kernel,) = [v for v in model.trainable_variables if "class-predict/bias" in v.path]
    for step in range(4):
        assert float(model.optimizer.learning_rate) == pytest.approx(rate)
        before = values([kernel])[0]
        model.train_on_batch(*batch())
        assert int(model.optimizer.iterations) == step + 1
        model.averages.swap_out()
        assert (values([kernel])[0] != before).any()


def test_a_constant_rate_that_was_assigned_before_fit_stays_so():
    model = tiny_model()
    model.compile(recipe="reference", schedule="constant", run_eagerly=EAGER)
    model.optimizer.learning_rate = 1e-4
    model.fit(*batch(), batch_size=2, verbose=0)
    assert float(model.optimizer.learning_rate) == pytest.approx(1e-4)


def test_a_file_has_the_requested_recipe_until_a_step_is_trained():
    model = tiny_model()
    model.compile(clip_norm=5.0)
    resolve_auto_fields(model, TrainingFacts(20, 8, steps=50), verbose=False)
    saved = Recipe.from_config(model.get_compile_config()["recipe"])
    assert saved == Recipe(clip_norm=5.0)
    model.optimizer.iterations.assign(1)
    saved = Recipe.from_config(model.get_compile_config()["recipe"])
    assert saved.name == "auto" and saved.optimizer == "muon"
    assert dataclasses.replace(saved, name="reference").resolve() == (
        model.settings.recipe
    )


def test_the_decay_of_a_long_training_is_not_that_of_the_next_short_one():
    """A file leaves the decay to the optimizer, which may be chosen again."""
    model = tiny_model()
    model.compile()
    resolve_auto_fields(model, TrainingFacts(20, 8, steps=LONG), verbose=False)
    assert model.settings.recipe.weight_decay == 4e-5
    model.optimizer.iterations.assign(1)
    other = tiny_model()
    other.compile_from_config(model.get_compile_config())
    resolve_auto_fields(other, TrainingFacts(20, 8, steps=50), verbose=False)
    assert isinstance(other.optimizer, Muon)
    assert other.optimizer.weight_decay == other.settings.recipe.weight_decay == 0.004


@pytest.mark.parametrize(
    ("arguments", "epochs", "warmup"),
    [
        ({"optimizer": "muon"}, 1, 10),  # of 100 steps
        ({"optimizer": "adamw"}, 2, 20),
        ({"optimizer": "adamw"}, 10, 100),  # an epoch, as the reference's
        ({"optimizer": "adamw"}, 30, 100),
        ({"optimizer": "muon", "schedule": "polynomial"}, 1, 10),
        ({"schedule": {"name": "cosine", "warmup_epochs": 1.0}}, 1, 100),
        ({"schedule": {"name": "cosine", "warmup_steps": 40}}, 1, 40),
        ({"recipe": "reference"}, 1, 100),
    ],
    ids=str,
)
def test_a_short_training_is_not_all_warmup(arguments, epochs, warmup, capsys):
    """Its rate rose to the peak at the last step, and never fell."""
    model = tiny_model()
    model.compile(**arguments)
    facts = TrainingFacts(800, 8, steps=100 * epochs, epochs=epochs)
    resolve_auto_fields(model, facts, verbose=True)
    rate = model.settings.recipe.resolve_schedule(
        batch_size=8, steps_per_epoch=100, epochs=epochs
    )
    assert (rate.warmup_steps, rate.total_steps) == (warmup, 100 * epochs)
    assert ("a tenth of the steps" in capsys.readouterr().out) == (warmup in (10, 20))


def test_a_schedule_with_a_length_of_its_own_has_a_tenth_of_that():
    schedule = {"name": "cosine", "total_steps": 50}
    recipe = Recipe("reference", optimizer="muon", schedule=schedule)
    short = shorten_warmup(recipe, 100, 100)
    assert short.schedule == {**schedule, "warmup_steps": 5}
    assert shorten_warmup(recipe, 5, 100) == recipe
    for given in ("constant", None):
        sgd = keras.optimizers.SGD(0.1)
        other = Recipe(optimizer=sgd) if given is None else Recipe(schedule=given)
        assert shorten_warmup(other, 100, 100) is other
