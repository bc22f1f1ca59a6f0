"""`compile(recipe="tfod")`: how the TF Object Detection API's configs train."""

import keras
import pytest
from support.tiny import EAGER, batch, tiny_model

from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import IoUMatching
from effdet_keras.train.recipe import Recipe, tfod_decay


def rates(recipe, steps):
    schedule = recipe.resolve_schedule(batch_size=8, steps_per_epoch=10, epochs=2)
    return [float(schedule(step)) for step in steps]


def test_its_defaults():
    recipe = Recipe("tfod").chosen()
    assert (recipe.clip_norm, recipe.ema_decay, recipe.freeze) == (None, None, None)
    assert recipe.loss == DetectionLoss(
        delta=1.0, box_loss_weight=1.0, divide_by="positives"
    )
    assert recipe.matching == IoUMatching(in_fractions=True)
    assert recipe.l2_decay == tfod_decay()
    assert not recipe.batch_norm_warmup
    optimizer = recipe.new_optimizer()
    assert (optimizer.momentum, optimizer.nesterov) == (0.9, False)


def test_its_schedule_knows_neither_the_batch_nor_the_length():
    recipe = Recipe("tfod")
    assert not recipe.needs_length
    # The second is 0.001 + 0.079 / 2500.
    found = rates(recipe, (0, 1, 2500, 151_250, 300_000, 400_000))
    assert found == pytest.approx([0.001, 0.0010316, 0.08, 0.04, 0.0, 0.0], abs=1e-8)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"learning_rate": 0.8}, [0.01, 0.8]),  # the warm-up begins in proportion
        ({"schedule": "constant"}, [0.08, 0.08]),
        ({"optimizer": "adam", "learning_rate": 0.08}, [0.001, 0.08]),
    ],
)
def test_what_is_given_counts_more(arguments, expected):
    recipe = Recipe("tfod", **arguments)
    schedule = recipe.resolve_schedule(batch_size=8, steps_per_epoch=10, epochs=2)
    found = [
        float(schedule(step)) if callable(schedule) else schedule for step in (0, 2500)
    ]
    assert found == pytest.approx(expected)


def test_a_shorter_training_and_a_rate_that_is_held():
    schedule = {
        "name": "cosine",
        "total_steps": 100,
        "warmup_steps": 10,
        "warmup_init": 0.02,
        "hold_steps": 30,
    }
    recipe = Recipe("tfod", schedule=schedule)
    assert not recipe.needs_length
    found = rates(recipe, (0, 5, 10, 39, 40, 70, 100))
    expected = [0.02, 0.05, 0.08, 0.08, 0.08, 0.04, 0.0]
    assert found == pytest.approx(expected, abs=1e-7)


@pytest.mark.tensorflow
def test_gradients_are_clipped_together_and_not_each():
    tf = pytest.importorskip("tensorflow")
    gradients = [tf.constant([30.0]), tf.constant([0.0, 40.0])]
    for name, expected in (("tfod", [6.0, 8.0]), ("reference", [7.0711, 7.0711])):
        model = tiny_model()
        model.compile(recipe=name, clip_norm=10.0)
        clipped, _ = model._step.clipped(gradients)
        found = [float(tf.norm(value)) for value in clipped]
        assert found == pytest.approx(expected, rel=1e-4)


def test_it_trains_and_comes_back_from_a_file(tmp_path):
    model = tiny_model()
    model.compile(
        recipe="tfod",
        schedule={"name": "cosine", "total_steps": 4, "warmup_steps": 1},
        run_eagerly=EAGER,
    )
    images, truth = batch()
    history = model.fit(images, truth, epochs=2, batch_size=2, verbose=0).history
    assert model.averages is None
    assert len(history["loss"]) == 2
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.settings.recipe == model.settings.recipe


def test_weights_of_boxes_count_in_both_losses():
    model = tiny_model()
    model.compile(recipe="tfod", weight_decay=None, run_eagerly=EAGER)
    images, truth = batch()
    plain = model.test_on_batch(images, truth, return_dict=True)
    ones = {**truth, "weights": 0 * truth["labels"] + 1.0}
    same = model.test_on_batch(images, ones, return_dict=True)
    assert same["loss"] == pytest.approx(plain["loss"], rel=1e-6)
    zeros = {**truth, "weights": 0 * truth["labels"] + 0.0}
    without = model.test_on_batch(images, zeros, return_dict=True)
    assert without["box_loss"] == 0
    assert without["class_loss"] != pytest.approx(plain["class_loss"], rel=1e-3)
