"""The arrays of a network, and what each kind of checkpoint calls them.

One walk over the network's parts lists every array once, with its shape and its
name in each scheme. Readers, writers, the recognition of models and the report of what
is missing all use this list; nothing else knows a name. A test holds it and the layers
together.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools

from effdet_keras.model.backbone import block_table, stem_filters, tapped_blocks
from effdet_keras.model.bifpn import pyramid_nodes

TF1 = "automl-tf1"  # google/automl's variables; also the names in its `.h5` files
OBJECT_GRAPH = "automl-keras"  # the object graph that its tf2/train.py saves
TORCH = "torch-effdet"  # the state dict of PyTorch effdet
TIMM = "timm"  # that of timm's EfficientNet, the backbone alone
EFFICIENTNET_PYTORCH = "efficientnet-pytorch"  # of that package, the backbone alone
TFOD = "tfod"  # the paths in the object graph of the Object Detection API
APPLICATIONS = "keras-applications"  # the backbone alone
OWN = "effdet-keras"  # the paths inside our `.weights.h5`

TORCH_SCHEMES = (TORCH, TIMM, EFFICIENTNET_PYTORCH)  # with torch's order of axes

_SEGMENTATION = "segmentation_head/"  # how the names of that head begin

# From TensorFlow's order of axes to torch's. HWIO -> OIHW, and HWC1 -> C1HW.
_CONV_AXES, _DEPTHWISE_AXES = (3, 2, 0, 1), (2, 3, 0, 1)

_TIMM_IN_EFFDET = "backbone."  # effdet's backbones are timm's

# The arrays of a part: leaf in TensorFlow's schemes, in torch's, in ours; axes.
_LEAVES = {
    "conv": (
        ("kernel", "weight", "vars/0", _CONV_AXES),
        ("bias", "bias", "vars/1", None),
    ),
    "depthwise": (("depthwise_kernel", "weight", "vars/0", _DEPTHWISE_AXES),),
    "separable": (
        ("depthwise_kernel", "conv_dw.weight", "vars/0", _DEPTHWISE_AXES),
        ("pointwise_kernel", "conv_pw.weight", "vars/1", _CONV_AXES),
        ("bias", "conv_pw.bias", "vars/2", None),
    ),
    "bn": (
        ("gamma", "weight", "vars/0", None),
        ("beta", "bias", "vars/1", None),
        ("moving_mean", "running_mean", "vars/2", None),
        ("moving_variance", "running_var", "vars/3", None),
    ),
    # Torch keeps a node's weights in one vector: ".0" is its first entry.
    "fusion": tuple(
        (f"WSM_{i}" if i else "WSM", f"edge_weights.{i}", f"fusion/vars/{i}", None)
        for i in range(3)
    ),
}


# The Object Detection API keeps a node's weights in one array, a row for each edge.
_TFOD_LEAVES = {
    name: f"bifpn_combine_weights/{edge}"
    for edge, (name, *_) in enumerate(_LEAVES["fusion"])
}
_TFOD_BACKBONE = "_feature_extractor/_efficientnet"
_TFOD_BIFPN = "_feature_extractor/_bifpn_stage"
_TFOD_HEADS = "_box_predictor"
_TFOD_PREDICT = {
    "class": "_prediction_heads/class_predictions_with_background"
    "/_class_predictor_layers/0",
    "box": "_box_prediction_head/_box_encoder_layers/0",
}
_TFOD_TOWERS = {
    "class": ("ClassPredictionTower", "class_predictions_with_background"),
    "box": ("BoxPredictionTower", "box_encodings"),
}


@dataclasses.dataclass(frozen=True)
class NetworkArray:
    """One array of a network."""

    name: str  # in google/automl's TF1 checkpoints, and everywhere in this package
    shape: tuple  # in our network
    names: dict  # scheme to the name there; a scheme that lacks it is missing
    torch_axes: tuple | None = None  # the transpose from our shape to torch's

    @property
    def is_backbone(self):
        return is_backbone_name(self.name)

    @property
    def is_head(self):
        """Whether it belongs to one of the heads."""
        return self.name.startswith(("class_net/", "box_net/", _SEGMENTATION))

    @property
    def is_segmentation(self):
        """Whether it belongs to the segmentation head."""
        return self.name.startswith(_SEGMENTATION)

    @property
    def is_box_layer(self):
        """Whether it belongs to the last layer of the box head."""
        return self.name.startswith("box_net/box-predict/")

    @property
    def is_class_layer(self):
        """Whether it belongs to the last layer of the class head."""
        return self.name.startswith("class_net/class-predict/")


def is_backbone_name(name):
    """Whether an array of this name (that of `NetworkArray`) is the backbone's."""
    return name.startswith(("efficientnet-", "efficientnetv2-"))


