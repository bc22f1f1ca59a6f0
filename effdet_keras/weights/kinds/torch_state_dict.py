"""State dicts of PyTorch: of a detector of effdet, or of a backbone alone.

effdet's `tf_` models compute the same as google/automl's models. Its other models have
timm's backbones, which pad symmetrically and have another epsilon in batch norm. They
are recognized by the lack of biases before batch norm; only D4 and D5 have them.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re

import numpy as np

from effdet_keras._internal.remote_path import WholeFileError
from effdet_keras.network.config import (
    EFFDET_ANCHORS,
    MODEL_NAMES,
    TF_BACKBONE,
    TIMM_BACKBONE,
    EfficientDetConfig,
)
from effdet_keras.weights.identify import identify
from effdet_keras.weights.kinds.torch_files import read_torch_file
from effdet_keras.weights.network_arrays import (
    TORCH_LEAVES,
    Kind,
    Scheme,
    WeightSource,
    both_heads,
    under,
)

TIMM = Scheme(  # timm's EfficientNet, the backbone alone
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
        **both_heads(
            "{head}_net",
            conv=".conv_rep.{repeat}",
            bn=".bn_rep.{repeat}.{step}.bn",
            predict=".predict",
        ),
    },
    TORCH_LEAVES,
    is_torch=True,
)

EFFICIENTNET_PYTORCH = Scheme(  # the package of this name, without EfficientNetV2
    {
        "stem_conv": "_conv_stem",
        "stem_bn": "_bn0",
        **under(
            "_blocks.{block}",
            expand_conv="._expand_conv",
            expand_bn="._bn0",
            depthwise_conv="._depthwise_conv",
            depthwise_bn="._bn1",
            se_reduce="._se_reduce",
            se_expand="._se_expand",
            project_conv="._project_conv",
            project_bn="._bn2",
        ),
    },
    TORCH_LEAVES,
    is_torch=True,
)

_STEMS = {  # the name of the stem's kernel, which identifies the kind of network
    TORCH: "backbone.conv_stem.weight",
    EFFICIENTNET_PYTORCH: "_conv_stem.weight",
    TIMM: "conv_stem.weight",
}
_TITLES = {EFFICIENTNET_PYTORCH: "EfficientNet-PyTorch", TIMM: "timm EfficientNet"}
_CLASS_LAYERS = {EFFICIENTNET_PYTORCH: "_fc.weight", TIMM: "classifier.weight"}

# Mean and standard deviation of 0.5, used by the AdvProp and the Lite models.
HALF_CONFIG = {"mean_rgb": (127.5,) * 3, "stddev_rgb": (127.5,) * 3}

BN_COUNTER = "num_batches_tracked"
PICKLE_ENDINGS = (".pth", ".pt")
ENDINGS = (*PICKLE_ENDINGS, ".safetensors")
_MAGIC = (b"PK\x03\x04", b"\x80")  # the first bytes of files of `torch.save`

# Names with effdet's `head_bn_level_first`, for TorchScript: level before repeat.
_LEVEL_FIRST = re.compile(r"^((?:class|box)_net\.bn_rep)\.(\d+)\.(\d+)\.(\w+)$")
_BIAS_BEFORE_BN = re.compile(r"fpn\..+\.conv(_pw)?\.bias")

_TIMM_MODEL = re.compile(
    r"(tf_)?(?:efficientnet_(?:b\d|l2|lite\d|v2s)|efficientnetv2_(?:rw_[ts]|[smlt]|b\d))"
)
# Names of models of adversarial training (AdvProp), which scales pixels to -1 to 1.
_ADVPROP = re.compile(r"(?:^|[^a-z])adv-efficientnet|efficientnet_b\d_ap|\.ap_in1k")

# Config fields of an effdet model that the shapes of its arrays do not show.
_FIELDS_OF_A_FAMILY = (
    "backbone_padding",
    "fpn_padding",
    "redundant_bias",
    "backbone_batch_norm_momentum",
    "backbone_batch_norm_epsilon",
    "fpn_name",
    "fpn_weight_method",
    "fpn_downsampling",
    "fpn_upsampling",
    "aspect_ratios",
    "anchor_scale",
    "mean_rgb",
    "stddev_rgb",
)


def read_torch_state_dict(path, averages=True):
    return source_of(pathlib.Path(path), read_torch_file(path), averages)


def source_of(path, content, averages):
    """Returns the network in the content of `read_torch_file` as a `WeightSource`."""
    for scheme, stem in _STEMS.items():
        found = [name.removesuffix(stem) for name in content if name.endswith(stem)]
        prefixes = [prefix for prefix in found if prefix[-1:] in ("", ".")]
        if prefixes:
            source = _network(path, content, prefixes, averages, scheme)
            return (_detector if scheme is TORCH else _backbone)(path, content, source)
    raise WholeFileError(
        f"'{path}' contains another network: none of its {len(content)} entries has a "
        "name of PyTorch effdet ('backbone.conv_stem.weight'), EfficientNet-PyTorch "
        "('_conv_stem.weight') or timm's EfficientNet ('conv_stem.weight'). Its first "
        f"entries are {list(content)[:3]}."
    )


def _network(path, content, prefixes, averages, scheme):
    """Selects one of the networks in a file, and lists the names of other entries."""
    wanted = [p for p in prefixes if _is_average(p) == averages] or prefixes
    if len(wanted) > 1:
        raise WholeFileError(
            f"'{path}' contains {len(wanted)} networks: {wanted}. Save the state dict "
            "of one of them."
        )
    prefix = wanted[0]
    arrays, others = {}, {}
    for full_name, value in content.items():
        owner = max(filter(full_name.startswith, prefixes), key=len, default=None)
        name = full_name.removeprefix(prefix)
        # Counters may be floats too, if a whole state dict was converted to float16.
        is_counter = name.endswith(BN_COUNTER)
        # The dtype kind of ml_dtypes' bfloat16 is "V".
        is_float = isinstance(value, np.ndarray) and value.dtype.kind in "fV"
        if owner == prefix and is_float and not is_counter:
            arrays[name] = np.asarray(value, "float32")
        elif owner in (prefix, None):
            others[name if owner else full_name] = None
        else:
            others[owner.rstrip(".")] = None
    arrays = _named(arrays) if scheme is TORCH else arrays
    return WeightSource(
        path=str(path),
        kind=f", under '{prefix.rstrip('.')}'" if prefix else "",
        scheme=scheme,
        arrays=arrays,
        num_averages=len(arrays) if _is_average(prefix) else 0,
        others=tuple(others),
    )


def _is_average(prefix):
    return "ema" in re.split(r"[._]", prefix.lower())


def _detector(path, content, source):
    arch = content.get("arch")  # timm's name of the model
    config = _config(path, source.arrays, arch if isinstance(arch, str) else "")
    kind = f"PyTorch effdet state dict{source.kind}"
    return dataclasses.replace(source, kind=kind, config=config)


def _backbone(path, content, source):
    scheme = source.scheme
    model = _model_name(path, content) if scheme is TIMM else "tf_"
    padding = {}
    if model is not None:
        padding = TF_BACKBONE if model.startswith("tf_") else TIMM_BACKBONE
    is_advprop = _ADVPROP.search(f"{path.name} {content.get('arch')}")
    layer = source.arrays.get(_CLASS_LAYERS[scheme])
    what = "backbone" if layer is None else f"classifier of {len(layer):,} classes"
    return dataclasses.replace(
        source,
        kind=f"{_TITLES[scheme]} {what}{source.kind}",
        config={**padding, **(HALF_CONFIG if is_advprop else {})} or None,
        notes=(_UNKNOWN_PADDING,) if model is None else (),
    )


def _is_of(path, head):
    return path.suffix in ENDINGS or head.startswith(_MAGIC)


KIND = Kind(
    title="PyTorch effdet's `.pth` or `.safetensors`; EfficientNet-PyTorch's or timm's "
    "EfficientNet in such a file, of which the backbone is taken",
    is_of=_is_of,
    read=read_torch_state_dict,
)


# --- Names of a detector's arrays, and its model.


def _named(arrays):
    """Returns the arrays by the names of the scheme `TORCH`."""
    named = {}
    for name, value in arrays.items():
        if name.endswith(".edge_weights"):
            weights = enumerate(value.ravel())
            named.update({f"{name}.{i}": np.asarray(v) for i, v in weights})
        else:
            named[_LEVEL_FIRST.sub(r"\1.\3.\2.bn.\4", name)] = value
    return named


def _config(path, arrays, arch):
    """Returns the config fields that cannot be told from the shapes of the arrays."""
    # Shapes do not show how a model pads and how it normalizes images. The model's
    # family determines this. AdvProp models, and effdet's own D4 and D5, can only be
    # recognized by name.
    has_biases = any(map(_BIAS_BEFORE_BN.fullmatch, arrays))
    if has_biases and not arch.startswith("efficientdet"):
        is_advprop = re.search(r"_ap(?![a-z])", f"{path.name} {arch}")
        is_lite = not any(".se." in array for array in arrays)
        half = HALF_CONFIG if is_advprop or is_lite else {}
        return {**_TF_NETWORK, **EFFDET_ANCHORS, **half}
    model = _name_here(arch)
    if model is None:
        names = identify(WeightSource(str(path), "", TORCH, arrays)).names
        fitting = map(EfficientDetConfig.from_name, names)
        model = next((c.name for c in fitting if not c.redundant_bias), None)
    if model is None:  # an unpublished model: the fields that its family has in common
        return {**_OWN_NETWORK, **EFFDET_ANCHORS}
    config = EfficientDetConfig.from_name(model)
    return {field: getattr(config, field) for field in _FIELDS_OF_A_FAMILY}


_TF_NETWORK = {**TF_BACKBONE, "fpn_padding": "same", "redundant_bias": True}
_OWN_NETWORK = {**TIMM_BACKBONE, "fpn_padding": "symmetric", "redundant_bias": False}


def _name_here(name):
    ours = name.replace("_", "-")
    candidates = [ours.replace("efficientdet-", "effdet-"), ours]
    return next((model for model in candidates if model in MODEL_NAMES), None)


# --- The model of a backbone.

_UNKNOWN_PADDING = (
    "the file does not say whether it is timm's 'efficientnet_b0' or "
    "'tf_efficientnet_b0', whose arrays have the same names: the model keeps its own "
    "`backbone_padding` and epsilon. Its defaults are those of the 'tf_' models; the "
    "other models pad symmetrically and have another epsilon (1e-5)"
)


def _model_name(path, content):
    """Returns timm's name of the model, from the file, its `config.json` or its path.

    None if none of them has the name.
    """
    beside = path.with_name("config.json")  # as on the Hugging Face Hub
    said = [content.get("arch"), _architecture(beside), path.name, str(path.parent)]
    for text in said:
        match = _TIMM_MODEL.search(text) if isinstance(text, str) else None
        if match:
            return match[0]
    return None


def _architecture(path):
    try:
        return json.loads(path.read_text(encoding="utf-8")).get("architecture")
    except (OSError, ValueError, AttributeError):
        return None
