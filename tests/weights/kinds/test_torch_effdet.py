"""Files of PyTorch effdet: every name, every wrapper, and nothing ever run."""

import argparse
import ast
import hashlib
import json
import pathlib
import sys

import numpy as np
import pytest
import safetensors.numpy
from support.kinds import slow_but
from support.network_outputs import assert_outputs_equal
from support.weights import whole_match

from effdet_keras.extras.older_tools import name_in_effdet, write_torch_effdet
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.weights.assign import assign_source
from effdet_keras.weights.identify import identify
from effdet_keras.weights.kinds.torch_state_dict import (
    TORCH,
    read_torch_state_dict,
    source_of,
)
from effdet_keras.weights.network_arrays import network_arrays
from effdet_keras.weights.presets import list_presets

pytestmark = pytest.mark.extra_packages  # where torch is absent, some tests skip
GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
D0 = EfficientDetConfig.from_name("efficientdet-d0")
FORMATS = ("pth", "safetensors")
EMA, LIVE = 3.0, 1.0


def effdet_shapes(config):
    """The shape of each entry of effdet's state dict but the counters, by name."""
    shapes = {}
    for array in network_arrays(config):
        name, axes = name_in_effdet(TORCH.name_of(array), config), array.torch_axes
        vector, _, edge = name.rpartition(".")
        if edge.isdigit():
            shapes[vector] = (int(edge) + 1,)
        else:
            shapes[name] = tuple(array.shape[i] for i in axes) if axes else array.shape
    return shapes


def effdet_lines(config):
    """ "name shape dtype" of each entry of effdet's state dict, from our table."""
    lines = []
    for name, shape in effdet_shapes(config).items():
        lines.append(f"{name} {shape} float32")
        if name.endswith("running_var"):
            counter = name.replace("running_var", "num_batches_tracked")
            lines.append(f"{counter} () int64")
    return sorted(lines)


def small_state(value=LIVE):
    """A few arrays of a `tf_` model: enough for a reader to know it."""
    return {
        "backbone.conv_stem.weight": np.full((32, 3, 3, 3), value, "float32"),
        "backbone.bn1.num_batches_tracked": np.array(7),
        "backbone.blocks.0.0.se.conv_reduce.bias": np.zeros(8, "float32"),
        "fpn.resample.3.conv.conv.bias": np.zeros(64, "float32"),
        "fpn.cell.0.fnode.0.combine.edge_weights": np.array([1, 2], "float32"),
        "class_net.bn_rep.2.4.bn.bias": np.full(64, value, "float32"),
    }


def full_state():
    """Every entry of effdet's D0, at random."""
    rng, state = np.random.default_rng(5), {}
    for row in (GOLDEN / "names_d0_torch_effdet.txt").read_text().splitlines():
        name, shape, dtype = row.split("\t")[:3]
        value = rng.normal(size=ast.literal_eval(shape))
        state[name] = np.asarray(value * (dtype == "float32"), dtype)
    return state


def prefixed(prefix, state):
    return {prefix + name: value for name, value in state.items()}


def tensors(content):
    """NumPy arrays as torch tensors, in dicts of any depth."""
    torch = pytest.importorskip("torch")
    if isinstance(content, dict):
        return {name: tensors(value) for name, value in content.items()}
    return torch.from_numpy(content) if isinstance(content, np.ndarray) else content


def save(content, path):
    """Saves as effdet's users do, and gives the path."""
    if path.suffix == ".safetensors":
        safetensors.numpy.save_file(content, path)
    else:
        pytest.importorskip("torch").save(tensors(content), path)
    return path


def stem(source):
    return source.arrays["backbone.conv_stem.weight"].flat[0]


# The names.


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_names_and_shapes_of_every_model_are_those_of_effdet(name):
    expected = json.loads((GOLDEN / "torch_effdet_models.json").read_text())[name]
    lines = effdet_lines(EfficientDetConfig.from_name(name))
    assert len(lines) == expected["entries"]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert digest == expected["sha256"]