def network_arrays(config):
    """Every array of the network of a config."""
    return list(_arrays(config))


@functools.lru_cache(maxsize=32)  # a file is compared with every published model
def _arrays(config):
    arrays = [*_backbone(config.backbone), *_extra_levels(config), *_bifpn(config)]
    if config.has_detection:
        arrays += _head(config, "class", config.num_classes, "prediction_head_1")
        arrays += _head(config, "box", 4, "prediction_head")
    if config.has_segmentation:
        arrays += _segmentation_head(config)
    return tuple(arrays)


def _part(
    kind, shapes, tf1, graph, torch, own, applications=None, pytorch=None, *, tfod
):
    """The arrays of one part; `shapes` may leave out the last of its kind."""
    for shape, (leaf, torch_leaf, own_leaf, axes) in zip(shapes, _LEAVES[kind]):
        names = {
            TF1: f"{tf1}/{leaf}",
            OBJECT_GRAPH: f"{graph}/{leaf}",
            TORCH: f"{torch}.{torch_leaf}",
            OWN: f"{own}/{own_leaf}",
        }
        if tfod is not None:
            names[TFOD] = f"{tfod}/{_TFOD_LEAVES.get(leaf, leaf)}"
        if applications is not None:
            names[APPLICATIONS] = f"{applications}/{leaf}"
            names[TIMM] = names[TORCH].removeprefix(_TIMM_IN_EFFDET)
        if pytorch is not None:
            names[EFFICIENTNET_PYTORCH] = f"{pytorch}.{torch_leaf}"
        yield NetworkArray(names[TF1], shape, names, axes)


def _bn(filters, *names, tfod):
    return _part("bn", [(filters,)] * 4, *names, tfod=tfod)


def _conv(kernel_size, inputs, filters, *names, bias=False, tfod):
    shapes = [(kernel_size, kernel_size, inputs, filters), (filters,)]
    return _part("conv", shapes if bias else shapes[:1], *names, tfod=tfod)


def _conv3x3(config, inputs, filters, *names, bias=True, tfod):
    """Separable or plain, as the BiFPN and the heads have them."""
    if not config.separable_conv:
        yield from _conv(3, inputs, filters, *names, bias=bias, tfod=tfod)
        return
    shapes = [(3, 3, inputs, 1), (1, 1, inputs, filters), (filters,)]
    yield from _part("separable", shapes if bias else shapes[:2], *names, tfod=tfod)


def _backbone(variant):
    stem, own = stem_filters(variant), "layers/efficient_net"
    graph, torch = "backbone/_stem", "backbone"
    # There the layers that have weights are counted.
    tfod = (f"{_TFOD_BACKBONE}/layer_with_weights-{i}" for i in itertools.count())
    yield from _conv(
        *(3, 3, stem, f"{variant}/stem/conv2d", f"{graph}/_conv_stem"),
        *(f"{torch}.conv_stem", f"{own}/stem/conv", "stem_conv", "_conv_stem"),
        tfod=next(tfod),
    )
    yield from _bn(
        *(stem, f"{variant}/stem/tpu_batch_normalization", f"{graph}/_bn"),
        *(f"{torch}.bn1", f"{own}/stem/bn", "stem_bn", "_bn0"),
        tfod=next(tfod),
    )
    inputs, stage, repeat = stem, -1, 0
    table = block_table(variant)
    counts = collections.Counter()  # Keras numbers the layers of each class
    depthwise = "dwconv2" if variant.startswith("efficientnetv2-") else "dwconv"
    for index, block in enumerate(table):
        # The blocks of a stage differ in nothing but the stride of the first.
        starts = index == 0 or _stage_of(block) != _stage_of(table[index - 1])
        stage, repeat = (stage + 1, 0) if starts else (stage, repeat + 1)
        layer = "mb_conv" if block.kind == "mbconv" else "fused_mb_conv"
        names = (
            f"{variant}/blocks_{index}",
            f"backbone/_blocks/{index}",
            f"backbone.blocks.{stage}.{repeat}",
            f"{own}/blocks/{_numbered(layer, counts[layer])}",
            f"block{stage + 1}{chr(ord('a') + repeat)}",
        )
        if block.kind == "mbconv":
            yield from _block(
                block, inputs, depthwise, *names, f"_blocks.{index}", tfod
            )
        else:
            yield from _fused_block(block, inputs, *names)
        counts[layer] += 1
        inputs = block.filters


