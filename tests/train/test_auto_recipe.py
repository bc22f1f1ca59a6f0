"""What `compile(recipe="auto")` chooses, and what it leaves to the caller."""

import dataclasses
import re

import keras
import numpy as np
import pytest
from support.tiny import batch, tiny_model

from effdet_keras.augment import Mosaic
from effdet_keras.data import from_arrays
from effdet_keras.data.default_jitter import scale_jitter
from effdet_keras.train.auto_recipe import (
    LONG,
    SHORT,
    TrainingFacts,
    augmentation,
    choose,
    describe,
    num_epochs,
)
from effdet_keras.train.freezing import frozen_state
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import ATSSMatching, IoUMatching, Matching
from effdet_keras.train.optimizers import Muon
from effdet_keras.train.resolve_recipe import resolve_auto_fields


def chosen(**facts):
    known = {"num_images": 160, "batch_size": 8, "steps": 200, **facts}
    return {choice.field: choice.value for choice in choose(TrainingFacts(**known))}


def test_a_pretrained_backbone_is_frozen_in_a_short_training():
    assert chosen(pretrained="backbone")["freeze"] == "backbone"
    long = chosen(pretrained="backbone", steps=20_000)["freeze"]
    for layer in ("stem/conv2d", "blocks_4/conv2d", "blocks_15/tpu_batch_norm"):
        assert re.match(long, f"efficientnet-b0/{layer}/weight")
    assert not re.match(long, "efficientnet-b0/blocks_5/conv2d/kernel")
    assert "freeze" not in chosen()
    assert "freeze" not in chosen(pretrained="detector")


@pytest.mark.parametrize("steps", [50, 200, 600, 5_000])
def test_a_detector_of_other_classes_learns_as_new_heads_do(steps):
    """At the rate and with the matching of its own training, cards ended 0.13 lower."""
    other_classes = chosen(pretrained="detector of other classes", steps=steps)
    new_heads = chosen(pretrained="backbone", steps=steps)
    # While the backbone stands still nothing is forgotten at a higher rate.
    factor = 2 if steps < SHORT else 1
    new_heads["learning_rate"] *= factor
    assert other_classes == new_heads


@pytest.mark.parametrize(
    "pretrained", [None, "backbone", "detector of other classes", "detector"]
)
def test_heads_learn_from_the_anchors_around_each_box(pretrained):
    found = chosen(pretrained=pretrained)
    assert isinstance(found["matching"], ATSSMatching)
    assert found["loss"] == DetectionLoss(iou_loss_type="ciou", iou_loss_weight=4.0)


def test_new_classes_alone_have_a_recipe_of_their_own():
    # Boxes do not learn with new classes, and their outputs may have a higher rate.
    added = chosen(pretrained="detector", trains_new_classes=True)
    assert isinstance(added["matching"], ATSSMatching) and "loss" not in added
    assert added["learning_rate"] > chosen(pretrained="detector")["learning_rate"]


def test_the_rate_follows_the_batch_size_and_what_is_new():
    assert chosen(batch_size=2)["learning_rate"] == chosen()["learning_rate"] / 2
    assert chosen(pretrained="detector")["learning_rate"] < chosen()["learning_rate"]


def test_a_long_training_is_the_references():
    assert chosen(steps=LONG) == {}
    assert chosen(steps=LONG - 1)["optimizer"] == "muon"


def test_the_rate_of_longer_trainings_falls_without_a_step():
    rates = [chosen(steps=n)["learning_rate"] for n in (200, 3_000, 3_001, 12_000)]
    assert rates[0] == rates[1] == rates[2] == 2 * rates[3]


def test_a_backbone_that_trains_moves_slower_than_what_is_new():
    """At the rate of new layers it forgets: cards ended at AP 0.15, not 0.40."""
    long, short = (chosen(pretrained="backbone", steps=n) for n in (500, 499))
    assert long["learning_rate_multipliers"] == {"^efficientnet": 0.2}
    assert "learning_rate_multipliers" not in short
    short = chosen(pretrained="backbone", backbone_trains=True)
    assert short["learning_rate_multipliers"] and "freeze" not in short
    settled = chosen(pretrained="backbone", steps=3_000, backbone_trains=False)
    assert not {"learning_rate_multipliers", "freeze"} & set(settled)
    assert "learning_rate_multipliers" not in chosen(steps=3_000)


