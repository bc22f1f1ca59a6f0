"""Quantization-aware training: what the network learns to live with in an int8 file."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.backend import require_tensorflow
from effdet_keras._internal.number_ranges import check_whole_number
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.errors import InvalidStateError, InvalidValueError, require
from effdet_keras.network.computing import computing_with
from effdet_keras.network.layers import swish

RANGES = "quantization:ranges"  # in files
STEPS = "quantization:steps"
ARGUMENTS = ("delay", "batch_norm_steps", "range_steps")  # of `Quantization`
_MOMENTUM = 0.99  # of a range
_UNIT = (0.0, 255 / 256)  # the range that LiteRT gives every sigmoid
ACTIVATIONS = ("swish", "silu", "swish_native", "hswish", "hard_swish", "relu", "relu6")


class Quantization:
    """The ranges of a network's numbers, and when the network rounds to them.

    In training each place that `network/computing.py` marks follows the lowest
    and the highest number that it sees, and rounds to 256 steps between them; kernels
    are rounded to 255 steps, with a scale for each output channel
    (https://arxiv.org/abs/1712.05877, section 3; the gradient passes as if nothing had
    been rounded). Outside of training the ranges stay as they are. The arguments are
    those of `EfficientDet.quantize_aware`.
    """

    _is_exporting = False

    def __init__(
        self,
        model: Any,
        delay: int = 0,
        batch_norm_steps: int = 0,
        range_steps: int | None = None,
    ) -> None:
        check_whole_number("delay", delay, "[0, inf)")
        check_whole_number("batch_norm_steps", batch_norm_steps, "[0, inf)")
        check_whole_number("range_steps", range_steps, "[1, inf)", others=(None,))
        self.delay, self.batch_norm_steps = delay, batch_norm_steps
        self.range_steps = range_steps
        require(
            range_steps is None or range_steps > delay,
            "`range_steps` must be above `delay`: the ranges must have been seen "
            "before numbers are rounded to them",
            range_steps=range_steps,
            delay=delay,
        )
        _check_possible(model)
        self.places = _places(model)
        shape = (len(self.places), 2)
        self._ranges = _variable("ranges", shape, "float32")
        self._steps = _variable("steps", (), "int32")
        self.variables = [self._ranges, self._steps]

    @property
    def is_rounding(self) -> bool:
        """Whether the network rounds outside of training: once it has learned to."""
        return int(self._steps) > self.delay

    def ranges(self) -> dict[str, tuple[float, float]]:
        """The lowest and highest number of every place; `name:2` of the next level."""
        found, times = {}, collections.Counter()
        for name, (low, high) in zip(
            self.places, ops.convert_to_numpy(self._ranges).tolist()
        ):
            times[name] += 1
            found[f"{name}:{times[name]}" if times[name] > 1 else name] = (low, high)
        return found

    def call(self, run: Callable[[], Any], training: bool) -> Any:
        """What `run()`, a call of the network, gives as the network is now."""
        if self._is_exporting:
            return self._rounded(run)
        if not training:
            # A condition in the graph: who compiled it before a training sees the
            # training's ranges in it.
            is_rounding = self._steps > self.delay
            return ops.cond(is_rounding, lambda: self._rounded(run), run)
        return self._trained(run)

    def _rounded(self, run):
        with computing_with(quantizer=_FakeQuant(self.places, self._ranges)):
            return run()

    def _trained(self, run):
        """Runs the network in training: updates ranges, rounds after `delay` steps."""
        # Nothing is assigned under a condition: a training step keeps what a forward
        # pass assigns until the batch is known to be finite.
        steps = ops.convert_to_tensor(self._steps)
        count = ops.cast(steps, "float32")
        momentum = ops.minimum(_MOMENTUM, count / (9.0 + count))
        if self.range_steps is not None:
            momentum = ops.where(steps < self.range_steps, momentum, 1.0)
        quantizer = _FakeQuantTraining(
            self.places,
            self._ranges,
            momentum,
            None if self.delay == 0 else steps >= self.delay,
            self._normalizes_by_batch,
        )
        with computing_with(quantizer=quantizer):
            outputs = run()
        self._ranges.assign(ops.stack(quantizer.moved))
        self._steps.assign(steps + 1)
        return outputs

    def _normalizes_by_batch(self, batch_norm, layer):
        """By the batch in the first `batch_norm_steps`, then as the file does."""
        if self.batch_norm_steps == 0:
            return batch_norm(False)
        is_first = ops.convert_to_tensor(self._steps) < self.batch_norm_steps
        by_moving_statistics = batch_norm(False)
        statistics = (layer.moving_mean, layer.moving_variance)
        before = [ops.copy(v) for v in statistics]
        by_batch = batch_norm(True)
        for variable, value in zip(statistics, before):
            variable.assign(ops.where(is_first, ops.copy(variable), value))
        return ops.where(is_first, by_batch, by_moving_statistics)

    @contextlib.contextmanager
    def exporting(self) -> Iterator[None]:
        """Within this context the network rounds, whatever it has learned so far."""
        if not self.is_rounding:
            raise InvalidStateError(
                f"The model has been trained for {int(self._steps)} steps since "
                f"`quantize_aware(delay={self.delay})`, and none of them has rounded: "
                "its ranges are not learned. Call `fit` first, or give `calibration` "
                "to the export of a model that is not quantization-aware."
            )
        self._is_exporting = True
        try:
            yield
        finally:
            self._is_exporting = False

    def reset(self) -> None:
        """Forgets the ranges, as after loading weights."""
        for variable in self.variables:
            variable.assign(ops.zeros_like(variable))

    def get_config(self) -> dict[str, Any]:
        """The arguments but for the model."""
        return {name: getattr(self, name) for name in ARGUMENTS}

    def save(self, store: Any) -> None:
        """Writes ranges and number of steps."""
        store[RANGES] = ops.convert_to_numpy(self._ranges)
        store[STEPS] = ops.convert_to_numpy(self._steps)

    def load(self, store: Mapping[str, Any]) -> bool:
        """Reads what `save` wrote; returns whether there was something."""
        names = set(store.keys())  # the store of a `.weights.h5` is no dict
        if RANGES not in names:
            return False
        ranges = np.asarray(store[RANGES])
        self._ranges.assign(ranges)
        self._steps.assign(np.asarray(store[STEPS]))
        return True


# --- How a network computes that rounds at the places of `network/computing.py`.


class Quantizer:
    """What `computing_with(quantizer=...)` lets a network round with.

    This one changes nothing: `point`, `kernel`, `bias` and `normalized` are to be
    overridden.
    """

    def point(
        self, name: str, x: Any, limits: tuple[float, float] | None = None
    ) -> Any:
        """The tensor `x`, rounded; `name` is the layer's path and the place in it."""
        return x

    def kernel(self, kernel: Any, axis: int) -> Any:
        """The kernel, rounded with a scale for each index of its `axis`."""
        return kernel

    def bias(self, bias: Any) -> Any:
        """The bias of a convolution, which int8 keeps in 32 bits."""
        return bias

    def normalized(
        self, batch_norm: Callable[[bool], Any], training: bool, layer: Any
    ) -> Any:
        """What `batch_norm(training)` of a layer returns, `training` as it is now."""
        return batch_norm(False)

    def quantized(self, layer, place, x, limits=None):
        return self.point(f"{layer.path or layer.name}/{place}", x, limits)

    def activate(self, layer, activation, x):
        """LiteRT joins a ReLU to the convolution before it, no other activation."""
        if activation not in (keras.activations.relu, keras.activations.relu6):
            x = self.quantized(layer, "before_activation", x)
        is_swish = activation is swish
        x = x * self.gate(layer, x) if is_swish else activation(x)
        return self.quantized(layer, "activation", x)

    def gate(self, layer, x):
        """`sigmoid(x)`, in the range that it has in LiteRT."""
        return self.quantized(layer, "sigmoid", ops.sigmoid(x), _UNIT)

    def convolve(self, conv, x):
        """`conv(x)` with rounded kernels.

        A scale for each output channel stands before the batch norm as well as after
        it: what the norm multiplies a channel by changes its scale, not its integers.
        """
        layers = keras.layers
        strided = {"strides": tuple(conv.strides), "padding": conv.padding}
        if isinstance(conv, layers.SeparableConv2D):
            x = ops.depthwise_conv(x, self.kernel(conv.depthwise_kernel, 2), **strided)
            x = self.quantized(conv, "depthwise", x)
            x = ops.conv(x, self.kernel(conv.pointwise_kernel, 3))
        elif isinstance(conv, layers.DepthwiseConv2D):
            x = ops.depthwise_conv(x, self.kernel(conv.kernel, 2), **strided)
        elif isinstance(conv, layers.Conv2DTranspose):
            x = ops.conv_transpose(x, self.kernel(conv.kernel, 2), **strided)
        else:
            x = ops.conv(x, self.kernel(conv.kernel, 3), **strided)
        return x + self.bias(conv.bias) if conv.use_bias else x

    def convolve_transposed(self, conv, batch_norm, x, size):
        """As of `extras/segmentation_head.py`, outside of training."""
        height, width = size
        variance = batch_norm.moving_variance + batch_norm.epsilon
        scale = batch_norm.gamma * ops.rsqrt(variance)
        kernel = self.kernel(conv.kernel * scale[:, None], 2)
        strided = {"strides": tuple(conv.strides), "padding": conv.padding}
        x = ops.conv_transpose(x, kernel, **strided)
        shift = batch_norm.beta - batch_norm.moving_mean * scale
        # Nothing can join a transposed convolution that is cut afterwards.
        return self.quantized(conv, "normalized", x + shift)[:, :height, :width]