def _stage_of(block):
    return block.kind, block.kernel_size, block.expand_ratio, block.filters


def _fused_block(block, inputs, tf1, graph, torch, own, applications):
    """FusedMBConv, or a convolution alone, which has the name of a projection."""
    projects = block.kind == "fused"
    width = inputs * block.expand_ratio if projects else block.filters
    name = "expand" if projects else "project"
    yield from _conv(
        *(block.kernel_size, inputs, width, f"{tf1}/conv2d"),
        *(f"{graph}/_{name}_conv", f"{torch}.{'conv_exp' if projects else 'conv'}"),
        *(f"{own}/conv", f"{applications}_{name}_conv", None),
        tfod=None,
    )
    yield from _bn(
        *(width, f"{tf1}/tpu_batch_normalization", f"{graph}/_bn0", f"{torch}.bn1"),
        *(f"{own}/bn", f"{applications}_{name}_bn", None),
        tfod=None,
    )
    if projects:
        yield from _conv(
            *(1, width, block.filters, f"{tf1}/conv2d_1", f"{graph}/_project_conv"),
            *(f"{torch}.conv_pwl", f"{own}/project_conv"),
            *(f"{applications}_project_conv", None),
            tfod=None,
        )
        yield from _bn(
            *(block.filters, f"{tf1}/tpu_batch_normalization_1", f"{graph}/_bn1"),
            *(f"{torch}.bn2", f"{own}/project_bn", f"{applications}_project_bn", None),
            tfod=None,
        )


def _block(
    block, inputs, depthwise, tf1, graph, torch, own, applications, pytorch, tfod
):
    """MBConv; its layers are numbered in order, so names shift with expansion."""
    expands = block.expand_ratio != 1
    width = inputs * block.expand_ratio
    conv = iter(("conv2d", "conv2d_1"))
    bn = iter(f"tpu_batch_normalization{end}" for end in ("", "_1", "_2"))
    torch_conv = iter(("conv_pw", "conv_pwl"))
    torch_bn = iter(("bn1", "bn2", "bn3"))
    if expands:
        yield from _conv(
            *(1, inputs, width, f"{tf1}/{next(conv)}", f"{graph}/_expand_conv"),
            *(f"{torch}.{next(torch_conv)}", f"{own}/expand_conv"),
            *(f"{applications}_expand_conv", f"{pytorch}._expand_conv"),
            tfod=next(tfod),
        )
        yield from _bn(
            *(width, f"{tf1}/{next(bn)}", f"{graph}/_bn0"),
            *(f"{torch}.{next(torch_bn)}", f"{own}/expand_bn"),
            *(f"{applications}_expand_bn", f"{pytorch}._bn0"),
            tfod=next(tfod),
        )
    size = block.kernel_size
    yield from _part(
        *("depthwise", [(size, size, width, 1)]),
        *(f"{tf1}/depthwise_conv2d", f"{graph}/_depthwise_conv"),
        *(f"{torch}.conv_dw", f"{own}/depthwise_conv", f"{applications}_{depthwise}"),
        f"{pytorch}._depthwise_conv",
        tfod=next(tfod),
    )
    yield from _bn(
        *(width, f"{tf1}/{next(bn)}", f"{graph}/_bn1"),
        *(f"{torch}.{next(torch_bn)}", f"{own}/depthwise_bn", f"{applications}_bn"),
        f"{pytorch}._bn1",
        tfod=next(tfod),
    )
    if block.se_ratio:
        reduced = max(1, int(inputs * block.se_ratio))
        for ends, step, name in (
            ((width, reduced), "reduce", "conv2d"),
            ((reduced, width), "expand", "conv2d_1"),
        ):
            yield from _conv(
                *(1, *ends, f"{tf1}/se/{name}", f"{graph}/_se/_se_{step}"),
                *(f"{torch}.se.conv_{step}", f"{own}/se/{step}_conv"),
                *(f"{applications}_se_{step}", f"{pytorch}._se_{step}"),
                bias=True,
                tfod=next(tfod),
            )
    yield from _conv(
        *(1, width, block.filters, f"{tf1}/{next(conv)}", f"{graph}/_project_conv"),
        *(f"{torch}.{next(torch_conv)}", f"{own}/project_conv"),
        *(f"{applications}_project_conv", f"{pytorch}._project_conv"),
        tfod=next(tfod),
    )
    yield from _bn(
        *(block.filters, f"{tf1}/{next(bn)}", f"{graph}/_bn2"),
        *(f"{torch}.{next(torch_bn)}", f"{own}/project_bn"),
        *(f"{applications}_project_bn", f"{pytorch}._bn2"),
        tfod=next(tfod),
    )


