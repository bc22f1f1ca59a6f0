"""PyTorch effdet's weights, read and written: its names, and which models they are of.

effdet has three families. Its `tf_` models compute what google/automl's do. Its own
(`efficientdet_d0`, ...) and those with QuadFPN or EfficientNetV2 have timm's backbones,
which pad symmetrically and have another epsilon in their batch norms; but for D4 and D5
they lack the biases before batch norms, and by that they are known.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from effdet_keras._internal.optional_imports import safetensors, safetensors_numpy
from effdet_keras._internal.optional_imports import torch as optional_torch
from effdet_keras._internal.whole_files import local_path, replacing
from effdet_keras.errors import InvalidValueError
from effdet_keras.model.config import (
    EFFDET_ANCHORS,
    MODEL_NAMES,
    TF_BACKBONE,
    TIMM_BACKBONE,
    EfficientDetConfig,
)
from effdet_keras.weights.identify import identify, names_of_no_backbone, to_layout_of
from effdet_keras.weights.kinds.torch_files import (
    PICKLE_ENDINGS,
    damaged,
)
from effdet_keras.weights.network_arrays import (
    TORCH_LEAVES,
    Scheme,
    network_arrays,
    of_both_heads,
    under,
)
from effdet_keras.weights.source import WeightSource

TIMM = Scheme(  # timm's EfficientNet, the backbone alone
    "timm",
    {
        "stem_conv": "conv_stem",
        "stem_bn": "bn1",
        **under(
            "blocks.{stage}.{repeat}",
            expand_conv=".conv_pw",
            expand_bn=".bn1",
            depthwise_conv=".conv_dw",
            depthwise_bn=".bn{bn:+1}",
            se_reduce=".se.conv_reduce",
            se_expand=".se.conv_expand",
            project_conv=".{torch}",
            project_bn=".bn{bn:+1}",
            fused_conv=".conv_exp",
            fused_bn=".bn1",
            single_conv=".conv",
            single_bn=".bn1",
        ),
    },
    TORCH_LEAVES,
    is_torch=True,
)
TORCH = Scheme(  # PyTorch effdet, whose backbones are timm's
    "torch-effdet",
    {
        **under("backbone.", **TIMM.parts),
        **under("fpn.resample.{step}.conv", level_conv=".conv", level_bn=".bn"),
        **under(
            "fpn.cell.{cell}.fnode.{effdet_node}",
            edge_conv=".combine.resample.{source}.conv.conv",
            edge_bn=".combine.resample.{source}.conv.bn",
            fusion=".combine",
            node_conv=".after_combine.conv",
            node_bn=".after_combine.conv.bn",
        ),
        **of_both_heads(
            "{head}_net",
            conv=".conv_rep.{repeat}",
            bn=".bn_rep.{repeat}.{step}.bn",
            predict=".predict",
        ),
    },
    TORCH_LEAVES,
    is_torch=True,
)

# Mean and deviation 0.5, of the AdvProp and the Lite models.
HALF_CONFIG = {"mean_rgb": (127.5,) * 3, "stddev_rgb": (127.5,) * 3}

ENDINGS = (*PICKLE_ENDINGS, ".safetensors")

_EDGE_WEIGHTS = re.compile(r"(.+\.edge_weights)\.\d+")
_BN_VARIANCE = "running_var"

# effdet's `head_bn_level_first`, for TorchScript: level before repeat.
_LEVEL_FIRST = re.compile(r"^((?:class|box)_net\.bn_rep)\.(\d+)\.(\d+)\.(\w+)$")
_REPEAT_FIRST = re.compile(r"^((?:class|box)_net\.bn_rep)\.(\d+)\.(\d+)\.bn\.(\w+)$")
_BIAS_BEFORE_BN = re.compile(r"fpn\..+\.conv(_pw)?\.bias")

# What a model of effdet computes, besides what the shapes of its arrays say.
_FIELDS_OF_A_FAMILY = (
    *("backbone_padding", "fpn_padding", "redundant_bias"),
    *("backbone_batch_norm_momentum", "backbone_batch_norm_epsilon"),
    *("fpn_name", "fpn_weight_method", "fpn_downsampling", "fpn_upsampling"),
    *("aspect_ratios", "anchor_scale", "mean_rgb", "stddev_rgb"),
)


def effdet_source(path, content, averages):
    """The detector in what `read_torch_file` found."""
    found = find_network(path, content, effdet_prefixes(content), averages)
    arrays = _named(found.arrays)
    name = content.get("arch")  # timm's name of the model
    _refuse_other_networks(path, arrays)
    return WeightSource(
        path=str(path),
        kind=f"PyTorch effdet state dict{found.description}",
        scheme=TORCH,
        arrays=arrays,
        num_averages=len(arrays) if found.is_average else 0,
        others=found.others,
        config=_config(path, arrays, name if isinstance(name, str) else ""),
    )


def write_torch_effdet(path, arrays, config):
    """Writes weights so that effdet's `load_state_dict(strict=True)` takes them."""
    path = local_path(path, "The path of a state dict")
    save = _saver(path)
    state = _state_dict(arrays, config)
    with replacing(path) as partial:
        save(state, partial)