def test_images_are_jittered_more_the_more_there_are():
    assert scale_jitter(50) == scale_jitter(5_000) == (0.8, 1.25)
    assert scale_jitter(22_361) == (0.283, 1.581)  # half way: the geometric means
    assert scale_jitter(100_000) == scale_jitter(1_000_000) == (0.1, 2.0)
    lows, highs = zip(*(scale_jitter(n) for n in range(5_000, 100_001, 5_000)))
    assert list(lows) == sorted(lows, reverse=True) and list(highs) == sorted(highs)


def test_images_that_are_seen_often_are_joined_to_mosaics():
    assert augmentation(80, 8, 1) is augmentation(80, 8, 20) is None
    augments = [augmentation(80, 8, epochs) for epochs in (30, 40, 60, 1_400)]
    assert [one.probability for one in augments] == [0.12, 0.25, 0.5, 0.5]
    assert isinstance(augments[-1].augmentation, Mosaic)
    # From so many steps on the recipe is the reference's, which has none.
    assert augmentation(LONG, 64, 63) is not None is augmentation(LONG, 64, 65)


def test_epochs_come_to_the_steps_of_a_training_without_a_length():
    assert num_epochs(160, 8) == 70
    assert num_epochs(3, 8) == 1_400
    assert [num_epochs(n, 8) for n in (4_960, 5_040, 20_000)] == [3, 3, 1]


def test_what_was_chosen_is_told_with_its_reason_and_what_was_given():
    facts = TrainingFacts(160, batch_size=8, steps=200, pretrained="backbone")
    text = describe(choose(facts), facts, ["ema_decay"])
    assert "160 images, 200 steps of 8" in text
    assert "freeze='backbone'" in text and "the backbone is pretrained" in text
    assert text.endswith("given by you: ema_decay")
    assert "scale_jitter" not in text


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def finish_load(model, *, pretrained=None, **arguments):
    """The recipe that `fit` would train with."""
    model.compile(**arguments)
    return chosen_for(model, pretrained=pretrained)


def chosen_for(model, steps=50, pretrained=None):
    facts = TrainingFacts(20, batch_size=8, steps=steps, pretrained=pretrained)
    resolve_auto_fields(model, facts, verbose=False)
    return model.settings.recipe


@pytest.fixture
def freed(model):
    """The same model; afterwards all of it trains again."""
    yield model
    model.pretrained = None
    model.unfreeze()


def test_compile_without_arguments_takes_what_is_chosen(model):
    recipe = finish_load(model)
    assert recipe.optimizer == "muon" and recipe.batch_norm_warmup
    assert isinstance(model.optimizer, Muon)


def test_the_reference_chooses_nothing(model):
    recipe = finish_load(model, recipe="reference")
    assert recipe.optimizer is None and not recipe.batch_norm_warmup
    assert (recipe.clip_norm, recipe.ema_decay) == (10.0, 0.9998)
    assert (recipe.loss, recipe.matching) == (DetectionLoss(), IoUMatching())


def test_what_the_caller_gives_stays(model):
    recipe = finish_load(model, ema_decay=None, clip_norm=1.0, batch_norm_warmup=False)
    assert (recipe.ema_decay, recipe.clip_norm) == (None, 1.0)
    assert model.averages is None and not recipe.batch_norm_warmup


@pytest.mark.slow_elsewhere
def test_a_matching_of_ones_own_gives_the_targets(model):
    seen = []

    class Mine(Matching):
        def __call__(self, boxes, labels, anchors, config):
            seen.append((anchors.shape, config))
            return IoUMatching(iou_threshold=0.7)(boxes, labels, anchors, config)

    finish_load(model, matching=Mine())
    outputs = {
        "class_logits": np.zeros((2, len(model.anchors), 3), "float32"),
        "box_deltas": np.zeros((2, len(model.anchors), 4), "float32"),
    }
    mine = float(model.compute_loss(y=batch()[1], y_pred=outputs))
    assert seen == [((len(model.anchors), 4), model.config)]
    finish_load(model, matching=IoUMatching(iou_threshold=0.7))
    assert float(model.compute_loss(y=batch()[1], y_pred=outputs)) == mine
    finish_load(model, matching=ATSSMatching())
    assert float(model.compute_loss(y=batch()[1], y_pred=outputs)) != mine


def test_a_rate_alone_is_for_the_optimizer_that_is_chosen(model):
    chosen = finish_load(model)
    recipe = finish_load(model, learning_rate=0.002)
    assert recipe == dataclasses.replace(chosen, learning_rate=0.002)
    recipe = finish_load(model, recipe="reference", learning_rate=0.04)
    assert recipe.optimizer is None and recipe.learning_rate == 0.04
    recipe = finish_load(model, optimizer="adamw")
    assert recipe.learning_rate is None and recipe.schedule is None
    recipe = finish_load(model, optimizer=keras.optimizers.Adam(0.5))
    assert float(model.optimizer.learning_rate) == 0.5


