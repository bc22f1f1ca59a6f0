"""Class and box heads, whose levels share convolutions but not batch norms."""

from __future__ import annotations

import keras
from keras import ops

from effdet_keras.network.computing import activate, convolve, quantized
from effdet_keras.network.initial_values import with_quick_initial_values
from effdet_keras.network.layers import (
    BatchNormOptions,
    ConfiguredLayer,
    DropPath,
    get_activation,
)


@keras.saving.register_keras_serializable(package="effdet_keras")
class PredictionHead(ConfiguredLayer):
    """Predicts numbers for every anchor from the features of a pyramid.

    A head has `repeats` blocks of convolution, batch norm and activation, and one more
    convolution at the end (https://arxiv.org/abs/1911.09070, figure 3). All levels
    share the convolutions. Each level has its own batch norms. Sub-layers have the
    names of the published checkpoints: `{prefix}-0-bn-3`, `{prefix}-predict`.

    Args:
        outputs_per_anchor: int, the number of classes, or 4 for a box.
        num_anchors: int, the number of anchors at each location.
        filters: int, the number of channels of the blocks.
        repeats: int, the number of blocks. With 0, all inputs must have the same number
            of channels.
        min_level: int, the level of the first input, for the names of batch norms.
        prefix: string, the beginning of the names of sub-layers.
        separable_conv: bool, whether convolutions are separable.
        redundant_bias: bool, whether convolutions have a bias before a batch norm.
        activation: one of `effdet_keras.network.config.ACTIVATIONS`.
        survival_prob: float above 0 and at most 1, or None. If it is given, the blocks
            after the first are residual branches with stochastic depth.
        prior_bias: float, the initial value of the last bias. With `-log(99)` a sigmoid
            starts at 0.01 (https://arxiv.org/abs/1708.02002, section 3.3).
        batch_norm: `BatchNormOptions` (`effdet_keras.network.layers`), or a dict of its
            fields. None is the defaults.

    Call arguments:
        inputs: list of tensors `[B, H_l, W_l, C]`, one per level, finest first.

    Returns:
        Float32 tensor `[B, N, outputs_per_anchor]`. The `N` anchors are ordered by
        level, row, column and anchor at a location.
    """

    def __init__(
        self,
        outputs_per_anchor,
        num_anchors=9,
        filters=64,
        repeats=3,
        min_level=3,
        prefix="class",
        separable_conv=True,
        redundant_bias=True,
        activation="swish",
        survival_prob=None,
        prior_bias=0.0,
        batch_norm=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.outputs_per_anchor = outputs_per_anchor
        self.num_anchors = num_anchors
        self.filters = filters
        self.repeats = repeats
        self.min_level = min_level
        self.prefix = prefix
        self.separable_conv = separable_conv
        self.redundant_bias = redundant_bias
        self.activation = activation
        self.survival_prob = survival_prob
        self.prior_bias = prior_bias
        self.batch_norm = BatchNormOptions.from_value(batch_norm)
        self._act = get_activation(activation)
        self.convs = [
            self._conv(filters, f"{prefix}-{i}", use_bias=redundant_bias)
            for i in range(repeats)
        ]
        self.predict_conv = self._conv(
            outputs_per_anchor * num_anchors,
            f"{prefix}-predict",
            bias_initializer=keras.initializers.Constant(prior_bias),
        )
        self.drop_path = None
        if survival_prob is not None:
            self.drop_path = DropPath(survival_prob, dtype=self.dtype_policy)

    @classmethod
    def from_config(cls, config):
        # Its former name was `values`.
        new_names = {"values": "outputs_per_anchor"}
        return super().from_config({new_names.get(n, n): x for n, x in config.items()})

    def _conv(self, filters, name, use_bias=True, bias_initializer="zeros"):
        """Returns a 3 x 3 convolution, separable if `separable_conv` is set."""
        options = {
            "padding": "same",
            "use_bias": use_bias,
            "bias_initializer": bias_initializer,
            "name": name,
            "dtype": self.dtype_policy,
        }
        if self.separable_conv:
            conv = keras.layers.SeparableConv2D(
                filters,
                3,
                depthwise_initializer=keras.initializers.VarianceScaling(),
                pointwise_initializer=keras.initializers.VarianceScaling(),
                **options,
            )
        else:
            normal = keras.initializers.RandomNormal(stddev=0.01)
            conv = keras.layers.Conv2D(filters, 3, kernel_initializer=normal, **options)
        return with_quick_initial_values(conv)

    def build(self, input_shape):
        shape = tuple(input_shape[0])
        # A flat list, by repeat and then level: Keras 3.13 cannot save nested lists.
        self.bns = [
            self.batch_norm.layer(
                f"{self.prefix}-{repeat}-bn-{level}", self.dtype_policy
            )
            for repeat in range(self.repeats)
            for level in range(self.min_level, self.min_level + len(input_shape))
        ]
        self._num_levels = len(input_shape)
        for repeat, conv in enumerate(self.convs):
            conv.build(shape)
            shape = (*shape[:-1], self.filters)
            for level_index in range(self._num_levels):
                self._bn(repeat, level_index).build(shape)
        self.predict_conv.build(shape)

    def call(self, inputs, training=False):
        levels = [self._predict(x) for x in self.features(inputs, training=training)]
        # All levels share a quantization range: in an int8 file they are one array.
        x = quantized(self, "predictions", ops.concatenate(levels, axis=1))
        return ops.cast(x, "float32")

    def features(self, inputs, training=False):
        """Returns the last convolution's inputs: list of `[B, H_l, W_l, filters]`."""
        return [
            self._level(x, index, training=training) for index, x in enumerate(inputs)
        ]

    def _level(self, x, level_index, training):
        for repeat, conv in enumerate(self.convs):
            bn = self._bn(repeat, level_index)
            branch = activate(self, self._act, convolve(conv, x, bn, training))
            if self.drop_path is not None and repeat > 0:
                branch = self.drop_path(branch, training=training) + x
                branch = quantized(self, "sum", branch)
            x = branch
        return x

    def _predict(self, x):
        x = convolve(self.predict_conv, x)  # [B, H, W, A * outputs_per_anchor]
        count = x.shape[1] * x.shape[2] * self.num_anchors
        return ops.reshape(x, (-1, count, self.outputs_per_anchor))

    def _bn(self, repeat, level_index):
        return self.bns[repeat * self._num_levels + level_index]

    def compute_output_shape(self, input_shape):
        count = sum(h * w for _, h, w, _ in input_shape) * self.num_anchors
        return (input_shape[0][0], count, self.outputs_per_anchor)
