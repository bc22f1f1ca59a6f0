"""Finds a network's arrays in a file of weights, and which network a file is of."""

import dataclasses
import re

import numpy as np

from effdet_keras.network.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.weights.network_arrays import is_backbone_name, network_arrays

_CLASS_BIAS, _BOX_BIAS = "class_net/class-predict/bias", "box_net/box-predict/bias"


@dataclasses.dataclass(frozen=True)
class Match:
    """A network beside a file of weights."""

    found: dict  # name (that of `NetworkArray`) to array, in our layout
    mismatched: dict  # the same, of arrays of another shape
    missing: list  # `NetworkArray`s that the file does not hold
    left_over: list  # names in the file that no array asked for


def match_arrays(source, config):
    """Looks up every array of the network of `config` in `source`."""
    found, mismatched, missing, used = {}, {}, [], set()
    for array in network_arrays(config):
        name = source.scheme.name_of(array)
        if array.name in source.mapped:
            _, value = source.mapped[array.name]
        elif name in source.arrays:
            used.add(name)
            value = source.instead.get(array.name, source.arrays[name])
        else:
            missing.append(array)
            continue
        value = to_our_layout(value, array, source.scheme)
        value = for_our_anchors(value, array, source, config)
        group = found if np.shape(value) == array.shape else mismatched
        group[array.name] = value
    left_over = [name for name in source.arrays if name not in used]
    return Match(found, mismatched, missing, left_over)


def to_our_layout(value, array, scheme):
    """An array of a file in the order of axes of our network."""
    axes = array.torch_axes
    if scheme.is_torch and axes is not None and np.ndim(value) == len(axes):
        return np.transpose(value, np.argsort(axes))
    return value


def for_our_anchors(value, array, source, config):
    """An array of a last layer, with anchors and scales of codes as ours."""
    is_last = array.part in ("class_predict", "box_predict")
    count = np.shape(value)[-1] if np.ndim(value) else 0
    if not is_last or not count or count % config.num_anchors:
        return value
    if array.name.endswith("/depthwise_kernel"):
        return value  # it knows no anchors
    in_file = source.config or {}
    other = config if source.scheme.has_our_anchors else EfficientDetConfig()
    order = in_file.get("anchor_order", other.anchor_order)
    lead = np.shape(value)[:-1]
    num_aspects = len(config.aspect_ratios)
    if order != config.anchor_order:
        there = (config.num_scales, num_aspects)
        there = there if order == "scale_first" else there[::-1]
        value = np.swapaxes(np.reshape(value, (*lead, *there, -1)), -3, -2)
        value = np.reshape(value, (*lead, -1))
    scales = tuple(in_file.get("box_scales", other.box_scales))
    if array.part == "box_predict" and scales != config.box_scales:
        factors = np.float32(config.box_scales) / np.float32(scales)
        value = np.asarray(value, "float32") * np.tile(factors, config.num_anchors)
    return value


@dataclasses.dataclass(frozen=True)
class Identity:
    """Which network a file of weights is of."""

    names: tuple  # published models that its arrays fit; D6 and D7 have the same
    num_classes: int | None  # None without a class head
    is_backbone: bool  # whether it holds a backbone alone
    nearest: str | None = None  # the model that most arrays fit

    def __str__(self):
        if not self.names:
            return f"no published model; nearest: {self.nearest or 'none'}"
        text = " or ".join(self.names)
        if self.is_backbone:
            return f"the backbone of {text}"
        return f"{text}, {self.num_classes} classes"


def identify(source):
    """Finds the published models whose arrays have the names and shapes of a source."""
    num_classes = num_classes_of(source)
    whole, backbones, fits = [], [], {}
    for name in MODEL_NAMES:
        config = EfficientDetConfig.from_name(name, num_classes=num_classes or 90)
        match = match_arrays(source, config)
        fits[name] = len(match.found)
        if match.mismatched or holds_more(match.left_over):
            continue
        missing = {array.is_backbone for array in match.missing}
        if not missing:
            whole.append(name)
        elif missing == {False} and all(map(is_backbone_name, match.found)):
            backbones.append(name)
    nearest = max(fits, key=fits.get)
    return Identity(
        names=tuple(_with_padding_of(whole or backbones, source)),
        num_classes=num_classes,
        is_backbone=bool(backbones) and not whole,
        nearest=nearest if fits[nearest] else None,
    )


def _with_padding_of(names, source):
    """Of models with the same arrays, those that pad as the file tells."""
    padding = (source.config or {}).get("backbone_padding", "same")
    configs = map(EfficientDetConfig.from_name, names)
    agreeing = [c.name for c in configs if c.backbone_padding == padding]
    return agreeing or names


def num_classes_of(source):
    """The number of classes of a file's class head, or None if it has no such head."""
    size, of_boxes = _size_of(source, _CLASS_BIAS), _size_of(source, _BOX_BIAS)
    num_anchors = of_boxes // 4 or EfficientDetConfig().num_anchors
    return size // num_anchors or None


def _size_of(source, name):
    """How many numbers a bias of the last layers has in a file; 0 without it."""
    array = next(a for a in network_arrays(EfficientDetConfig()) if a.name == name)
    value = source.arrays.get(source.scheme.name_of(array), ())
    if name in source.mapped:
        _, value = source.mapped[name]
    return np.size(value)


# A block, a cell or a layer too many is another network, not a stray array.
_NETWORK_NAME = re.compile(r"(block|cell|fnode|class_net|box_net|resample)")


def holds_more(left_over):
    """Whether names that no array asked for are of another, larger network."""
    return any(_NETWORK_NAME.search(name) for name in left_over)
