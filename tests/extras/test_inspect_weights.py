"""Weights that are no detector: every door says what they are and how to use them."""

import numpy as np
from support.torch_files import backbone_state, write_zip

from effdet_keras.extras.inspect_weights import run
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.weights.kinds.torch_state_dict import EFFICIENTNET_PYTORCH


def test_the_description_says_how_to_use_it(tmp_path, capsys):
    """Of a file of Lite0's backbone, with a classifier of ten classes."""
    config = EfficientDetConfig.from_name("efficientdet-lite0")
    state = backbone_state(EFFICIENTNET_PYTORCH, config)
    state["_fc.weight"] = np.zeros((10, 4), "float32")
    backbone = write_zip(tmp_path / "lite0.pth", state)
    run(str(backbone))
    text = capsys.readouterr().out
    assert "EfficientNet-PyTorch classifier of 10 classes" in text
    assert "the backbone of efficientdet-lite0" in text
    assert f"from_preset('efficientdet-lite0', weights='{backbone}', class_na" in text
    assert "Would load into efficientdet-lite0: 240 of 588 weights" in text
    assert "_fc" in text