def _backbone_channels(config):
    """Channels of the backbone's levels, `min_level` to 5."""
    table = block_table(config.backbone)
    taps = tapped_blocks(config.backbone, config.min_level, config.backbone_taps)
    return [table[i].filters for i in taps]


def _extra_levels(config):
    inputs = _backbone_channels(config)[-1]
    for level in range(6, config.max_level + 1):
        yield from _resample(
            *(config, inputs, f"resample_p{level}"),
            *(
                f"resample_layers/{level - 6}",
                f"fpn.resample.{level - config.min_level}",
            ),
            f"layers/{_numbered('resample', level - 6)}",
            f"{_TFOD_BIFPN}/node_input_blocks/{level - 6}/0/1",
        )
        inputs = config.fpn_num_filters


def _resample(config, inputs, tf1, graph, torch, own, tfod):
    """A convolution only where it must change the number of channels."""
    filters = config.fpn_num_filters
    if inputs == filters:
        return
    yield from _conv(
        *(1, inputs, filters, f"{tf1}/conv2d", f"{graph}/conv2d"),
        *(f"{torch}.conv.conv", f"{own}/conv"),
        bias=config.redundant_bias or not config.apply_bn_for_resampling,
        tfod=f"{tfod}/0",
    )
    if config.apply_bn_for_resampling:
        yield from _bn(
            *(filters, f"{tf1}/bn", f"{graph}/bn", f"{torch}.conv.bn", f"{own}/bn"),
            tfod=f"{tfod}/1",
        )


def _bifpn(config):
    filters, num_levels = config.fpn_num_filters, config.num_levels
    above = [filters] * (config.max_level - 5)
    channels = _backbone_channels(config) + above
    nodes = pyramid_nodes(config.fpn_name, config.min_level, config.max_level)
    for cell in range(config.fpn_cell_repeats):
        for index, node in enumerate(nodes):
            in_torch = _index_in_effdet(index, len(nodes), config)
            places = (
                f"fpn_cells/cell_{cell}/fnode{index}",
                f"fpn_cells/cells/{cell}/fnodes/{index}",
                f"fpn.cell.{cell}.fnode.{in_torch}",
                f"layers/bi_fpn/cells/{_numbered('bi_fpn_cell', cell)}"
                f"/nodes/{_numbered('bi_fpn_node', index)}",
                # The levels above the backbone's are nodes there, before the cells'.
                config.max_level - 5 + cell * len(nodes) + index,
            )
            yield from _node(config, node, num_levels + index, channels, *places)
        channels = [filters] * num_levels


def _index_in_effdet(index, count, config):
    """effdet has the last nodes of QuadFPN, one per level, the other way around."""
    first_of_last = count - config.num_levels
    if config.fpn_name != "qufpn" or index < first_of_last:
        return index
    return count - 1 - (index - first_of_last)


def _node(config, node, num_before, channels, tf1, graph, torch, own, tfod):
    filters = config.fpn_num_filters
    for edge, offset in enumerate(node.inputs):
        yield from _resample(
            config,
            channels[offset] if offset < len(channels) else filters,
            f"{tf1}/resample_{edge}_{offset}_{num_before}",
            f"{graph}/resample_layers/{edge}",
            f"{torch}.combine.resample.{offset}",
            f"{own}/edges/{_numbered('resample', edge)}",
            f"{_TFOD_BIFPN}/node_input_blocks/{tfod}/{edge}/1",
        )
    weight_method = node.weight_method or config.fpn_weight_method
    if weight_method != "sum":
        is_vector = weight_method.startswith("channel_")
        shapes = [(filters,) if is_vector else ()] * len(node.inputs)
        combine = f"{_TFOD_BIFPN}/node_combine_op/{tfod}"
        torch_combine = f"{torch}.combine"
        yield from _part("fusion", shapes, tf1, graph, torch_combine, own, tfod=combine)
    after_tfod = f"{_TFOD_BIFPN}/node_post_combine_block/{tfod}"
    after, after_torch = f"op_after_combine{num_before}", f"{torch}.after_combine.conv"
    yield from _conv3x3(
        *(config, filters, filters, f"{tf1}/{after}/conv"),
        *(f"{graph}/op_after_combine/conv_op", after_torch, f"{own}/conv/conv"),
        bias=config.redundant_bias and not config.conv_bn_act_pattern,
        tfod=f"{after_tfod}/1",
    )
    yield from _bn(
        *(filters, f"{tf1}/{after}/bn", f"{graph}/op_after_combine/bn"),
        *(f"{after_torch}.bn", f"{own}/conv/bn"),
        tfod=f"{after_tfod}/2",
    )


