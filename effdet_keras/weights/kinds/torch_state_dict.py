"""State dicts of PyTorch: of a detector of effdet, or of a backbone alone."""

from __future__ import annotations

import json
import pathlib
import re

from effdet_keras.errors import InvalidValueError
from effdet_keras.model.config import TF_BACKBONE, TIMM_BACKBONE
from effdet_keras.weights.identify import names_of_no_backbone
from effdet_keras.weights.kinds.torch_effdet import (
    ENDINGS,
    HALF_CONFIG,
    TIMM,
    effdet_prefixes,
    effdet_source,
    find_network,
)
from effdet_keras.weights.kinds.torch_files import (
    PICKLE_MAGIC,
    ZIP_MAGIC,
    read_torch_file,
)
from effdet_keras.weights.network_arrays import TORCH_LEAVES, Scheme, under
from effdet_keras.weights.source import Kind, WeightSource


def read_torch_state_dict(path, averages=True):
    """Reads the weights of a detector or of a backbone, as the names in it tell."""
    path = pathlib.Path(path)
    content = read_torch_file(path)
    if effdet_prefixes(content):
        return effdet_source(path, content, averages)
    scheme = next((s for s in _STEMS if _prefixes(content, s)), None)
    if scheme is not None:
        return _efficientnet_source(path, content, averages, scheme)
    raise InvalidValueError(
        f"'{path}' holds another network: none of its {len(content)} entries has a "
        "name of PyTorch effdet ('backbone.conv_stem.weight'), EfficientNet-PyTorch "
        "('_conv_stem.weight') or timm's EfficientNet ('conv_stem.weight'). The first "
        f"are {list(content)[:3]}."
    )


def _is_of(path, head):
    return path.suffix in ENDINGS or head.startswith((ZIP_MAGIC, PICKLE_MAGIC))


KIND = Kind(
    title="PyTorch effdet's `.pth` or `.safetensors`; EfficientNet-PyTorch's or timm's "
    "EfficientNet in such a file, of which the backbone is taken",
    is_of=_is_of,
    read=read_torch_state_dict,
)


# --- Backbones from PyTorch: the classifiers of EfficientNet-PyTorch and of timm.

EFFICIENTNET_PYTORCH = Scheme(  # of that package, which has no EfficientNetV2
    "efficientnet-pytorch",
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

_STEMS = {EFFICIENTNET_PYTORCH: "_conv_stem.weight", TIMM: "conv_stem.weight"}
_TITLES = {EFFICIENTNET_PYTORCH: "EfficientNet-PyTorch", TIMM: "timm EfficientNet"}
_CLASS_LAYERS = {EFFICIENTNET_PYTORCH: "_fc.weight", TIMM: "classifier.weight"}

_TIMM_MODEL = re.compile(
    r"(tf_)?(?:efficientnet_(?:b\d|l2|lite\d|v2s)|efficientnetv2_(?:rw_[ts]|[smlt]|b\d))"
)
# Adversarial training (AdvProp) had pixels from -1 to 1.
_ADVPROP = re.compile(r"(?:^|[^a-z])adv-efficientnet|efficientnet_b\d_ap|\.ap_in1k")

_UNKNOWN_PADDING = (
    "timm's 'efficientnet_b0' and 'tf_efficientnet_b0' name their arrays alike, and "
    "the file does not say which it is of: the model keeps its own `backbone_padding` "
    "and epsilon, which are those of the 'tf_' models where nothing else is told; the "
    "others pad symmetrically and have another epsilon (1e-5)"
)


def _efficientnet_source(path, content, averages, scheme):
    """The backbone of a classifier."""
    found = find_network(path, content, _prefixes(content, scheme), averages)
    _refuse_other_networks(path, found.arrays, scheme)
    model = _model_name(path, content) if scheme == TIMM else None
    is_unknown = scheme == TIMM and model is None
    is_of_tf = (model or "tf_").startswith("tf_")
    padding = {} if is_unknown else TF_BACKBONE if is_of_tf else TIMM_BACKBONE
    is_advprop = _ADVPROP.search(f"{path.name} {content.get('arch')}")
    return WeightSource(
        path=str(path),
        kind=_TITLES[scheme] + _what(found.arrays, scheme) + found.description,
        scheme=scheme,
        arrays=found.arrays,
        num_averages=len(found.arrays) if found.is_average else 0,
        others=found.others,
        config={**padding, **(HALF_CONFIG if is_advprop else {})} or None,
        notes=(_UNKNOWN_PADDING,) if is_unknown else (),
    )


def _prefixes(content, scheme):
    """What stands before the names of each network in the file."""
    stem = _STEMS[scheme]
    found = [name.removesuffix(stem) for name in content if name.endswith(stem)]
    return [prefix for prefix in found if prefix[-1:] in ("", ".")]


def _what(arrays, scheme):
    layer = arrays.get(_CLASS_LAYERS[scheme])
    if layer is None:
        return " backbone"
    return f" classifier of {len(layer):,} classes"


def _refuse_other_networks(path, arrays, scheme):
    blocks = [name for name in arrays if name.lstrip("_").startswith("blocks.")]
    foreign = names_of_no_backbone(blocks, scheme)
    if foreign:
        raise InvalidValueError(
            f"'{path}' is not of EfficientNet B0-B7, Lite0-4 or V2: {len(foreign)} of "
            f"its arrays have no place, first '{foreign[0]}' "
            f"{arrays[foreign[0]].shape}."
        )


def _model_name(path, content):
    """timm's name of the model, by what the file says, or what is written beside it."""
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
