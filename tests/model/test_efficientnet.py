"""The backbones' block tables, and what the layer returns."""

import json

import numpy as np
import pytest

from effdet_keras.model.backbone import (
    EfficientNet,
    block_table,
    scale_filters,
    stem_filters,
)
from effdet_keras.model.config import MODEL_NAMES, EfficientDetConfig

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


def test_filters_round_by_hand():
    # 32 * 1.1 = 35.2 -> 32, which is above 90 %; 24 * 1.4 = 33.6 -> 32;
    # 88 / 8 = 11 exactly; 16 * 1.4 = 22.4 -> 24.
    assert [
        scale_filters(f, w) for f, w in ((32, 1.1), (24, 1.4), (80, 1.1), (16, 1.4))
    ] == [*(32, 32, 88, 24)]
    assert scale_filters(10, 1.0) == 16  # 8 would lose more than a tenth


def test_levels_have_the_strides_of_their_number():
    backbone = EfficientNet("efficientnet-b0", min_level=1)
    features = backbone(np.zeros((1, 65, 64, 3), "float32"))
    assert [f.shape[1:3] for f in features] == [
        *((33, 32), (17, 16), (9, 8), (5, 4), (3, 2))
    ]


def test_an_unknown_variant_is_named():
    with pytest.raises(ValueError, match="one of efficientnet-b0.*'resnet'"):
        EfficientNet("resnet")