def _head(config, prefix, values, own_name):
    filters, net, own = config.fpn_num_filters, f"{prefix}_net", f"layers/{own_name}"
    tower, bns = _TFOD_TOWERS[prefix]
    conv_name = "separable_conv2d" if config.separable_conv else "conv2d"
    for repeat in range(config.head_repeats):
        yield from _conv3x3(
            *(config, filters, filters, f"{net}/{prefix}-{repeat}"),
            *(f"{net}/conv_ops/{repeat}", f"{net}.conv_rep.{repeat}"),
            f"{own}/convs/{_numbered(conv_name, repeat)}",
            bias=config.redundant_bias,
            tfod=f"{_TFOD_HEADS}/_head_scope_conv_layers/{tower}/{repeat}",
        )
        for index in range(config.num_levels):
            flat = repeat * config.num_levels + index
            yield from _bn(
                filters,
                f"{net}/{prefix}-{repeat}-bn-{config.min_level + index}",
                f"{net}/bns/{repeat}/{index}",
                f"{net}.bn_rep.{repeat}.{index}.bn",
                f"{own}/bns/{_numbered('batch_normalization', flat)}",
                tfod=f"{_TFOD_HEADS}/_base_tower_layers_for_heads/{bns}/{index}"
                f"/{3 * repeat + 1}",
            )
    yield from _conv3x3(
        *(config, filters, values * config.num_anchors, f"{net}/{prefix}-predict"),
        *(f"{net}/{'classes' if prefix == 'class' else 'boxes'}", f"{net}.predict"),
        f"{own}/predict_conv",
        tfod=f"{_TFOD_HEADS}/{_TFOD_PREDICT[prefix]}",
    )


def _segmentation_head(config):
    """Arrays of google/automl's schemes and ours alone; the last layer comes last."""
    filters, last = config.fpn_num_filters, config.num_levels - 1
    tf1, graph, own = "segmentation_head", "seg_head", "layers/segmentation_head"
    for index in range(last):
        conv = _numbered("conv2d_transpose", index)
        inputs = filters if index == 0 else 2 * filters  # beside those of the level
        yield from _transposed_conv(
            *(inputs, filters, f"{tf1}/{conv}"),
            *(f"{graph}/con2d_ts/{index}", f"{own}/convs/{conv}"),
        )
        norm = _numbered("batch_normalization", index)
        yield from _without_torch(
            _bn(
                *(filters, f"{tf1}/bn_{index}", f"{graph}/con2d_t_bns/{index}", ""),
                f"{own}/bns/{norm}",
                tfod=None,
            )
        )
    yield from _transposed_conv(
        *(2 * filters, config.seg_num_classes),
        f"{tf1}/{_numbered('conv2d_transpose', last)}",
        *(f"{graph}/head_transpose", f"{own}/predict_conv"),
        bias=True,
    )


def _transposed_conv(inputs, filters, tf1, graph, own, bias=False):
    """Its kernel has the outputs before the inputs."""
    shapes = [(3, 3, filters, inputs), (filters,)]
    shapes = shapes if bias else shapes[:1]
    arrays = _part("conv", shapes, tf1, graph, "", own, tfod=None)
    yield from _without_torch(arrays)


def _without_torch(arrays):
    for array in arrays:
        names = {k: v for k, v in array.names.items() if k != TORCH}
        yield dataclasses.replace(array, names=names, torch_axes=None)


def _numbered(name, index):
    """Keras' way of naming the parts of a list in its files."""
    return f"{name}_{index}" if index else name


# --- The names that google/automl's checkpoints give to our weights.

# Layers carry the published names. What is left: (ours, theirs).
_ENDS = (("depthwise_conv2d/kernel", "depthwise_conv2d/depthwise_kernel"),)
_INNER_SCOPE = "/fusion/"  # the reference keeps fusion weights in the node itself


def tf1_name(variable):
    """The TF1-style name of the array that a checkpoint holds for one weight."""
    path = variable.path.replace(_INNER_SCOPE, "/")
    for ours, theirs in _ENDS:
        if path.endswith(ours):
            return path.removesuffix(ours) + theirs
    return path


def path_of_tf1_name(name):
    """The path of the weight of this TF1-style name: the inverse of `tf1_name`."""
    for ours, theirs in _ENDS:
        if name.endswith(theirs):
            return name.removesuffix(theirs) + ours
    return name.replace("/WSM", f"{_INNER_SCOPE}WSM")