# Finding the network.


def effdet_prefixes(content):
    """What stands before the names of each detector in the file."""
    parts = (name.partition("backbone.") for name in content)
    return list(
        dict.fromkeys(
            before for before, middle, _ in parts if middle and before[-1:] in ("", ".")
        )
    )


def _named(arrays):
    """The arrays under the names that `network_arrays` has."""
    named = {}
    for name, value in arrays.items():
        if name.endswith(".edge_weights"):
            weights = enumerate(value.ravel())
            named.update({f"{name}.{i}": np.asarray(v) for i, v in weights})
        else:
            named[_LEVEL_FIRST.sub(r"\1.\3.\2.bn.\4", name)] = value
    return named


# Which network it is.


def _refuse_other_networks(path, arrays):
    backbone = [name for name in arrays if name.startswith("backbone.")]
    foreign = names_of_no_backbone(backbone, TORCH)
    if foreign:
        raise InvalidValueError(
            f"'{path}' has a backbone that is not EfficientNet B0-B7, Lite0-4 or V2: "
            f"{len(foreign)} of its arrays have no place, first '{foreign[0]}' "
            f"{np.shape(arrays[foreign[0]])}. Of effdet's models, the `tf_` ones, "
            "`efficientdet_*` and `efficientdetv2_*` can be loaded."
        )


def _config(path, arrays, arch):
    """The fields of `EfficientDetConfig` that such a file implies."""
    # Shapes do not say how a model pads and prepares images: it is known by the family.
    # AdvProp models, and D4 and D5 of effdet's own, are known by their names alone.
    has_biases = any(map(_BIAS_BEFORE_BN.fullmatch, arrays))
    if has_biases and not arch.startswith("efficientdet"):
        is_advprop = re.search(r"_ap(?![a-z])", f"{path.name} {arch}")
        is_lite = not any(".se." in array for array in arrays)
        half = HALF_CONFIG if is_advprop or is_lite else {}
        return {**_TF_NETWORK, **EFFDET_ANCHORS, **half}
    model = _name_here(arch) or _own_model(WeightSource(str(path), "", TORCH, arrays))
    if model is None:  # of somebody's own making: as all of that family have it
        return {**_OWN_NETWORK, **EFFDET_ANCHORS}
    config = EfficientDetConfig.from_name(model)
    return {field: getattr(config, field) for field in _FIELDS_OF_A_FAMILY}


_TF_NETWORK = {**TF_BACKBONE, "fpn_padding": "same", "redundant_bias": True}
_OWN_NETWORK = {
    **TIMM_BACKBONE,
    "fpn_padding": "symmetric",
    "redundant_bias": False,
}


def _name_here(name):
    """What a model of effdet is called here, or None if there is none of that name."""
    ours = name.replace("_", "-")
    candidates = [ours.replace("efficientdet-", "effdet-"), ours]
    return next((model for model in candidates if model in MODEL_NAMES), None)


def _own_model(source):
    """The model of effdet's own that the arrays fit, or None."""
    names = identify(source).names
    configs = map(EfficientDetConfig.from_name, names)
    own = [config.name for config in configs if not config.redundant_bias]
    return own[0] if own else None


# Writing.


def _state_dict(arrays, config):
    """effdet's names and layouts, in NumPy."""
    _check_effdet_has(config)
    network = network_arrays(config)
    _check_complete(arrays, network)
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
    """The name of an array in effdet's model of that config."""
    # Since QuadFPN batch norms of heads are named by level and then by repeat.
    is_v1 = config.backbone.startswith("efficientnet-b")
    if config.redundant_bias or (is_v1 and config.fpn_name == "bifpn"):
        return name
    return _REPEAT_FIRST.sub(r"\1.\3.\2.\4", name)