# Reading and writing whole models.


def test_outputs_of_d0_are_those_of_effdet(checkpoint_path):
    source = read_torch_state_dict(checkpoint_path("torch_effdet_d0.safetensors"))
    expected = np.load(checkpoint_path("torch_effdet_d0_256.npz"))
    # The image there is normalised already.
    config = D0.replace(image_size=256, mean_rgb=0.0, stddev_rgb=1.0)
    model = EfficientDet(config)
    report = assign_source(model, source)
    assert (report.num_loaded, report.left_over) == (len(model.weights), ())
    outputs = model(expected["x"], training=False)
    assert_outputs_equal(outputs, lambda head, p: expected[f"{head}_p{p}"], config)


SETTINGS = json.loads((GOLDEN / "torch_effdet_settings.json").read_text())


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_effdets_own_models_are_theirs(name):
    config = EfficientDetConfig.from_name(name)
    pools = {"same": "MaxPool2dSame", "symmetric": "MaxPool2d"}
    is_max = config.fpn_downsampling == "max"
    published = {p.model: p.url for p in list_presets() if p.weights == "coco"}
    assert config.backbone_padding == "symmetric"
    expected = {
        "image_size": list(config.image_size),
        "aspect_ratios": json.loads(json.dumps(config.aspect_ratios)),
        "anchor_scale": config.anchor_scale,
        "activation": config.activation,
        "backbone_convolution": "Conv2d",  # not timm's `Conv2dSame`
        "backbone_padding": [1, 1],
        # Torch's momentum is the share of the new value.
        "backbone_momentum": pytest.approx(1 - config.backbone_batch_norm_momentum),
        "momentum": pytest.approx(1 - config.batch_norm_momentum),
        "backbone_epsilon": config.backbone_batch_norm_epsilon,
        "epsilon": config.batch_norm_epsilon,
        "bias": config.redundant_bias,
        "downsampling": pools[config.fpn_padding] if is_max else "Interpolate2d",
        "upsampling": config.fpn_upsampling,
        "drop_path_rate": pytest.approx(1 - config.backbone_survival_prob),
        "url": published.get(name, ""),
    }
    assert {field: SETTINGS[name][field] for field in expected} == expected


@pytest.mark.parametrize("name", SETTINGS)
def test_a_file_of_effdets_own_models_says_which_it_is_of(tmp_path, name):
    config = EfficientDetConfig.from_name(name, num_classes=2)
    shapes = effdet_shapes(config).items()
    state = {n: np.broadcast_to(np.float32(1), shape) for n, shape in shapes}
    told = source_of(pathlib.Path("x.pth"), state, True).config
    if config.redundant_bias:  # D4 and D5 have the arrays of the `tf_` models
        assert told["backbone_padding"] == "same"
        arch = name.replace("effdet-", "efficientdet_")
        content = {"arch": arch, **state}
        told = source_of(pathlib.Path("x.pth"), content, True).config
    assert config.replace(**told) == config
    # Made of the preset of google/automl's, it is the same network.
    d0 = EfficientDetConfig.from_name("efficientdet-d0").replace(**told)
    assert d0.backbone_padding == "symmetric"


QUICK_OWN = ("efficientdet-q0", "effdet-lite0", "efficientdetv2-dt")


@pytest.mark.parametrize(
    "name",
    slow_but(
        QUICK_OWN, (*QUICK_OWN, "effdet-d0", "efficientdet-q1", "efficientdetv2-ds")
    ),
)
def test_outputs_of_effdets_own_models_are_theirs(golden, torch_weights, name):
    expected = golden("torch_effdet_outputs.npz")
    config = EfficientDetConfig.from_name(
        name, image_size=(96, 160), num_classes=2, mean_rgb=0.0, stddev_rgb=1.0
    )
    shapes = effdet_shapes(config).items()
    state = {n: torch_weights.value(n, shape) for n, shape in shapes}
    model = EfficientDet(config)
    report = assign_source(model, source_of(pathlib.Path("x.pth"), state, True))
    assert (report.num_loaded, report.left_over) == (len(model.weights), ())
    outputs = model(torch_weights.image((1, 96, 160, 3)), training=False)
    assert_outputs_equal(outputs, lambda h, p: expected[f"{name}/{h}/p{p}"], config)


