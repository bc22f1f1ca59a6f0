"""The whole network: parameter counts, and outputs equal to the reference's."""

import csv
import json

import keras
import numpy as np
import pytest
from keras import ops
from support.kinds import slow_but
from support.network_outputs import TOLERANCE, assert_outputs_equal

from effdet_keras.network.anchors import level_sizes
from effdet_keras.network.backbone import EfficientNet, block_table, stem_filters
from effdet_keras.network.build import build_network
from effdet_keras.network.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.weights.network_arrays import network_arrays, tf1_name


def build(name, **overrides):
    config = EfficientDetConfig.from_name(name, **overrides)
    images, outputs = build_network(config)
    return config, keras.Model(images, outputs)


def fill(network, refweights, name):
    for variable in network.weights:
        variable.assign(refweights.value(tf1_name(variable), variable.shape, name))


def assert_every_array_is_listed(config, network):
    listed = {array.name: array.shape for array in network_arrays(config)}
    assert listed == {tf1_name(v): tuple(v.shape) for v in network.weights}


@pytest.fixture(scope="session")
def published(golden_path):
    with open(golden_path("params.csv")) as file:
        return {row["model"]: row for row in csv.DictReader(file)}


# The others are PyTorch effdet's own: see tests/weights/kinds/test_torch_effdet.py.
AUTOML = [
    name
    for name in MODEL_NAMES
    if EfficientDetConfig.from_name(name).backbone_padding == "same"
]
QUICK = ["efficientdet-d0", "efficientdet-d1", "efficientdet-lite0"]
LARGEST = "efficientdet-d7x"


@pytest.mark.slow_elsewhere  # a count is the same on every backend
@pytest.mark.parametrize(
    "name",
    [
        *slow_but(QUICK, [name for name in AUTOML if name != LARGEST]),
        pytest.param(LARGEST, marks=[pytest.mark.slow, pytest.mark.equality]),
    ],
)
def test_parameter_counts_equal_the_reference(published, name):
    # The count does not depend on the image; a small one is quick to build.
    config, network = build(name, image_size=256)
    assert_every_array_is_listed(config, network)
    row = published[name]
    counts = {"trainable": 0, "backbone": 0, "fpn": 0, "class_net": 0, "box_net": 0}
    for variable in network.trainable_variables:
        part = variable.path.split("/")[0]
        part = "backbone" if part.startswith("efficientnet") else part
        part = "fpn" if part in ("fpn_cells", "resample_p6") else part
        size = int(np.prod(variable.shape))
        counts[part] += size
        counts["trainable"] += size
    assert counts["trainable"] == int(row["trainable"])
    for part in ("backbone", "fpn", "class_net", "box_net"):
        assert counts[part] == int(row[f"params_{part}"])


@pytest.mark.parametrize(
    "name, file",
    [
        ("efficientdet-d0", "a_d0_s128.npz"),
        pytest.param(
            "efficientdet-d0",
            "a_d0_s200x136.npz",  # odd maps, not square
            marks=pytest.mark.slow_elsewhere,
        ),
        ("efficientdet-lite0", "a_lite0_s128.npz"),
    ],
)
def test_outputs_equal_the_reference(golden, refweights, name, file):
    arrays = golden(file)
    meta = json.loads(str(arrays["meta"]))
    # Golden inputs are normalised already.
    config, network = build(
        name, image_size=meta["image_size"], mean_rgb=0.0, stddev_rgb=1.0
    )
    fill(network, refweights, name)
    shape = (meta["batch"], *config.image_size, 3)
    outputs = network(refweights.image(meta["input_seed"], shape), training=False)
    assert_outputs_equal(outputs, lambda head, p: arrays[f"{head}/p{p}"], config)


@pytest.mark.parametrize(
    "heads",
    [
        ("object_detection", "segmentation"),
        pytest.param(("segmentation",), marks=pytest.mark.slow_elsewhere),
    ],
)
def test_the_segmentation_head_equals_the_reference(golden, refweights, heads):
    arrays = golden("a_d0_seg.npz")
    _, network = build(
        "efficientdet-d0", image_size=128, mean_rgb=0.0, stddev_rgb=1.0, heads=heads
    )
    fill(network, refweights, "efficientdet-d0")
    named = {tf1_name(v): v for v in network.weights}
    expected = dict(zip(arrays["names"].tolist(), arrays["shapes"].tolist()))
    head = {n: v for n, v in named.items() if n.startswith("segmentation_head/")}
    assert {n: str(list(v.shape)) for n, v in head.items()} == expected
    for name, variable in named.items():
        if "conv2d_transpose" in name and name.endswith("kernel"):
            # The golden weights were scaled by the number of inputs, which is the last
            # axis here and the third of every other kernel.
            filters, inputs = variable.shape[2:]
            value = ops.convert_to_numpy(variable) * np.sqrt(filters / inputs)
            variable.assign(value)
    outputs = network(refweights.image(11, (2, 128, 128, 3)), training=False)
    assert set(outputs) == {"segmentation_logits"} | (
        {"class_logits", "box_deltas"} if len(heads) == 2 else set()
    )
    np.testing.assert_allclose(
        ops.convert_to_numpy(outputs["segmentation_logits"]), arrays["seg"], **TOLERANCE
    )


