"""The arrays of a network with their shapes, and their names in each kind of file.

`network_arrays` lists the arrays, part by part. Each part has fields that say where it
is in the network. A `Scheme` holds the names that one kind of file has for these parts;
it is defined in the module of that kind. Readers, writers, the identification of models
and the report of missing weights use these two, and no other code contains such names.
A test checks that the list agrees with the layers.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping

import numpy as np

from effdet_keras.network.backbone import (
    block_table,
    feature_block_indices,
    stem_filters,
)
from effdet_keras.network.bifpn import pyramid_nodes

# The arrays of each kind of part, with their names in TensorFlow.
LEAVES = {
    "conv": ("/kernel", "/bias"),
    "depthwise": ("/depthwise_kernel",),
    "separable": ("/depthwise_kernel", "/pointwise_kernel", "/bias"),
    "bn": ("/gamma", "/beta", "/moving_mean", "/moving_variance"),
    "fusion": ("/WSM", "/WSM_1", "/WSM_2"),
}
TORCH_LEAVES = {
    "conv": (".weight", ".bias"),
    "depthwise": (".weight",),
    "separable": (".conv_dw.weight", ".conv_pw.weight", ".conv_pw.bias"),
    "bn": (".weight", ".bias", ".running_mean", ".running_var"),
    # Torch stores the fusion weights of a node in one vector: ".0" is its first entry.
    "fusion": (".edge_weights.0", ".edge_weights.1", ".edge_weights.2"),
}

# From TensorFlow's order of axes to torch's: HWIO -> OIHW, and HWC1 -> C1HW.
_TORCH_AXES = {
    "/kernel": (3, 2, 0, 1),
    "/pointwise_kernel": (3, 2, 0, 1),
    "/depthwise_kernel": (2, 3, 0, 1),
}
_SEGMENTATION = "segmentation_head/"  # prefix of the names of that head


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Scheme:
    """The names that one kind of file has for the arrays of a network."""

    # Part to its name, with fields of the part in braces. `{n:conv}` is Keras' name of
    # the n-th `conv`, and `{n:+1}` is a number that counts from 1.
    parts: Mapping[str, str]
    leaves: Mapping[str, tuple] = dataclasses.field(default_factory=lambda: LEAVES)
    is_torch: bool = False  # whether the axes of arrays are in torch's order
    # The order of anchors if the file does not state it: True for that of the model,
    # False for that of google/automl.
    has_our_anchors: bool = False
    needed_fields: tuple = ()  # config fields that are needed to interpret the arrays

    def name_of(self, array):
        """Returns the name of a network's array in files; None if they lack it."""
        part = self.parts.get(array.part)
        if part is None:
            return None
        return part.format_map(array.fields) + self.leaves[array.kind][array.index]


def under(start, **parts):
    """Prepends the same start to the names of several parts."""
    return {part: start + end for part, end in parts.items()}


def both_heads(start="", **parts):
    return {f"{h}_{p}": start + end for h in _HEADS for p, end in parts.items()}


_HEADS = ("class", "box")
# The variables of google/automl, the names in its `.h5` files, and our layers' names.
TF1 = Scheme(
    {
        "stem_conv": "{backbone}/stem/conv2d",
        "stem_bn": "{backbone}/stem/tpu_batch_normalization",
        **under(
            "{backbone}/blocks_{block}",
            expand_conv="/conv2d",
            expand_bn="/tpu_batch_normalization",
            depthwise_conv="/depthwise_conv2d",
            depthwise_bn="/{bn:tpu_batch_normalization}",
            se_reduce="/se/conv2d",
            se_expand="/se/conv2d_1",
            project_conv="/{conv:conv2d}",
            project_bn="/{bn:tpu_batch_normalization}",
            fused_conv="/conv2d",
            fused_bn="/tpu_batch_normalization",
            single_conv="/conv2d",
            single_bn="/tpu_batch_normalization",
        ),
        **under("resample_p{level}", level_conv="/conv2d", level_bn="/bn"),
        **under(
            "fpn_cells/cell_{cell}/fnode{node}",
            edge_conv="/resample_{edge}_{source}_{feature}/conv2d",
            edge_bn="/resample_{edge}_{source}_{feature}/bn",
            fusion="",
            node_conv="/op_after_combine{feature}/conv",
            node_bn="/op_after_combine{feature}/bn",
        ),
        **both_heads(
            "{head}_net/{head}-",
            conv="{repeat}",
            bn="{repeat}-bn-{level}",
            predict="predict",
        ),
        **under(
            "segmentation_head",
            segmentation_conv="/{step:conv2d_transpose}",
            segmentation_bn="/bn_{step}",
            segmentation_predict="/{step:conv2d_transpose}",
        ),
    },
)


