"""Writes a model as a google/automl checkpoint, or as a PyTorch effdet state dict."""

from __future__ import annotations

import json
import os
import re
import warnings

import numpy as np
from keras import ops

from effdet_keras._internal.optional_imports import OptionalModule, safetensors
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.whole_files import (
    atomic_write,
    atomic_write_all,
    local_path,
)
from effdet_keras.errors import InvalidValueError, check_choice, require
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.weights.kinds.automl import AVERAGE, STATE_FILE
from effdet_keras.weights.kinds.torch_state_dict import (
    BN_COUNTER,
    PICKLE_ENDINGS,
    TORCH,
)
from effdet_keras.weights.locate import name_in_state_file
from effdet_keras.weights.network_arrays import network_arrays, tf1_name
from effdet_keras.weights.pretrained import check_own_network

_safetensors_numpy = OptionalModule(
    "safetensors.numpy", install="effdet-keras[safetensors]"
)
_torch = OptionalModule("torch", install="effdet-keras[torch]")
_EDGE_WEIGHTS = re.compile(r"(.+\.edge_weights)\.\d+")
_BN_VARIANCE = "running_var"
_REPEAT_FIRST = re.compile(r"^((?:class|box)_net\.bn_rep)\.(\d+)\.(\d+)\.bn\.(\w+)$")


def export_checkpoint(model, path, format):
    """Implements `EfficientDet.export_checkpoint`; see there."""
    check_choice("format", format, ("automl-tf1", "torch-effdet"))
    check_own_network(model, "write an older tool's checkpoint", "export_hub_module")
    _check_has_place(model.config, format)
    raw, averaged = _raw_and_averaged(model)
    if format == "torch-effdet":
        write_torch_effdet(path, averaged, model.config)
        return
    step = getattr(getattr(model, "optimizer", None), "iterations", 0)
    write_tf1_checkpoint(
        path, raw, averages=averaged, global_step=int(ops.convert_to_numpy(step))
    )


# Config fields of which both tools only support the default value, and further fields
# of which PyTorch effdet supports other values, but google/automl does not.
_FIELDS_OF_NEITHER = (
    "backbone_taps",
    "backbone_activation",
    "anchor_order",
    "box_scales",
)
_FIELDS_OF_EFFDET = (
    "backbone_padding",
    "backbone_batch_norm_epsilon",
    "fpn_name",
    "fpn_padding",
    "fpn_downsampling",
    "fpn_upsampling",
    "redundant_bias",
)
_AUTOML_BACKBONES = ("efficientnet-b", "efficientnet-lite")


def _check_has_place(config, format):
    """Raises ValueError for fields that the older tool would compute differently."""
    usual, what = EfficientDetConfig(), "Neither google/automl nor PyTorch effdet has a"
    wrong = [n for n in _FIELDS_OF_NEITHER if getattr(config, n) != getattr(usual, n)]
    if format == "automl-tf1" and not wrong:
        what = "google/automl has no"
        wrong = [
            n for n in _FIELDS_OF_EFFDET if getattr(config, n) != getattr(usual, n)
        ]
        if not config.backbone.startswith(_AUTOML_BACKBONES):
            wrong.append("backbone")
    if wrong:
        raise InvalidValueError(
            f"{what} network with {wrong[0]}={getattr(config, wrong[0])!r}: the model "
            "would give other detections there. Keep the model with `save`, or "
            "`export` it."
        )


def _raw_and_averaged(model):
    """Returns the raw weights, and the moving averages if there are any."""
    averages = model.averages
    if averages is None:
        raw = _named(model.weights, model.weights)
        return raw, dict(raw)
    with averages.swapped():
        averaged = _named(model.weights, model.weights)
        return {**averaged, **_named(averages.sources, averages.values)}, averaged


def _named(variables, values):
    # Copies, because arrays may share memory with variables that are about to change.
    pairs = zip(variables, values)
    return {tf1_name(v): np.array(ops.convert_to_numpy(a)) for v, a in pairs}


