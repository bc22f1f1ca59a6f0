"""Backbones of EfficientNet-PyTorch and timm: every name, and which are not ours."""

import hashlib
import json
import pathlib

import numpy as np
import pytest
from support.tiny import tiny_model
from support.torch_files import backbone_state, write_zip

from effdet_keras.extras.older_tools import to_layout_of
from effdet_keras.network.config import (
    MODEL_NAMES,
    TF_BACKBONE,
    TIMM_BACKBONE,
    EfficientDetConfig,
)
from effdet_keras.weights.assign import assign_source
from effdet_keras.weights.identify import identify, match_arrays
from effdet_keras.weights.kinds.registry import open_weights
from effdet_keras.weights.kinds.torch_state_dict import EFFICIENTNET_PYTORCH, TIMM
from effdet_keras.weights.network_arrays import network_arrays
from effdet_keras.weights.pretrained import config_for_weights, load_source

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "torch_backbones.json"
_GOLDEN = json.loads(GOLDEN.read_text())
DIGESTS = {TIMM: _GOLDEN["timm"], EFFICIENTNET_PYTORCH: _GOLDEN["efficientnet-pytorch"]}
D0 = EfficientDetConfig.from_name("efficientdet-d0")
HEADS = {  # their last convolution, batch norm and class layer
    TIMM: ("conv_head", "bn2", "classifier"),
    EFFICIENTNET_PYTORCH: ("_conv_head", "_bn1", "_fc"),
}
SCHEMES = pytest.mark.parametrize("scheme", HEADS)


def config_of(backbone):
    configs = map(EfficientDetConfig.from_name, MODEL_NAMES)
    return next(config for config in configs if config.backbone == backbone)


def backbone_arrays(config):
    return [array for array in network_arrays(config) if array.is_backbone]


def head_shapes(backbone, scheme):
    # The head of a Lite model is not scaled.
    width = {"b1": 1280, "b2": 1408, "b3": 1536, "b4": 1792, "b5": 2048, "b6": 2304}
    width = {**width, "b7": 2560}.get(backbone.removeprefix("efficientnet-"), 1280)
    inputs = backbone_arrays(config_of(backbone))[-1].shape[0]
    conv, bn, layer = HEADS[scheme]
    yield f"{conv}.weight", (width, inputs, 1, 1)
    for leaf in ("weight", "bias", "running_mean", "running_var"):
        yield f"{bn}.{leaf}", (width,)
    yield f"{layer}.weight", (1000, width)
    yield f"{layer}.bias", (1000,)


@pytest.mark.parametrize(
    "scheme, backbone", [(scheme, name) for scheme in HEADS for name in DIGESTS[scheme]]
)
def test_names_and_shapes_are_those_of_the_packages(scheme, backbone):
    shapes = {}
    for array in backbone_arrays(config_of(backbone)):
        axes, shape = array.torch_axes, array.shape
        shapes[scheme.name_of(array)] = tuple(shape[i] for i in axes) if axes else shape
    shapes.update(head_shapes(backbone, scheme))
    lines = [f"{name} {shape} float32" for name, shape in shapes.items()]
    for name in shapes:
        if name.endswith("running_var"):
            counter = name.replace("running_var", "num_batches_tracked")
            lines.append(f"{counter} () int64")
    expected = DIGESTS[scheme][backbone]
    assert len(lines) == expected["entries"]
    digest = hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()
    assert digest == expected["sha256"]


def state_of(scheme, prefix=""):
    """A classifier with B0's backbone, without the middle of its head."""
    rng, state = np.random.default_rng(3), {}
    for array in backbone_arrays(D0):
        drawn = rng.uniform(0.1, 1, array.shape).astype("float32")
        state[prefix + scheme.name_of(array)] = to_layout_of(drawn, array, scheme)
    conv, bn, layer = HEADS[scheme]
    state[f"{prefix}{bn}.num_batches_tracked"] = np.array(7)
    state[f"{prefix}{conv}.weight"] = np.zeros((4, 320, 1, 1), "float32")
    state[f"{prefix}{layer}.weight"] = np.zeros((10, 4), "float32")
    return state


@SCHEMES
@pytest.mark.parametrize("prefix", ["", "module.", "encoder.model."])
def test_a_backbone_is_found_and_the_classifier_is_left_over(tmp_path, scheme, prefix):
    path = write_zip(tmp_path / "tf_efficientnet_b0.pth", state_of(scheme, prefix))
    source = open_weights(path)
    match = match_arrays(source, D0)
    assert len(match.found) == len(backbone_arrays(D0)) == 304
    for array in backbone_arrays(D0):
        there = to_layout_of(match.found[array.name], array, scheme)
        np.testing.assert_array_equal(there, source.arrays[scheme.name_of(array)])
    conv, bn, layer = HEADS[scheme]
    assert set(match.left_over) == {f"{conv}.weight", f"{layer}.weight"}
    assert source.others == (f"{bn}.num_batches_tracked",)
    assert str(identify(source)) == "the backbone of efficientdet-d0"
    assert "classifier of 10 classes" in source.kind
    assert (source.config, source.notes) == (TF_BACKBONE, ())


def test_timms_own_models_pad_symmetrically(tmp_path):
    state = state_of(TIMM)
    path = write_zip(tmp_path / "efficientnet_b0_ra-3dd342df.pth", state)
    assert open_weights(path).config == TIMM_BACKBONE
    content = {"arch": "efficientnet_b0", "state_dict": state}
    path = write_zip(tmp_path / "best.pth", content)
    assert open_weights(path).config == TIMM_BACKBONE
    (tmp_path / "config.json").write_text('{"architecture": "efficientnet_b0"}')
    path = write_zip(tmp_path / "model.pth", state)
    assert open_weights(path).config == TIMM_BACKBONE
    config, _, _ = config_for_weights(
        "efficientdet-d0",
        open_weights(path),
        class_names=None,
        category_ids=None,
        overrides={},
    )
    assert config == D0.replace(**TIMM_BACKBONE)


def test_a_file_that_does_not_say_which_model_it_is_of_is_noted(tmp_path, capsys):
    source = open_weights(write_zip(tmp_path / "apples.pth", state_of(TIMM)))
    assert "does not say whether it is timm's" in source.notes[0]
    # EfficientNet-PyTorch has one family alone.
    path = write_zip(tmp_path / "pears.pth", state_of(EFFICIENTNET_PYTORCH))
    assert open_weights(path).notes == ()


@pytest.mark.parametrize(
    "name, scheme",
    [
        ("adv-efficientnet-b0-b64d5a18.pth", EFFICIENTNET_PYTORCH),
        ("tf_efficientnet_b0_ap-f262efe1.pth", TIMM),
        ("tf_efficientnet_b0.ap_in1k.pth", TIMM),
    ],
)
def test_adversarial_training_had_other_pixels(tmp_path, name, scheme):
    source = open_weights(write_zip(tmp_path / name, state_of(scheme)))
    pixels = {"mean_rgb": (127.5,) * 3, "stddev_rgb": (127.5,) * 3}
    assert source.config == {**TF_BACKBONE, **pixels}


def test_the_report_says_that_training_comes_first(tmp_path):
    model = tiny_model()
    state = backbone_state(EFFICIENTNET_PYTORCH, model.config)
    source = open_weights(write_zip(tmp_path / "x.pth", state))
    report = load_source(model, source, skip_mismatch=False, verbose=0)
    assert report.num_loaded == len(state)
    assert "EfficientNet-PyTorch backbone" in str(report)
    assert "cannot detect anything before it is trained" in str(report)
    assert assign_source(model, source).left_over == ()