@dataclasses.dataclass(frozen=True, eq=False)
class NetworkArray:
    """One array of a network."""

    part: str  # one of the parts in `TF1`
    kind: str  # the kind of the part, one of `LEAVES`
    index: int  # index among the arrays of the part
    shape: tuple
    fields: dict  # the position of the part in the network, for its names

    @functools.cached_property
    def name(self):
        """The name in google/automl's TF1 checkpoints, also used in this package."""
        return TF1.name_of(self)

    @property
    def torch_axes(self):
        """The transposition from our axis order to torch's, or None."""
        return _TORCH_AXES.get(LEAVES[self.kind][self.index])

    @property
    def is_backbone(self):
        return is_backbone_name(self.name)

    @property
    def is_head(self):
        return self.name.startswith(("class_net/", "box_net/", _SEGMENTATION))

    @property
    def is_segmentation(self):
        return self.name.startswith(_SEGMENTATION)


def is_backbone_name(name):
    return name.startswith(("efficientnet-", "efficientnetv2-"))


def network_arrays(config):
    return list(_arrays(config))


@functools.lru_cache(maxsize=32)  # a file is compared with every published model
def _arrays(config):
    parts = [*_backbone(config.backbone), *_extra_levels(config), *_bifpn(config)]
    if config.has_detection:
        parts += [*_head(config, "class", config.num_classes), *_head(config, "box", 4)]
    if config.has_segmentation:
        parts += _segmentation_head(config)
    return tuple(
        NetworkArray(part, kind, index, shape, {**fields, "number": number})
        for number, (part, kind, shapes, fields) in enumerate(parts)
        for index, shape in enumerate(shapes)
    )


class _Count(int):
    """A number from 0 that formats as the suffix of a name, as in Keras' files."""

    def __format__(self, name):
        if name == "+1":
            return str(int(self) + 1)
        number = str(int(self))
        return f"{name}_{number}" if name and self else name or number


def _part(part, kind, shapes, fields):
    """Returns a part; `shapes` may omit the last arrays of its kind."""
    counts = {k: _Count(v) if type(v) is int else v for k, v in fields.items()}
    return part, kind, shapes, counts


def _bn(part, filters, **fields):
    return _part(part, "bn", [(filters,)] * 4, fields)


def _conv(part, kernel_size, inputs, filters, bias=False, **fields):
    shapes = [(kernel_size, kernel_size, inputs, filters), (filters,)]
    return _part(part, "conv", shapes if bias else shapes[:1], fields)


def _conv3x3(config, part, inputs, filters, bias=True, **fields):
    if not config.separable_conv:
        return _conv(part, 3, inputs, filters, bias, **fields)
    shapes = [(3, 3, inputs, 1), (1, 1, inputs, filters), (filters,)]
    return _part(part, "separable", shapes if bias else shapes[:2], fields)


def _backbone(variant):
    """Yields the layers of a backbone with the shapes of their arrays."""
    inputs, stage, repeat = stem_filters(variant), -1, 0
    yield _conv("stem_conv", 3, 3, inputs, backbone=variant)
    yield _bn("stem_bn", inputs, backbone=variant)
    table = block_table(variant)
    counts = collections.Counter()  # Keras numbers the layers of each class
    for index, block in enumerate(table):
        # The blocks of a stage are equal except for the stride of the first.
        starts = index == 0 or _stage_of(block) != _stage_of(table[index - 1])
        stage, repeat = (stage + 1, 0) if starts else (stage, repeat + 1)
        is_mbconv = block.kind == "mbconv"
        layer = "mb_conv" if is_mbconv else "fused_mb_conv"
        place = {"backbone": variant, "block": index, "stage": stage, "repeat": repeat}
        place["letter"] = chr(ord("a") + repeat)
        place["version"] = "2" if variant.startswith("efficientnetv2-") else ""
        place["layer"] = f"{_Count(counts[layer]):{layer}}"
        parts = _mbconv(block, inputs) if is_mbconv else _fused(block, inputs)
        for part, kind, shapes, fields in parts:
            yield _part(part, kind, shapes, {**place, **fields})
        counts[layer] += 1
        inputs = block.filters