def test_weights_carry_the_published_names(golden_path):
    lines = golden_path("names_d0_tf1.txt").read_text().splitlines()
    rows = [line.split(" | ") for line in lines]
    published = {row[0]: row[1] for row in rows if not row[0].startswith("#")}
    _, network = build("efficientdet-d0", image_size=256)
    ours = {
        tf1_name(v): "x".join(map(str, v.shape)) or "scalar" for v in network.weights
    }
    assert ours == published


@pytest.mark.slow_elsewhere  # options choose layers, which run on every backend
@pytest.mark.parametrize(
    "overrides",
    [
        {"fpn_weight_method": "attn"},
        {"fpn_weight_method": "channel_fastattn"},
        {"separable_conv": False, "conv_bn_act_pattern": True},
        {"conv_after_downsample": True, "apply_bn_for_resampling": False},
        {"survival_prob": 0.8, "backbone_survival_prob": 0.8},
        {"min_level": 2, "max_level": 6, "num_scales": 1},
        {"aspect_ratios": ((1.4, 0.7), 1.0), "activation": "hswish"},
        {"frozen_batch_norm": True},
        {"backbone_taps": (3, 9, 14), "backbone_activation": "relu"},
        {"fpn_name": "qufpn", "fpn_cell_repeats": 1, "redundant_bias": False},
        {"fpn_downsampling": "bilinear", "fpn_upsampling": "bilinear"},
        {"fpn_padding": "symmetric", "backbone_padding": "symmetric"},
        {"backbone": "efficientnetv2-b0"},
        {"fpn_num_filters": 112},  # as the backbone's level 4: one edge without a conv
    ],
    ids=str,
)
def test_every_option_builds_and_runs(overrides):
    config, network = build(
        "efficientdet-d0", **{"image_size": (64, 96), "max_level": 6, **overrides}
    )
    assert_every_array_is_listed(config, network)
    images = np.random.default_rng(0).uniform(0, 255, (2, 64, 96, 3))
    outputs = network(images.astype("uint8"), training=True)
    sizes = level_sizes(config.image_size, config.min_level, config.max_level)
    count = sum(h * w for h, w in sizes) * config.num_anchors
    assert tuple(outputs["class_logits"].shape) == (2, count, 90)
    assert np.isfinite(ops.convert_to_numpy(outputs["box_deltas"])).all()


@pytest.mark.parametrize("taps", [(6, 14), (6, 14, 99), (9, 14, 21), (6, 14, 21, 22)])
def test_taps_are_one_block_of_each_level(taps):
    config = EfficientDetConfig.from_name("efficientdet-d1", backbone_taps=taps)
    expected = "`backbone_taps` must be a block of each level from 3 to 5 of "
    expected += "efficientnet-b1: 5 to 7, 8 to 15, 16 to 22"
    for make in (build_network, network_arrays):
        with pytest.raises(ValueError, match=expected):
            make(config)
    lower = config.replace(min_level=4, backbone_taps=(6, 14, 21))
    with pytest.raises(ValueError, match="from 4 to 5"):
        build_network(lower)


BACKBONES = {EfficientDetConfig.from_name(name).backbone for name in MODEL_NAMES}
VARIANTS = sorted(name for name in BACKBONES if name.startswith("efficientnet-"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_blocks_equal_the_reference(golden_path, variant):
    expected = json.loads(golden_path("backbones.json").read_text())[variant]
    assert stem_filters(variant) == expected["stem"]
    columns = expected["columns"]
    rows = [dict(zip(columns, row)) for row in expected["blocks"]]
    ours = [
        (b.kernel_size, b.stride, b.expand_ratio, b.filters)
        for b in block_table(variant)
    ]
    assert ours == [(r["kernel"], r["stride"], r["expand"], r["out"]) for r in rows]


@pytest.mark.smoke
@pytest.mark.parametrize("variant", ["efficientnet-b0", "efficientnet-lite3"])
def test_layers_equal_the_reference_blocks(golden_path, variant):
    expected = json.loads(golden_path("backbones.json").read_text())[variant]
    rows = [dict(zip(expected["columns"], row)) for row in expected["blocks"]]
    backbone = EfficientNet(variant, survival_prob=0.8)
    backbone.build((None, 64, 64, 3))
    for block, row in zip(backbone.blocks, rows):
        reduced = block.se.reduced_filters if block.se else None
        assert reduced == row["se_filters"]
        assert block._residual == row["residual"]
        survival = block.drop_path.survival_prob if block.drop_path else 1.0
        if row["residual"]:
            assert survival == pytest.approx(row["survival_prob_default"])
        else:
            assert survival == 1.0