def rounded_kernel(kernel: Any, axis: int) -> Any:
    """A kernel in 255 symmetric steps, with a scale for each index of an axis."""
    kernel = ops.convert_to_tensor(kernel)
    others = [i for i in range(len(kernel.shape)) if i != axis]
    scale = ops.max(ops.abs(kernel), axis=others, keepdims=True) / 127.0
    scale = ops.where(scale > 0, scale, 1.0)
    return ops.round(kernel / scale) * scale


class _FakeQuant(Quantizer):
    """Quantizer with ranges that stay."""

    def __init__(self, places, ranges):
        self._places = iter(enumerate(places))
        self._ranges = ranges

    def point(self, name, x, limits=None):
        if limits is None:
            limits = self._range(name, x)
        return tf.quantization.fake_quant_with_min_max_vars(x, limits[0], limits[1])

    def _range(self, name, x):
        index, expected = next(self._places)
        assert name == expected, f"the network has changed: {name}, not {expected}"
        return self._ranges[index]

    def kernel(self, kernel, axis):
        return rounded_kernel(kernel, axis)

    def bias(self, bias):
        # TensorFlow's converter (2.21) gives all channels the first one's integer if
        # all numbers are the same, as in a new class head, though each has a scale.
        is_first = np.arange(bias.shape[0]) == 0
        return bias * np.where(is_first, np.float32(1 + 2**-20), np.float32(1))