def _stage_of(block):
    return block.kind, block.kernel_size, block.expand_ratio, block.filters


def _fused(block, inputs):
    if block.kind != "fused":
        yield _conv("single_conv", block.kernel_size, inputs, block.filters)
        yield _bn("single_bn", block.filters)
        return
    width = inputs * block.expand_ratio
    yield _conv("fused_conv", block.kernel_size, inputs, width)
    yield _bn("fused_bn", width)
    yield _conv("project_conv", 1, width, block.filters, conv=1, torch="conv_pwl")
    yield _bn("project_bn", block.filters, bn=1, norm=1)


def _mbconv(block, inputs):
    """Yields the layers of an MBConv block.

    Some schemes number the layers, so names depend on whether there is an expansion.
    """
    expands = int(block.expand_ratio != 1)
    width, size = inputs * block.expand_ratio, block.kernel_size
    if expands:
        yield _conv("expand_conv", 1, inputs, width)
        yield _bn("expand_bn", width)
    yield _part("depthwise_conv", "depthwise", [(size, size, width, 1)], {})
    yield _bn("depthwise_bn", width, bn=expands)
    if block.se_ratio:
        reduced = max(1, int(inputs * block.se_ratio))
        yield _conv("se_reduce", 1, width, reduced, bias=True)
        yield _conv("se_expand", 1, reduced, width, bias=True)
    torch = "conv_pwl" if expands else "conv_pw"
    yield _conv("project_conv", 1, width, block.filters, conv=expands, torch=torch)
    yield _bn("project_bn", block.filters, bn=expands + 1, norm=2)


def _backbone_channels(config):
    table = block_table(config.backbone)
    feature_blocks = feature_block_indices(
        config.backbone, config.min_level, config.backbone_taps
    )
    return [table[i].filters for i in feature_blocks]


def _extra_levels(config):
    inputs = _backbone_channels(config)[-1]
    for level in range(6, config.max_level + 1):
        place = {"level": level, "extra": level - 6, "step": level - config.min_level}
        yield from _resample(config, "level", inputs, **place)
        inputs = config.fpn_num_filters


def _resample(config, part, inputs, **fields):
    filters, has_bn = config.fpn_num_filters, config.apply_bn_for_resampling
    if inputs == filters:
        return
    bias = config.redundant_bias or not has_bn
    yield _conv(f"{part}_conv", 1, inputs, filters, bias, **fields)
    if has_bn:
        yield _bn(f"{part}_bn", filters, **fields)


def _bifpn(config):
    filters, num_levels = config.fpn_num_filters, config.num_levels
    num_extra = config.max_level - 5
    channels = _backbone_channels(config) + [filters] * num_extra
    nodes = pyramid_nodes(config.fpn_name, config.min_level, config.max_level)
    for cell in range(config.fpn_cell_repeats):
        for index, node in enumerate(nodes):
            place = {"cell": cell, "node": index, "feature": num_levels + index}
            place["effdet_node"] = _index_in_effdet(index, len(nodes), config)
            # Counted over all cells, after the levels above those of the backbone.
            place["node_of_all"] = num_extra + cell * len(nodes) + index
            yield from _node(config, node, channels, place)
        channels = [filters] * num_levels


def _index_in_effdet(index, count, config):
    """Returns the index of a node in effdet.

    In effdet, the last nodes of QuadFPN, one per level, are in reverse order.
    """
    first_of_last = count - config.num_levels
    if config.fpn_name != "qufpn" or index < first_of_last:
        return index
    return count - 1 - (index - first_of_last)


def _node(config, node, channels, place):
    filters = config.fpn_num_filters
    for edge, source in enumerate(node.inputs):
        inputs = channels[source] if source < len(channels) else filters
        yield from _resample(config, "edge", inputs, **place, edge=edge, source=source)
    weight_method = node.weight_method or config.fpn_weight_method
    if weight_method != "sum":
        shape = (filters,) if weight_method.startswith("channel_") else ()
        yield _part("fusion", "fusion", [shape] * len(node.inputs), place)
    bias = config.redundant_bias and not config.conv_bn_act_pattern
    yield _conv3x3(config, "node_conv", filters, filters, bias, **place)
    yield _bn("node_bn", filters, **place)