@pytest.mark.parametrize("is_generator", [False, True])
def test_a_keras_optimizer_trains_with_the_matching_and_loss_of_the_data(is_generator):
    model = tiny_model()
    model.compile(keras.optimizers.SGD(1e-3, weight_decay=1e-4), ema_decay=None)
    optimizer = model.optimizer

    def batches():
        yield batch()

    if is_generator:  # nothing tells how many images there are
        model.fit(batches(), verbose=0)
    else:
        model.fit(*batch(), batch_size=2, verbose=0)
    recipe = model.settings.recipe
    assert isinstance(recipe.matching, ATSSMatching)
    assert recipe.loss.iou_loss_type == "ciou" and recipe.ema_decay is None
    assert model.optimizer is optimizer and int(optimizer.iterations) == 1


def test_nothing_is_chosen_anew_once_a_step_was_trained(model):
    finish_load(model)
    model.optimizer.iterations.assign(1)
    before = model.settings.recipe
    assert chosen_for(model, steps=7) is before
    assert model.get_compile_config()["recipe"]["optimizer"] is not None


def test_what_is_frozen_already_stays_so(freed):
    freed.pretrained = "backbone"
    freed.compile()
    freed.freeze("(?!class_net/)")
    chosen_for(freed, pretrained="backbone")
    assert {v.path.split("/")[0] for v in freed.trainable_variables} == {"class_net"}
    freed.unfreeze()
    chosen_for(freed, pretrained="backbone")  # and what was freed stays free
    assert any("efficientnet" in v.path for v in freed.trainable_variables)


@pytest.mark.parametrize("compiles", [False, True])
def test_what_fit_froze_is_chosen_again_for_another_training(freed, compiles):
    """The first one ended before its first step, for instance by Ctrl-C."""
    finish_load(freed, pretrained="backbone")
    assert frozen_state(freed)["weights"]
    if compiles:
        freed.compile()
        assert not frozen_state(freed)["weights"]
    recipe = chosen_for(freed, steps=5000, pretrained="backbone")
    frozen = frozen_state(freed)
    freed.unfreeze()
    freed.compile()
    assert recipe == chosen_for(freed, steps=5000, pretrained="backbone")
    assert recipe.freeze != "backbone" and frozen == frozen_state(freed)


def test_what_the_caller_froze_after_fit_stays_frozen(freed):
    finish_load(freed, pretrained="backbone")
    freed.get_layer("fpn_cells").trainable = False
    freed.compile()
    parts = {path.split("/")[0] for path in frozen_state(freed)["weights"]}
    assert parts == {"fpn_cells"}


@pytest.mark.parametrize("freeze", [None, "backbone", "efficientnet-.*/stem/"])
def test_the_rate_of_the_backbone_follows_what_compile_froze(freed, freeze):
    slow = finish_load(
        freed, pretrained="backbone", freeze=freeze
    ).learning_rate_multipliers
    assert slow == (None if freeze == "backbone" else {"^efficientnet": 0.2})
    factors = getattr(freed.optimizer, "_factors", [])
    assert set(factors) == (set() if freeze == "backbone" else {0.2, 1.0})


def test_statistics_of_a_backbone_that_it_freezes_move_where_asked(freed):
    finish_load(freed, pretrained="backbone", freeze_batch_norm=False)
    frozen = frozen_state(freed)
    assert frozen["weights"] and not frozen["batch_norms"]
    assert freed.settings.requested_recipe.given_fields == ["freeze_batch_norm"]


@pytest.mark.tensorflow
@pytest.mark.parametrize(("epochs", "share"), [(2, None), (60, 0.5)])
def test_fit_chooses_mosaics_by_its_epochs(model, monkeypatch, epochs, share):
    image = np.zeros((64, 64, 3), "uint8")
    data = from_arrays([image] * 2, [[[8, 8, 40, 40]]] * 2, [[0]] * 2, ["a"])
    seen = []

    def batches(*_, augment, **__):
        seen.append(augment)
        raise InterruptedError

    monkeypatch.setattr(type(data), "batches", batches)
    model.compile()
    with pytest.raises(InterruptedError):
        model.fit(data, epochs=epochs, verbose=0)
    assert [getattr(one, "probability", None) for one in seen] == [share]
