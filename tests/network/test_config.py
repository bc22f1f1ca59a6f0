"""Configs: the published table, overrides, and wrong values."""

import csv
import json

import numpy as np
import pytest

from effdet_keras.network.anchors import level_sizes
from effdet_keras.network.config import MODEL_NAMES, EfficientDetConfig

D0 = EfficientDetConfig.from_name("efficientdet-d0")


def test_all_published_models_have_a_config(golden_path):
    with open(golden_path("params.csv")) as file:
        rows = {row["model"]: row for row in csv.DictReader(file)}
    effdets = json.loads(golden_path("torch_effdet_settings.json").read_text())
    assert set(MODEL_NAMES) == set(rows) | set(effdets)
    for name, row in rows.items():
        config = EfficientDetConfig.from_name(name)
        assert config.image_size == (int(row["image"]),) * 2
        low, high = config.min_level, config.max_level
        assert f"{low}-{high}" == row["levels"]
        sizes = level_sizes(config.image_size, low, high)
        count = sum(h * w for h, w in sizes) * config.num_anchors
        assert count == int(row["anchors"])
        assert config.name == name


def test_a_config_survives_json():
    config = D0.replace(
        image_size=(128, 256),
        anchor_scale=[4, 4, 4, 3, 3.5],
        aspect_ratios=[[1, 1], [2, 0.5]],
    )
    again = EfficientDetConfig(**json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert again.image_size == (128, 256)
    assert hash(again) == hash(config)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"backbone": "resnet50"}, "one of efficientnet-b0"),
        ({"num_classes": 0}, "whole number of at least 1"),
        ({"mean_rgb": (1, 2, float("nan"))}, "must be three numbers that are finite"),
        ({"seg_num_classes": 256}, "from 1 to 255"),
        ({"image_size": (512, 0)}, "whole number"),
        ({"image_size": 32}, "`max_level` .*at most twice"),
        ({"min_level": 6}, "from 1 to 5"),
        ({"backbone_activation": "gelu"}, "`backbone_activation` must be None or one"),
        (
            {"resize_method": "asymmetric", "heads": "segmentation"},
            "`resize_method`.*'half_pixel' for a segm",
        ),
    ],
    ids=str,
)
def test_a_wrong_value_is_named_with_what_is_allowed(wrong, message):
    with pytest.raises(ValueError, match=f"{message}.*Received:"):
        D0.replace(**wrong)


def test_numbers_of_numpy_are_those_of_python():
    images = np.full((2, 4, 4, 3), (120, 110, 100), "uint8")
    given = {
        "mean_rgb": images.mean((0, 1, 2)),
        "stddev_rgb": np.float32(64),
        "image_size": np.array([128, 256]),
        "aspect_ratios": [np.array([1.5, 0.5]), np.float64(1)],
        "anchor_scale": np.float32(3),
        "num_classes": np.int64(7),
        "frozen_batch_norm": np.bool_(True),
    }
    expected = {
        "mean_rgb": (120.0, 110.0, 100.0),
        "stddev_rgb": 64.0,
        "image_size": (128, 256),
        "aspect_ratios": ((1.5, 0.5), 1.0),
        "anchor_scale": 3.0,
        "num_classes": 7,
        "frozen_batch_norm": True,
    }
    config = D0.replace(**given)
    assert config == D0.replace(**expected) and hash(config) is not None
    assert json.loads(json.dumps(config.to_dict()))["mean_rgb"] == [120, 110, 100]


def test_heads_are_in_one_order_and_once():
    both = ("object_detection", "segmentation")
    assert D0.replace(heads=["segmentation", "object_detection"]).heads == both
    assert D0.replace(heads="segmentation").heads == ("segmentation",)
    with pytest.raises(ValueError, match="`heads`"):
        D0.replace(heads=())


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'efficientdet-d0'"):
        EfficientDetConfig.from_name("efficientdet_d0")
    with pytest.raises(ValueError, match="Did you mean 'image_size'"):
        D0.replace(imagesize=3)


def test_what_is_beside_a_image_is_the_mean_or_what_is_asked_for():
    config = EfficientDetConfig(mean_rgb=10.0)
    assert config.padding_rgb == (10.0,) * 3
    assert config.replace(mean_rgb=20.0).padding_rgb == (20.0,) * 3
    assert config.replace(pad_rgb=0.0).padding_rgb == (0.0,) * 3