def _head(config, head, outputs_per_anchor):
    filters = config.fpn_num_filters
    layer = "separable_conv2d" if config.separable_conv else "conv2d"
    for repeat in range(config.head_repeats):
        place = {"head": head, "repeat": repeat}
        place["layer"] = f"{_Count(repeat):{layer}}"
        bias = config.redundant_bias
        yield _conv3x3(config, f"{head}_conv", filters, filters, bias, **place)
        for step in range(config.num_levels):
            place["level"], place["step"] = config.min_level + step, step
            place["bn"] = repeat * config.num_levels + step
            place["layer_in_tower"] = 3 * repeat + 1  # after a convolution
            yield _bn(f"{head}_bn", filters, **place)
    outputs = outputs_per_anchor * config.num_anchors
    yield _conv3x3(config, f"{head}_predict", filters, outputs, head=head)


def _segmentation_head(config):
    filters, last = config.fpn_num_filters, config.num_levels - 1
    for step in range(last):
        inputs = filters if step == 0 else 2 * filters  # concatenated with the level's
        # The kernel of a transposed convolution has output channels before input ones.
        yield _conv("segmentation_conv", 3, filters, inputs, step=step)
        yield _bn("segmentation_bn", filters, step=step)
    shapes = [(3, 3, config.seg_num_classes, 2 * filters), (config.seg_num_classes,)]
    yield _part("segmentation_predict", "conv", shapes, {"step": last})


# --- The content of a weights file, and the description of a kind of file.


@dataclasses.dataclass(frozen=True)
class WeightSource:
    """The weights in a file, before they are matched with a network."""

    path: str  # path of the file or prefix of the checkpoint, for messages
    kind: str  # the kind of file in words: "PyTorch effdet state dict"
    scheme: Scheme  # the scheme of the names in `arrays`
    # Arrays in the layout of the file. If averages are requested and the file has one
    # for an array, it is the moving average.
    arrays: dict[str, np.ndarray]
    # By TF1 name: arrays that replace some of `arrays`, such as moving averages.
    instead: dict[str, np.ndarray] = dataclasses.field(
        default_factory=dict, kw_only=True
    )
    # By TF1 name of a weight: the array that a name map assigns to it, after that
    # array's name in the file.
    mapped: dict[str, tuple[str, np.ndarray]] = dataclasses.field(
        default_factory=dict, kw_only=True
    )
    num_averages: int = 0  # the number of moving averages among `arrays`
    others: tuple = ()  # other entries' names: optimizer slots, counters, random state
    class_names: tuple | None = None  # None if the file does not state them
    category_ids: tuple | None = None
    config: dict | None = None  # the fields of `EfficientDetConfig` in the file
    postprocess: dict | None = None  # the fields of `Postprocess` in the file
    notes: tuple = ()  # further notes for the user


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of weights file."""

    title: str  # the name that users know, for the message that lists all kinds
    # Whether a file is of this kind, from its path and its first bytes. The path of a
    # TensorFlow checkpoint is a prefix without a file, and then there are no bytes.
    is_of: Callable[[pathlib.Path, bytes], bool]
    # Returns a `WeightSource` from the path and `averages`, a bool: whether to take
    # moving averages if there are any.
    read: Callable
    options: tuple[str, ...] = ()  # further arguments of `read`: see `open_weights`


# --- The names of our weights in google/automl's checkpoints.

# Our layers have the published names, except for these kernels.
_OUR_KERNEL = "/depthwise_conv2d/kernel"
_KERNEL = "/depthwise_conv2d/depthwise_kernel"


def tf1_name(variable):
    """Returns the TF1-style name of a weight in a checkpoint."""
    # In the reference, fusion weights belong to the node itself.
    return variable.path.replace("/fusion/", "/").replace(_OUR_KERNEL, _KERNEL)


def path_of_tf1_name(name):
    """Returns the path of the weight with a TF1-style name; inverts `tf1_name`."""
    return name.replace("/WSM", "/fusion/WSM").replace(_KERNEL, _OUR_KERNEL)