@pytest.mark.parametrize(
    "name, format",
    [
        *(("efficientdet-d0", format) for format in FORMATS),
        *((name, "safetensors") for name in ("efficientdet-q0", "effdet-d0")),
        ("efficientdetv2-dt", "safetensors"),
    ],
)
def test_torch_to_ours_to_torch_is_bit_equal(tmp_path, torch_weights, name, format):
    config = EfficientDetConfig.from_name(name)
    state = full_state()
    if name != "efficientdet-d0":
        config = config.replace(num_classes=2)
        shapes = effdet_shapes(config).items()
        state = {n: torch_weights.value(n, shape) for n, shape in shapes}
    there = dict(state)
    if format == "pth":  # a head ordered for TorchScript is the same head
        bias = there.pop("class_net.bn_rep.2.4.bn.bias")
        there["class_net.bn_rep.4.2.bias"] = bias
    source = read_torch_state_dict(save(there, tmp_path / f"effdet.{format}"))
    assert name in identify(source).names
    path = tmp_path / "new" / f"ours.{format}"
    write_torch_effdet(path, whole_match(source, config), config)
    if format == "pth":
        loaded = pytest.importorskip("torch").load(path, weights_only=True)
        loaded = {name: value.numpy() for name, value in loaded.items()}
    else:
        loaded = safetensors.numpy.load_file(path)
    counters = {n for n in loaded if n.endswith("num_batches_tracked")}
    if name != "efficientdet-d0":  # whose state has them
        loaded = {n: value for n, value in loaded.items() if n not in counters}
    assert loaded.keys() == state.keys()
    for name, value in state.items():
        assert (loaded[name].dtype, loaded[name].shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(loaded[name], value)


# What stands around the arrays.


@pytest.mark.parametrize("prefix", ["", "module.", "module.model."])
def test_prefixes_of_wrappers_are_taken_off(tmp_path, prefix):
    content = prefixed(prefix, small_state())
    if prefix:
        content["anchors.boxes"] = np.zeros((9, 4), "float32")
    source = read_torch_state_dict(save(content, tmp_path / "x.safetensors"))
    assert sorted(source.arrays) == [
        "backbone.blocks.0.0.se.conv_reduce.bias",
        "backbone.conv_stem.weight",
        "class_net.bn_rep.2.4.bn.bias",
        "fpn.cell.0.fnode.0.combine.edge_weights.0",
        "fpn.cell.0.fnode.0.combine.edge_weights.1",
        "fpn.resample.3.conv.conv.bias",
    ]
    assert source.arrays["fpn.cell.0.fnode.0.combine.edge_weights.1"] == 2
    assert source.arrays["fpn.cell.0.fnode.0.combine.edge_weights.1"].shape == ()
    anchors = {"anchors.boxes"} if prefix else set()
    assert set(source.others) == {"backbone.bn1.num_batches_tracked"} | anchors


@pytest.mark.parametrize(
    "live, ema",
    [
        ("state_dict", "state_dict_ema"),
        ("model", "model_ema"),
        ("model_state_dict", "ema_state_dict"),
    ],
)
def test_averages_are_taken_where_there_are_any(tmp_path, live, ema):
    content = {
        "epoch": 3,
        "arch": "tf_efficientdet_d0",
        "optimizer": {"state": {0: {"step": 1}}, "param_groups": [{"lr": 0.1}]},
        live: prefixed("model.", small_state(LIVE)),
        ema: prefixed("module.model.", small_state(EMA)),
    }
    path = save(content, tmp_path / "last.pth.tar.pth")
    averaged, raw = (
        read_torch_state_dict(path),
        read_torch_state_dict(path, averages=False),
    )
    assert (stem(averaged), stem(raw)) == (EMA, LIVE)
    assert (averaged.num_averages, raw.num_averages) == (6, 0)
    assert averaged.kind == f"PyTorch effdet state dict, under '{ema}.module.model'"
    assert set(raw.others) == {
        "epoch",
        "arch",
        "optimizer.state",
        "optimizer.param_groups",
        "backbone.bn1.num_batches_tracked",
        f"{ema}.module.model",
    }


def test_of_two_networks_none_is_guessed(tmp_path):
    content = {"student": small_state(), "teacher": small_state()}
    with pytest.raises(
        ValueError, match=r"contains 2 networks: \['student.', 'teacher"
    ):
        read_torch_state_dict(save(content, tmp_path / "x.pth"))
    path = save({"state_dict": small_state()}, tmp_path / "x.pth.tar")
    for averages in (True, False):  # of one network, that one
        assert stem(read_torch_state_dict(path, averages)) == LIVE
    with pytest.raises(ValueError, match="contains a Tensor, not a state dict"):
        read_torch_state_dict(save(np.zeros(3, "float32"), tmp_path / "x.pth"))


def test_a_training_checkpoint_of_timm_is_read(tmp_path):
    content = {
        "state_dict": small_state(),
        "args": argparse.Namespace(model="tf_efficientdet_d0", lr=0.1),
        "metric": np.float64(0.34),
    }
    source = read_torch_state_dict(save(content, tmp_path / "x.pth"))
    assert {"args", "metric"} <= set(source.others)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floats_become_float32(tmp_path, format, dtype):
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    content = {
        n: t.to(getattr(torch, dtype)) for n, t in tensors(small_state()).items()
    }
    path = tmp_path / f"x.{format}"
    save_file(content, path) if format == "safetensors" else torch.save(content, path)
    source = read_torch_state_dict(path)
    assert {str(array.dtype) for array in source.arrays.values()} == {"float32"}
    assert stem(source) == LIVE


def test_settings_are_those_of_effdet(tmp_path):
    def config_of(name, state):
        source = read_torch_state_dict(save(state, tmp_path / f"{name}.safetensors"))
        return D0.replace(**source.config)

    lite = {name: v for name, v in small_state().items() if ".se." not in name}
    plain = config_of("tf_efficientdet_d0_34-f153e0cf", small_state())
    assert plain.aspect_ratios == ((1.0, 1.0), (1.4, 0.7), (0.7, 1.4))
    assert (plain.mean_rgb, plain.stddev_rgb) == (D0.mean_rgb, D0.stddev_rgb)
    assert config_of("my_apples", small_state()) == plain
    half = ((127.5,) * 3,) * 2
    for config in (
        config_of("tf_efficientdet_d0_ap-d0cdbd0a", small_state()),
        config_of("tf_efficientdet_lite0", lite),
    ):
        assert (config.mean_rgb, config.stddev_rgb) == half
    # Models without these biases pad symmetrically; a name of that family is believed.
    state = {n: v for n, v in small_state().items() if "conv.conv.bias" not in n}
    own = config_of("mine", state)
    assert own.backbone_padding == own.fpn_padding == "symmetric"
    assert (own.backbone_batch_norm_epsilon, own.redundant_bias) == (1e-5, False)
    content = {"arch": "efficientdet_d4", **small_state()}
    told = source_of(pathlib.Path("x.pth"), content, True).config
    assert (told["backbone_padding"], told["fpn_padding"]) == ("symmetric", "same")
    assert told["redundant_bias"] is True


# Refusals.


def test_a_package_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r'pip install "effdet-keras\[safetensors\]"'):
        read_torch_state_dict(tmp_path / "x.safetensors")
