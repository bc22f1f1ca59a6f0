"""BiFPN: weighted fusion (section 3.3 of the paper), its cells, and QuadFPN."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import keras
from keras import ops

from effdet_keras.errors import require
from effdet_keras.network.computing import activate, convolve, quantized
from effdet_keras.network.initial_values import quick, with_quick_initial_values
from effdet_keras.network.layers import (
    BatchNormOptions,
    ConfiguredLayer,
    PyramidOptions,
    call_block,
    get_activation,
)
from effdet_keras.network.resample import Resample


@keras.saving.register_keras_serializable(package="effdet_keras")
class WeightedFusion(ConfiguredLayer):
    """Fuses feature maps of one shape into one, with learned weights.

    Each input has a weight `w_i` (https://arxiv.org/abs/1911.09070, section 3.3). The
    "channel" methods have a weight for each input and channel.

        fastattn   sum_i(relu(w_i) * input_i) / (sum_i(relu(w_i)) + epsilon)
        attn       sum_i(softmax(w)_i * input_i)
        sum        sum_i(input_i), no weights

    The weights start at one, so a new layer is close to a plain average (for "sum", a
    plain sum).

    Args:
        method: one of `effdet_keras.network.config.FUSION_METHODS`.
        epsilon: float above zero, added to the sum of weights.

    Call arguments:
        inputs: list of two or more tensors `[B, H, W, C]` of the same shape.

    Returns:
        Tensor `[B, H, W, C]`.

    Raises:
        ValueError: If there are fewer than two inputs, or their shapes differ.

    Example:
        >>> fuse = WeightedFusion()
        >>> fused = fuse([ops.ones((1, 2, 2, 8)), ops.zeros((1, 2, 2, 8))])
        >>> tuple(fused.shape), round(float(fused[0, 0, 0, 0]), 3)
        ((1, 2, 2, 8), 0.5)
    """

    def __init__(
        self, method: str = "fastattn", epsilon: float = 1e-4, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.method = method
        self.epsilon = epsilon

    def build(self, input_shape):
        is_right = len(input_shape) >= 2 and len({tuple(s) for s in input_shape}) == 1
        rule = "`WeightedFusion` expects two or more inputs of one shape"
        require(is_right, rule, input_shape=input_shape)
        if self.method != "sum":
            channels = (input_shape[0][-1],) if "channel" in self.method else ()
            # One variable per input, because gradients are clipped one by one.
            self.fusion_weights = [
                self.add_weight(
                    shape=channels,
                    initializer=quick("ones"),
                    name=f"WSM_{i}" if i else "WSM",  # as in published checkpoints
                )
                for i in range(len(input_shape))
            ]

    def call(self, inputs):
        if self.method == "sum":
            return self._sum(inputs)
        weights = ops.stack([weight.value for weight in self.fusion_weights])
        if self.method.endswith("fastattn"):
            weights = ops.relu(weights)
            # In float16, epsilon is lost in a sum near one. It is needed if all weights
            # are zero, and then it is not lost.
            weights = weights / (ops.sum(weights, axis=0) + self.epsilon)
        else:
            weights = ops.softmax(weights, axis=0)
        pairs = zip(inputs, ops.unstack(weights, len(inputs)))
        return self._sum([quantized(self, "term", x * weight) for x, weight in pairs])

    def _sum(self, terms):
        return functools.reduce(lambda x, y: quantized(self, "sum", x + y), terms)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape[0])


# --- BiFPN: the repeated, weighted, bidirectional pyramid of the paper's figure 3.


class Node(NamedTuple):
    """A node of a cell: its level, and the indices of its inputs.

    Indices count first the inputs of the cell, and then its nodes, in order. A
    `weight_method` of None is that of the cell.
    """

    level: int
    inputs: tuple
    weight_method: str | None = None


def pyramid_nodes(graph, min_level, max_level):
    """Returns the `Node`s of one cell, in order. `graph` is one of `PYRAMIDS`.

    The inputs of a node are all previous features of its own level, the oldest first,
    and then the latest features of the adjacent level that was visited before it. A
    BiFPN goes first top-down, then bottom-up (https://arxiv.org/abs/1911.09070,
    figure 2 d). QuadFPN consists of a BiFPN, a second BiFPN that begins at the finest
    level, and a node for each level that fuses the last features of both. These nodes
    always use "fastattn" (https://ieeexplore.ieee.org/document/9225379; "qufpn" of
    google/automl).
    """
    nodes = []
    levels = range(min_level, max_level + 1)
    first = _add_there_and_back(levels[::-1], min_level, nodes)
    if graph == "qufpn":
        second = _add_there_and_back(levels, min_level, nodes)
        for level in levels[::-1]:
            nodes.append(Node(level, (first[level][-1], second[level][-1]), "fastattn"))
    return nodes


def _add_there_and_back(levels, min_level, nodes):
    """Adds nodes from the first of `levels` to the last, and back to the first.

    Returns a dict from each level to the indices of all of its features.
    """
    members = {level: [level - min_level] for level in levels}
    for way in (levels, levels[::-1]):
        for before, level in itertools.pairwise(way):
            inputs = (*members[level], members[before][-1])
            members[level].append(len(members) + len(nodes))
            nodes.append(Node(level, inputs))
    return members


@keras.saving.register_keras_serializable(package="effdet_keras")
class BiFPN(ConfiguredLayer):
    """Bidirectional feature pyramid network: a sequence of `BiFPNCell`s.

    https://arxiv.org/abs/1911.09070, section 3. Sub-layers have the names of the
    published checkpoints.

    Args:
        filters: int, the number of channels of every level.
        repeats: int, the number of cells.
        min_level, max_level: ints, the finest and the coarsest level.
        options: `PyramidOptions` (`effdet_keras.network.layers`), or a dict of its
            fields. None is the defaults.

    Call arguments:
        inputs: list of tensors `[B, H_l, W_l, C_l]`, one per level, finest first.

    Returns:
        List of tensors `[B, H_l, W_l, filters]`, one per level.

    Example:
        >>> fpn = BiFPN(8, repeats=1, min_level=3, max_level=5)
        >>> features = [ops.ones((1, n, n, 4)) for n in (7, 4, 2)]
        >>> [tuple(f.shape) for f in fpn(features)]
        [(1, 7, 7, 8), (1, 4, 4, 8), (1, 2, 2, 8)]
    """

    def __init__(
        self,
        filters: int,
        repeats: int = 3,
        min_level: int = 3,
        max_level: int = 7,
        options: PyramidOptions | dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.filters = filters
        self.repeats = repeats
        self.min_level = min_level
        self.max_level = max_level
        self.options = PyramidOptions.from_value(options)
        self.cells = [
            BiFPNCell(
                filters,
                min_level,
                max_level,
                self.options,
                name=f"cell_{index}",
                dtype=self.dtype_policy,
            )
            for index in range(repeats)
        ]

    def build(self, input_shape):
        for cell in self.cells:
            cell.build(input_shape)
            input_shape = cell.compute_output_shape(input_shape)

    def call(self, inputs, training=False):
        for cell in self.cells:
            inputs = call_block(cell, inputs, training)
        return inputs

    def compute_output_shape(self, input_shape):
        return [(*shape[:-1], self.filters) for shape in input_shape]


@keras.saving.register_keras_serializable(package="effdet_keras")
class BiFPNCell(ConfiguredLayer):
    """One cell of `BiFPN`, with the same arguments (without `repeats`) and tensors."""

    def __init__(self, filters, min_level=3, max_level=7, options=None, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.min_level = min_level
        self.max_level = max_level
        self.options = PyramidOptions.from_value(options)
        self._graph = pyramid_nodes(self.options.graph, min_level, max_level)

    def build(self, input_shape):
        shapes = [tuple(shape) for shape in input_shape]
        self.nodes = []
        for index, node in enumerate(self._graph):
            target = shapes[node.level - self.min_level]
            method = node.weight_method or self.options.weight_method
            layer = BiFPNNode(
                self.filters,
                target[1:3],
                [f"resample_{e}_{i}_{len(shapes)}" for e, i in enumerate(node.inputs)],
                f"op_after_combine{len(shapes)}",
                dataclasses.replace(self.options, weight_method=method),
                name=f"fnode{index}",
                dtype=self.dtype_policy,
            )
            layer.build([shapes[i] for i in node.inputs])
            self.nodes.append(layer)
            shapes.append((*target[:-1], self.filters))

    def call(self, inputs, training=False):
        features = list(inputs)
        latest = dict(enumerate(inputs, start=self.min_level))
        for node, layer in zip(self._graph, self.nodes):
            x = layer([features[i] for i in node.inputs], training=training)
            features.append(x)
            latest[node.level] = x
        return list(latest.values())

    def compute_output_shape(self, input_shape):
        return [(*shape[:-1], self.filters) for shape in input_shape]


@keras.saving.register_keras_serializable(package="effdet_keras")
class BiFPNNode(ConfiguredLayer):
    """One node of a cell: resamples its inputs, fuses them, and convolves the result.

    The inputs are a list of tensors `[B, H_i, W_i, C_i]`. The result is
    `[B, target height, target width, filters]`.

    Args:
        filters: int, the number of channels of the result.
        target_size: `(height, width)` of the result.
        edge_names: strings, the names of the `Resample` layers of the inputs.
        conv_name: string, the name of the convolution.
        options: `PyramidOptions`, or a dict of its fields. None is the defaults.
    """

    def __init__(
        self, filters, target_size, edge_names, conv_name, options=None, **kwargs
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.target_size = tuple(target_size)
        self.edge_names = list(edge_names)
        self.conv_name = conv_name
        self.options = options = PyramidOptions.from_value(options)
        self._act = get_activation(options.activation)
        policy = self.dtype_policy
        self.edges = [
            Resample(filters, self.target_size, options, name=name, dtype=policy)
            for name in self.edge_names
        ]
        self.fusion = WeightedFusion(options.weight_method, name="fusion", dtype=policy)
        self.conv = ConvBN(
            filters,
            separable_conv=options.separable_conv,
            use_bias=options.redundant_bias and not options.conv_bn_act_pattern,
            batch_norm=options.batch_norm,
            name=conv_name,
            dtype=policy,
        )

    def build(self, input_shape):
        for edge, shape in zip(self.edges, input_shape):
            edge.build(shape)
        fused = self.compute_output_shape(input_shape)
        self.fusion.build([fused] * len(self.edges))
        self.conv.build(fused)

    def call(self, inputs, training=False):
        edges = zip(self.edges, inputs)
        x = self.fusion([edge(x, training=training) for edge, x in edges])
        if self.options.conv_bn_act_pattern:
            return activate(self, self._act, self.conv(x, training=training))
        x = self.conv(activate(self, self._act, x), training=training)
        return quantized(self, "convolved", x)

    def compute_output_shape(self, input_shape):
        return (input_shape[0][0], *self.target_size, self.filters)


@keras.saving.register_keras_serializable(package="effdet_keras")
class ConvBN(ConfiguredLayer):
    """A 3x3 convolution and its batch norm."""

    def __init__(
        self, filters, separable_conv=True, use_bias=True, batch_norm=None, **kwargs
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.separable_conv = separable_conv
        self.use_bias = use_bias
        self.batch_norm = BatchNormOptions.from_value(batch_norm)
        conv = keras.layers.SeparableConv2D if separable_conv else keras.layers.Conv2D
        self.conv = conv(
            filters,
            3,
            padding="same",
            use_bias=use_bias,
            name="conv",
            dtype=self.dtype_policy,
        )
        with_quick_initial_values(self.conv)
        self.bn = self.batch_norm.layer("bn", self.dtype_policy)

    def build(self, input_shape):
        self.conv.build(input_shape)
        self.bn.build(self.compute_output_shape(input_shape))

    def call(self, inputs, training=False):
        return convolve(self.conv, inputs, self.bn, training)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.filters)