def _check_effdet_has(config):
    if config.heads != ("object_detection",):
        raise InvalidValueError(
            "effdet has no such network: it has class and box heads, and no others. "
            f"Received: heads={config.heads!r}"
        )
    plain = config.separable_conv and not config.conv_after_downsample
    if not plain or config.fpn_weight_method.startswith("channel_"):
        raise InvalidValueError(
            "effdet has no such network: it needs separable_conv=True, "
            "conv_after_downsample=False and one weight per edge. Received: "
            f"separable_conv={config.separable_conv}, "
            f"conv_after_downsample={config.conv_after_downsample}, "
            f"fpn_weight_method={config.fpn_weight_method!r}"
        )


def _check_complete(arrays, network):
    shapes = {array.name: array.shape for array in network}
    received = {name: np.shape(value) for name, value in arrays.items()}
    wrong = sorted(
        name
        for name in shapes.keys() | received.keys()
        if shapes.get(name) != received.get(name)
    )
    if wrong:
        name = wrong[0]
        raise InvalidValueError(
            f"`arrays` must be the {len(shapes)} arrays of the network. {len(wrong)} "
            f"differ, first '{name}': expected shape {shapes.get(name)}. "
            f"Received: shape {received.get(name)}"
        )


def _saver(path):
    if path.suffix == ".safetensors":
        safetensors.require("Writing `.safetensors` files")
        save_file = safetensors_numpy.save_file
        return lambda state, to: save_file(state, to, metadata={"format": "pt"})
    if path.suffix in PICKLE_ENDINGS:
        torch = optional_torch.require("Writing a file of `torch.save`")
        return lambda state, to: torch.save(
            {name: torch.from_numpy(value) for name, value in state.items()}, to
        )
    raise InvalidValueError(
        "The path of an effdet state dict must end in '.safetensors', '.pth' or "
        f"'.pt'. Received: path='{path}'"
    )


# --- Which entries of a torch file belong to one network, and which to none or another.

BN_COUNTER = "num_batches_tracked"


@dataclasses.dataclass(frozen=True)
class FoundNetwork:
    """One network in a torch file."""

    arrays: dict  # name, without what stands before it in the file, to float32 array
    others: tuple  # what else is in the file
    prefix: str  # what stands before the names of the network
    dtypes: frozenset  # the types of numbers in the file

    @property
    def is_average(self):
        """Whether the network's weights are moving averages of another's."""
        return _is_average(self.prefix)

    @property
    def description(self):
        """Where in the file it is and what numbers it has, to stand after its name."""
        under = f", under '{self.prefix.rstrip('.')}'" if self.prefix else ""
        converted = sorted(self.dtypes - {"float32"})
        return under + (f", {' and '.join(converted)}" if converted else "")


def find_network(path, content, prefixes, averages):
    """Takes one network out of what a torch file holds."""
    wanted = [p for p in prefixes if _is_average(p) == averages] or prefixes
    if len(wanted) > 1:
        raise InvalidValueError(
            f"'{path}' holds {len(wanted)} networks: {wanted}. Save the state dict of "
            "one of them."
        )
    prefix = wanted[0]
    arrays, others, dtypes = {}, {}, set()
    for full_name, value in content.items():
        owner = max(filter(full_name.startswith, prefixes), key=len, default=None)
        name = full_name.removeprefix(prefix)
        # Who halves a whole state dict halves its counters too.
        is_counter = name.endswith(BN_COUNTER)
        if owner == prefix and _is_floating(value) and not is_counter:
            dtypes.add(str(value.dtype))
            arrays[name] = _as_float32(path, value)
        elif owner in (prefix, None):
            others[name if owner else full_name] = None
        else:
            others[owner.rstrip(".")] = None
    return FoundNetwork(arrays, tuple(others), prefix, frozenset(dtypes))


def _is_average(prefix):
    return "ema" in re.split(r"[._]", prefix.lower())


def _is_floating(value):
    # ml_dtypes' bfloat16 is "V".
    return isinstance(value, np.ndarray) and value.dtype.kind in "fV"


def _as_float32(path, value):
    try:
        return np.asarray(value, "float32")
    except (TypeError, ValueError) as error:
        raise InvalidValueError(damaged(path, error)) from error
