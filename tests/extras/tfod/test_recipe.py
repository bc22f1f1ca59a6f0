"""`compile(recipe="tfod")`: schedule, matches, targets and losses are the API's."""

import dataclasses

import numpy as np
import pytest
from keras import ops
from support.odapi import odapi_path, padded_truth
from support.tiny import EAGER, batch, tiny_model

from effdet_keras.extras.tfod.recipe import tfod_decay
from effdet_keras.network.anchors import anchors_of
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import IoUMatching
from effdet_keras.train.optimizers import clip_gradients
from effdet_keras.train.recipe import Recipe

SIZE = 256
RECIPE = Recipe("tfod").resolve()
CONFIG = EfficientDetConfig(
    image_size=SIZE,
    num_classes=3,
    anchor_order="aspect_first",
    box_scales=(10.0, 10.0, 5.0, 5.0),
)
CASES = ("plain", "padded", "forced", "same_anchor", "none", "all_none")


def rates(recipe, steps):
    schedule = recipe.resolve_schedule(batch_size=8, steps_per_epoch=10, epochs=2)
    return [float(schedule(step)) for step in steps]


@pytest.mark.smoke
def test_its_defaults():
    recipe = RECIPE
    assert (recipe.clip_norm, recipe.ema_decay, recipe.freeze) == (None, None, None)
    assert recipe.loss == DetectionLoss(
        delta=1.0, box_loss_weight=1.0, normalizer="positives"
    )
    assert recipe.matching == IoUMatching(normalized_coordinates=True)
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


@pytest.mark.tensorflow
def test_gradients_are_clipped_together_and_not_each():
    tf = pytest.importorskip("tensorflow")
    gradients = [tf.constant([30.0]), tf.constant([0.0, 40.0])]
    for name, expected in (("tfod", [6.0, 8.0]), ("reference", [7.0711, 7.0711])):
        recipe = Recipe(name, clip_norm=10.0)
        clipped, _ = clip_gradients(
            gradients, recipe.clip_norm, each_first=recipe.clips_each
        )
        found = [float(tf.norm(value)) for value in clipped]
        assert found == pytest.approx(expected, rel=1e-4)


def test_weights_of_boxes_count_in_both_losses():
    model = tiny_model()
    model.compile(recipe="tfod", weight_decay=None, run_eagerly=EAGER)
    images, truth = batch()
    plain = model.test_on_batch(images, truth, return_dict=True)
    ones = {**truth, "weights": 0 * truth["labels"] + 1.0}
    same = model.test_on_batch(images, ones, return_dict=True)
    assert same["loss"] == pytest.approx(plain["loss"], rel=1e-6)
    model.reset_metrics()  # older Keras goes on with the means
    zeros = {**truth, "weights": 0 * truth["labels"] + 0.0}
    without = model.test_on_batch(images, zeros, return_dict=True)
    assert without["box_loss"] == 0
    assert without["class_loss"] != pytest.approx(plain["class_loss"], rel=1e-3)


# Equal to those of the API.


def targets(truth, matching=RECIPE.matching, config=CONFIG):
    """Class targets, box targets and weights of anchors, as arrays."""
    found = matching(
        truth["boxes"],
        truth["labels"],
        anchors_of(config),
        config,
        weights=truth["weights"],
    )
    return [ops.convert_to_numpy(values) for values in found]


@pytest.mark.parametrize("case", CASES)
def test_matches_and_targets(golden, case):
    arrays = golden("odapi_matches.npz")
    truth = padded_truth(arrays, case, SIZE)
    place = arrays[f"{case}/image"], arrays[f"{case}/anchor"]
    rows = np.where(truth["labels"] < 0, -1, np.arange(truth["labels"].shape[1]))
    matched, codes, weights = targets({**truth, "labels": rows})
    expected = np.full(matched.shape, -1)
    expected[place] = arrays[f"{case}/match"]
    np.testing.assert_array_equal(matched, expected)
    expected = np.zeros(codes.shape, "float32")
    expected[place] = arrays[f"{case}/reg_targets"]
    np.testing.assert_allclose(codes, expected, atol=1e-5)
    expected = np.ones(weights.shape, "float32")
    expected[place] = arrays[f"{case}/weight"]
    np.testing.assert_array_equal(weights, expected)


