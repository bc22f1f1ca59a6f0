"""Configs: the published table, overrides, and wrong values."""

import csv
import dataclasses
import json

import pytest

from effdet_keras.model.anchors import level_sizes
from effdet_keras.model.config import MODEL_NAMES, EfficientDetConfig

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


def test_defaults_are_those_of_d0():
    assert EfficientDetConfig() == D0


def test_stochastic_depth_is_off_for_b0_alone():
    off = [
        name
        for name in MODEL_NAMES
        if EfficientDetConfig.from_name(name).backbone_survival_prob is None
    ]
    assert off == ["efficientdet-d0"]


def test_a_config_survives_json():
    config = D0.replace(
        image_size=(128, 256), anchor_scale=[4, 4, 4, 3, 3.5], aspect_ratios=[[1, 1], 2]
    )
    again = EfficientDetConfig(**json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert again.image_size == (128, 256)
    assert hash(again) == hash(config)


def test_one_number_stands_for_all_sides_and_colours():
    config = D0.replace(image_size=256, mean_rgb=127.0)
    assert config.image_size == (256, 256)
    assert config.mean_rgb == (127.0, 127.0, 127.0)


WRONG = {
    "heads": (("object_detection", "depth"), "some of 'object_detection', 'segm"),
    "seg_num_classes": (256, "at most 255"),
    "backbone": ("resnet50", "one of efficientnet-b0"),
    "image_size": ((512, 0), "whole number"),
    "num_classes": (0, "whole number >= 1"),
    "min_level": (6, "1 to 5"),
    "max_level": (4, "at least 5"),
    "num_scales": (1.5, "whole number"),
    "aspect_ratios": ((1.0, -2.0), "above zero"),
    "anchor_scale": ((4.0, 4.0), "5 of them"),
    "backbone_taps": ((6, 14), "3 blocks of the backbone"),
    "anchor_order": ("xy", "one of scale_first"),
    "box_scales": ((10.0, 10.0, 5.0, 0.0), "four numbers above zero"),
    "resize_method": ("bicubic", "one of half_pixel"),
    "fpn_num_filters": (True, "whole number"),
    "fpn_cell_repeats": (-1, "whole number"),
    "fpn_name": ("panet", "one of bifpn, qufpn"),
    "fpn_downsampling": ("avg", "one of max, bilinear"),
    "fpn_upsampling": ("bicubic", "one of nearest, bilinear"),
    "fpn_padding": ("valid", "one of same, symmetric"),
    "backbone_padding": ("", "one of same, symmetric"),
    "redundant_bias": (None, "True or False"),
    "backbone_batch_norm_momentum": (1.5, "below 1"),
    "backbone_batch_norm_epsilon": (0.0, "above zero"),
    "fpn_weight_method": ("fast", "one of fastattn, attn, sum"),
    "head_repeats": (0, "whole number"),
    "activation": ("tanh", "one of swish"),
    "separable_conv": ("yes", "True or False"),
    "conv_bn_act_pattern": (1, "True or False"),
    "conv_after_downsample": (None, "True or False"),
    "apply_bn_for_resampling": (0, "True or False"),
    "survival_prob": (1.5, "at most 1"),
    "backbone_survival_prob": (0, "above 0"),
    "mean_rgb": ((1.0, 2.0), "three"),
    "stddev_rgb": (0.0, "above zero"),
    "pad_rgb": ("black", "three"),
    "batch_norm_momentum": (1.0, "below 1"),
    "batch_norm_epsilon": (-1e-3, "above zero"),
    "batch_norm_unbiased": (1, "True or False"),
    "sync_batch_norm": ("all", "True or False"),
    "frozen_batch_norm": (2, "True or False"),
}


def test_every_field_but_the_name_is_checked():
    fields = {field.name for field in dataclasses.fields(EfficientDetConfig)}
    assert fields - set(WRONG) == {"name"}


@pytest.mark.parametrize("field", WRONG)
def test_a_wrong_value_is_named_with_what_is_allowed(field):
    value, message = WRONG[field]
    with pytest.raises(ValueError, match=message) as error:
        D0.replace(**{field: value})
    assert f"`{field}`" in str(error.value)
    assert "Received:" in str(error.value)


def test_heads_are_in_one_order_and_once():
    both = ("object_detection", "segmentation")
    assert D0.replace(heads=["segmentation", "object_detection"]).heads == both
    assert D0.replace(heads="segmentation").heads == ("segmentation",)
    assert D0.heads == ("object_detection",)
    with pytest.raises(ValueError, match="`heads`"):
        D0.replace(heads=())


def test_masks_are_resized_in_one_way():
    asymmetric = D0.replace(resize_method="asymmetric")
    with pytest.raises(ValueError, match="`resize_method`.*'half_pixel' with a segm"):
        asymmetric.replace(heads="segmentation")


def test_a_level_too_coarse_for_the_image_is_refused():
    assert D0.replace(image_size=64).image_size == (64, 64)
    with pytest.raises(ValueError, match="at most twice"):
        D0.replace(image_size=32)


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