def write_tf1_checkpoint(prefix, arrays, averages=None, global_step=0):
    """Writes a checkpoint that the programs of google/automl can load.

    A file `checkpoint` of another training stays as it is, with a warning: that
    training would otherwise continue from this checkpoint.
    """
    tf.require("Writing TensorFlow checkpoints")
    averages = {**arrays, **(averages or {})}
    averages = {name + AVERAGE: value for name, value in averages.items()}
    entries = {n: np.asarray(a, "float32") for n, a in {**arrays, **averages}.items()}
    entries["global_step"] = np.asarray(global_step, "int64")
    prefix = local_path(prefix, "The prefix of a checkpoint")
    state = prefix.with_name(STATE_FILE)
    is_kept = os.path.lexists(state) and name_in_state_file(state) != prefix.name
    # The state file comes last, because other programs find the checkpoint by it.
    with atomic_write_all(state) as folder:
        _save(folder / prefix.name, entries)
        if is_kept:
            (folder / STATE_FILE).unlink()
    if is_kept:
        warnings.warn(
            f"'{state}' names another checkpoint, and is not overwritten: give "
            f"programs the prefix '{prefix}' instead of the folder.",
            stacklevel=2,
        )


def _save(prefix, entries):
    """Writes a TensorFlow checkpoint, and the state file that names it."""
    try:
        tf.raw_ops.SaveV2(
            prefix=str(prefix),
            tensor_names=list(entries),
            shape_and_slices=[""] * len(entries),
            tensors=[tf.convert_to_tensor(value) for value in entries.values()],
        )
    except tf.errors.OpError as error:
        raise OSError(f"The checkpoint could not be written: {error}") from error
    # Only the name, so that the folder may be moved. Written as protobuf text.
    name = json.dumps(prefix.name, ensure_ascii=False)
    prefix.with_name(STATE_FILE).write_text(
        f"model_checkpoint_path: {name}\nall_model_checkpoint_paths: {name}\n",
        encoding="utf-8",
    )


def write_torch_effdet(path, arrays, config):
    """Writes weights for effdet's `load_state_dict(strict=True)`."""
    path = local_path(path, "The path of a state dict")
    save = _saver(path)
    state = _state_dict(arrays, config)
    with atomic_write(path) as partial:
        save(state, partial)


def _state_dict(arrays, config):
    """Returns NumPy arrays in effdet's names and layouts."""
    _check_effdet_has(config)
    network = network_arrays(config)
    state = {}
    for array in network:
        name = name_in_effdet(TORCH.name_of(array), config)
        value = np.asarray(arrays[array.name], "float32")
        edge = _EDGE_WEIGHTS.fullmatch(name)
        if edge:
            before = state.get(edge[1], np.zeros(0, "float32"))
            state[edge[1]] = np.append(before, value)
            continue
        state[name] = to_layout_of(value, array, TORCH)
        if name.endswith(_BN_VARIANCE):
            counter = name.removesuffix(_BN_VARIANCE) + BN_COUNTER
            state[counter] = np.zeros((), "int64")
    return state


def name_in_effdet(name, config):
    """Returns the name of an array in effdet's model of a config."""
    # Models since QuadFPN name the batch norms of heads by level, and then by repeat.
    is_v1 = config.backbone.startswith("efficientnet-b")
    if config.redundant_bias or (is_v1 and config.fpn_name == "bifpn"):
        return name
    return _REPEAT_FIRST.sub(r"\1.\3.\2.\4", name)


def _check_effdet_has(config):
    fields = ("heads", "separable_conv", "conv_after_downsample", "fpn_weight_method")
    is_there = (
        config.heads == ("object_detection",)
        and config.separable_conv
        and not config.conv_after_downsample
        and not config.fpn_weight_method.startswith("channel_")
    )
    received = {name: getattr(config, name) for name in fields}
    require(is_there, "PyTorch effdet has no network with these settings", **received)


def _saver(path):
    if path.suffix == ".safetensors":
        safetensors.require("Writing `.safetensors` files")
        save_file = _safetensors_numpy.save_file
        return lambda state, to: save_file(state, to, metadata={"format": "pt"})
    if path.suffix in PICKLE_ENDINGS:
        torch = _torch.require("Writing a file of `torch.save`")
        return lambda state, to: torch.save(
            {name: torch.from_numpy(value) for name, value in state.items()}, to
        )
    raise InvalidValueError(
        "The path of an effdet state dict must end in '.safetensors', '.pth' or "
        f"'.pt'. Received: path='{path}'"
    )


def to_layout_of(value, array, scheme):
    """Transposes an array of our network to the axis order of a naming scheme."""
    if scheme.is_torch and array.torch_axes is not None:
        return np.ascontiguousarray(np.transpose(value, array.torch_axes))
    return value
