"""Finds a network's arrays in a weights file, and identifies the network of a file."""

import dataclasses
import re

import numpy as np

from effdet_keras.network.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.weights.network_arrays import is_backbone_name, network_arrays

_CLASS_BIAS, _BOX_BIAS = "class_net/class-predict/bias", "box_net/box-predict/bias"


@dataclasses.dataclass(frozen=True)
class Match:
    """The arrays of a network that a weights file has, and those that it lacks."""

    found: dict  # name (that of `NetworkArray`) to array, in our layout
    mismatched: dict  # the same, for arrays whose shape is not that of the network
    missing: list  # `NetworkArray`s that the file does not have
    left_over: list  # names of arrays in the file that the network does not have


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
    """Transposes an array of a file to the axis order of our network."""
    axes = array.torch_axes
    if scheme.is_torch and axes is not None and np.ndim(value) == len(axes):
        return np.transpose(value, np.argsort(axes))
    return value


def for_our_anchors(value, array, source, config):
    """Converts a head's last layer to our order of anchors and our `box_scales`.

    Other arrays are returned unchanged.
    """
    is_last = array.part in ("class_predict", "box_predict")
    count = np.shape(value)[-1] if np.ndim(value) else 0
    if not is_last or not count or count % config.num_anchors:
        return value
    if array.name.endswith("/depthwise_kernel"):
        return value  # it does not depend on the anchors
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
    """The published models to which a weights file may belong."""

    names: tuple  # models that its arrays fit; D6 and D7 have the same arrays
    num_classes: int | None  # None without a class head
    is_backbone: bool  # whether the file has a backbone only
    nearest: str | None = None  # the model for which the most arrays fit

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
    """Returns those of the models whose padding is the one that the file states.

    If there are none, all models are returned.
    """
    padding = (source.config or {}).get("backbone_padding", "same")
    configs = map(EfficientDetConfig.from_name, names)
    agreeing = [c.name for c in configs if c.backbone_padding == padding]
    return agreeing or names


def num_classes_of(source):
    """Returns the number of classes of a file's class head; None without that head."""
    size, of_boxes = _size_of(source, _CLASS_BIAS), _size_of(source, _BOX_BIAS)
    num_anchors = of_boxes // 4 or EfficientDetConfig().num_anchors
    return size // num_anchors or None


def _size_of(source, name):
    """Returns the size of a last layer's bias in a file; 0 if the file lacks it."""
    array = next(a for a in network_arrays(EfficientDetConfig()) if a.name == name)
    value = source.arrays.get(source.scheme.name_of(array), ())
    if name in source.mapped:
        _, value = source.mapped[name]
    return np.size(value)


# Additional blocks, cells or layers mean a different network, not a stray array.
_NETWORK_NAME = re.compile(r"(block|cell|fnode|class_net|box_net|resample)")


def holds_more(left_over):
    """Returns whether left-over names show that the file is of a larger network."""
    return any(_NETWORK_NAME.search(name) for name in left_over)