def assert_losses(arrays, case, prefix, loss=RECIPE.loss, **options):
    truth = padded_truth(arrays, f"self/{case}", SIZE)
    classes, codes, weights = targets(truth, **options)
    config = options.get("config", CONFIG)
    terms = loss(
        classes,
        codes,
        arrays["self/class_predictions"],
        arrays["self/box_encodings"],
        anchors_of(config),
        anchor_weights=weights,
        box_scales=config.box_scales,
    )
    # There the terms have their weights.
    for ours, weight, theirs in (
        ("class_loss", loss.class_loss_weight, "classification"),
        ("box_loss", loss.box_loss_weight, "localization"),
    ):
        value = float(terms[ours]) * weight
        expected = float(arrays[f"{prefix}/Loss/{theirs}_loss"])
        assert value == pytest.approx(expected, rel=1e-5), ours
    total = sum(float(arrays[f"{prefix}/Loss/{n}_loss"]) for n in _NAMES)
    assert float(terms["loss"]) == pytest.approx(total, rel=1e-5)


_NAMES = ("classification", "localization")


@pytest.mark.parametrize("case", CASES)
def test_losses(case):
    arrays = np.load(odapi_path("losses.npz"))
    assert_losses(arrays, case, f"self/{case}")


@pytest.mark.parametrize(
    ("variant", "matching", "loss", "config"),
    [
        ("zoo_box_scales", {}, {}, {"box_scales": (1.0, 1.0, 1.0, 1.0)}),
        (
            "weights",
            {},
            {
                "alpha": 0.5,
                "gamma": 2.0,
                "delta": 0.1,
                "class_loss_weight": 0.7,
                "box_loss_weight": 50.0,
            },
            {},
        ),
        ("no_normalisation", {}, {"normalizer": "one", "box_loss_weight": 4.0}, {}),
        (
            "ignore_zone",
            {"iou_threshold": 0.6, "ignore_threshold": 0.4, "background_weight": 0.5},
            {},
            {},
        ),
        ("no_force", {"force": False}, {}, {}),
    ],
)
def test_losses_of_other_configs(variant, matching, loss, config):
    arrays = np.load(odapi_path("losses.npz"))
    assert_losses(
        arrays,
        "plain",
        f"self/variant_{variant}",
        dataclasses.replace(RECIPE.loss, **loss),
        matching=dataclasses.replace(RECIPE.matching, **matching),
        config=CONFIG.replace(**config),
    )


def test_ignored_anchors_and_weights_by_hand():
    # IoUs with the box: 1, 0.5, 0.25 and 0.
    anchors = np.float32([[0, 0, 8, 8], [0, 0, 8, 4], [0, 0, 4, 4], [50, 50, 60, 60]])
    boxes, labels = np.float32([[[0, 0, 8, 8]]]), [[2]]
    rule = dataclasses.replace(
        RECIPE.matching, iou_threshold=0.6, ignore_threshold=0.4, background_weight=0.5
    )
    classes, codes, weights = rule(boxes, labels, anchors, CONFIG, weights=[[3.0]])
    assert ops.convert_to_numpy(classes).tolist() == [[2, -2, -1, -1]]
    assert ops.convert_to_numpy(weights).tolist() == [[3.0, 1.0, 0.5, 0.5]]
    assert not ops.convert_to_numpy(codes)[0, 1:].any()


def test_a_box_of_weight_0_claims_no_anchor():
    anchors = np.float32([[0, 0, 8, 8], [0, 0, 40, 40]])
    boxes, labels = np.float32([[[0, 0, 3, 3], [0, 0, 8, 6]]]), [[0, 1]]
    for weight, expected in ((0.0, [1, -1]), (1.0, [0, -1])):
        classes, *_ = RECIPE.matching(
            boxes, labels, anchors, CONFIG, weights=[[weight, 1.0]]
        )
        assert ops.convert_to_numpy(classes)[0].tolist() == expected
