"""Matches, targets and losses equal to those of the TF Object Detection API."""

import dataclasses

import numpy as np
import pytest
from keras import ops
from support.odapi import odapi_path, padded_truth

from effdet_keras.model.anchors import anchors_of
from effdet_keras.model.config import EfficientDetConfig
from effdet_keras.train.recipe import Recipe

SIZE = 256
RECIPE = Recipe("tfod").chosen()
CONFIG = EfficientDetConfig(
    image_size=SIZE,
    num_classes=3,
    anchor_order="aspect_first",
    box_scales=(10.0, 10.0, 5.0, 5.0),
)
CASES = ("plain", "padded", "forced", "same_anchor", "none", "all_none")


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
        ("no_normalisation", {}, {"divide_by": "one", "box_loss_weight": 4.0}, {}),
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