class _FakeQuantTraining(_FakeQuant):
    """Quantizer whose ranges follow what it sees. `moved` has them, in order.

    `rounds` is a bool tensor, whether numbers are rounded; None where they always are.
    """

    def __init__(self, places, ranges, momentum, rounds, normalized):
        super().__init__(places, ranges)
        self._momentum = momentum
        self._rounds = rounds
        self._normalized = normalized
        self.moved = []

    def point(self, name, x, limits=None):
        rounded = super().point(name, x, limits)  # moves the range in any case
        return self._if_rounding(rounded, x)

    def _if_rounding(self, rounded, x):
        return rounded if self._rounds is None else ops.where(self._rounds, rounded, x)

    def _range(self, name, x):
        before = super()._range(name, x)
        x = ops.stop_gradient(x)
        # Zero is always among the 256 numbers: windows are padded with it.
        seen = ops.stack([ops.minimum(ops.min(x), 0), ops.maximum(ops.max(x), 1e-5)])
        self.moved.append(seen + (before - seen) * self._momentum)
        return self.moved[-1]

    def bias(self, bias):
        return bias

    def kernel(self, kernel, axis):
        rounded = kernel + ops.stop_gradient(rounded_kernel(kernel, axis) - kernel)
        return self._if_rounding(rounded, kernel)

    def normalized(self, batch_norm, training, layer):
        return self._normalized(batch_norm, layer)


def _places(model):
    """The names of the places whose range must be learned, in the order of a call."""
    names = []

    class RangeObserver(Quantizer):
        def point(self, name, x, limits=None):
            if limits is None:
                names.append(name)
            return x

    shape = (1, *model.config.image_size, 3)

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32)])
    def network(images):
        with computing_with(quantizer=RangeObserver()):
            return model(images, training=False)

    network.get_concrete_function()
    return tuple(names)


def _variable(name, shape, dtype):
    return keras.Variable(
        np.zeros(shape, dtype),
        dtype=dtype,
        trainable=False,
        autocast=False,
        aggregation="mean" if dtype == "float32" else "only_first_replica",
        name=f"quantization_{name}",
    )


def _check_possible(model):
    """Raises unless backend and model are suited to quantization-aware training."""
    require_tensorflow(
        "`quantize_aware` trains with TensorFlow, whose converter writes int8 files",
        "Save the model, and train it in a process with KERAS_BACKEND=tensorflow.",
    )
    if model.features is not None:
        raise InvalidValueError(
            "`quantize_aware` rounds within the network's own layers, and those of a "
            "TF-Hub module are closed. Take a model of `from_preset`."
        )
    require(
        all(layer.compute_dtype == "float32" for layer in model.layers),
        "`quantize_aware` needs float32, whose digits tell 256 steps apart: load the "
        'model with dtype="float32"',
        dtype=model.dtype_policy.name,
    )
    rule = f"`quantize_aware` knows LiteRT's int8 of {', '.join(ACTIVATIONS)} alone"
    for field in ("activation", "backbone_activation"):
        activation = getattr(model.config, field)
        require(activation in (None, *ACTIVATIONS), rule, **{field: activation})
