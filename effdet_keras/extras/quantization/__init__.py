"""Quantization-aware training: the network adapts to the rounding of an int8 file."""

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

RANGES = "quantization:ranges"  # key in files
STEPS = "quantization:steps"
ARGUMENTS = ("delay", "batch_norm_steps", "range_steps")  # of `Quantization`
_MOMENTUM = 0.99  # momentum of the moving range
_UNIT = (0.0, 255 / 256)  # the range of every sigmoid in LiteRT
ACTIVATIONS = ("swish", "silu", "swish_native", "hswish", "hard_swish", "relu", "relu6")


class Quantization:
    """The ranges of a network's activations, and the rounding to these ranges.

    `network/computing.py` marks the places in the network that are rounded. In
    training, each place tracks a moving average of its lowest and highest value, and
    rounds to 256 steps between them. Kernels are rounded to 255 steps, with a scale per
    output channel (https://arxiv.org/abs/1712.05877, section 3). The gradient ignores
    the rounding (straight-through estimator). Outside of training the ranges are
    constant.

    Args:
        model: `EfficientDet`.
        delay, batch_norm_steps, range_steps: the arguments of
            `EfficientDet.quantize_aware`.

    Raises:
        ValueError: If an argument is out of its range, or the model is not suitable.
        RuntimeError: If the Keras backend is not TensorFlow.
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
            "`range_steps` must be above `delay`: ranges must be observed before "
            "numbers are rounded to them",
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
        """Whether the network rounds outside of training: after `delay` + 1 steps."""
        return int(self._steps) > self.delay

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Returns the lowest and highest value of every place, by name.

        A place that is used several times, as in the levels of a head, is `name`,
        `name:2` and so on.
        """
        found, times = {}, collections.Counter()
        for name, (low, high) in zip(
            self.places, ops.convert_to_numpy(self._ranges).tolist()
        ):
            times[name] += 1
            found[f"{name}:{times[name]}" if times[name] > 1 else name] = (low, high)
        return found

    def call(self, run: Callable[[], Any], training: bool) -> Any:
        """Returns `run()`, a call of the network, with rounding if it is active."""
        if self._is_exporting:
            return self._rounded(run)
        if not training:
            # The condition is part of the graph, so that a graph that was compiled
            # before a training also rounds after it.
            is_rounding = self._steps > self.delay
            return ops.cond(is_rounding, lambda: self._rounded(run), run)
        return self._trained(run)

    def _rounded(self, run):
        with computing_with(quantizer=_FakeQuant(self.places, self._ranges)):
            return run()

    def _trained(self, run):
        """Runs the network in training: updates ranges, rounds after `delay` steps."""
        # Variables are assigned without a condition, because a training step holds
        # back the assignments of a forward pass until the batch is known to be finite.
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
        """Normalizes by the batch in the first `batch_norm_steps`, then as in a file.

        A file normalizes by the moving statistics.
        """
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
        """Returns a context in which the network rounds.

        Raises:
            RuntimeError: If no training step has rounded yet.
        """
        if not self.is_rounding:
            raise InvalidStateError(
                "The model cannot be exported to int8 yet: it was trained for "
                f"{int(self._steps)} steps since `quantize_aware(delay={self.delay})`, "
                "and none of them rounded, so the ranges are not learned. Call `fit` "
                "first, or export a model that is not quantization-aware with "
                "`calibration`."
            )
        self._is_exporting = True
        try:
            yield
        finally:
            self._is_exporting = False

    def reset(self) -> None:
        """Resets ranges and steps, for example after loading weights."""
        for variable in self.variables:
            variable.assign(ops.zeros_like(variable))

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments, without the model."""
        return {name: getattr(self, name) for name in ARGUMENTS}

    def save(self, store: Any) -> None:
        """Stores ranges and number of steps."""
        store[RANGES] = ops.convert_to_numpy(self._ranges)
        store[STEPS] = ops.convert_to_numpy(self._steps)

    def load(self, store: Mapping[str, Any]) -> bool:
        """Loads the values of `save`; returns whether the store has them."""
        names = set(store.keys())  # the store of a `.weights.h5` is not a dict
        if RANGES not in names:
            return False
        ranges = np.asarray(store[RANGES])
        self._ranges.assign(ranges)
        self._steps.assign(np.asarray(store[STEPS]))
        return True


# --- The computation of a network that rounds at the places of `network/computing.py`.


class Quantizer:
    """Base class for `computing_with(quantizer=...)`, which makes a network round.

    This class changes nothing. Subclasses override `point`, `kernel`, `bias` and
    `normalized`.
    """

    def point(
        self, name: str, x: Any, limits: tuple[float, float] | None = None
    ) -> Any:
        """Returns the tensor `x` rounded; `name` is the layer's path and the place."""
        return x

    def kernel(self, kernel: Any, axis: int) -> Any:
        """Returns the kernel, rounded with a scale for each index of its `axis`."""
        return kernel

    def bias(self, bias: Any) -> Any:
        """Returns the bias of a convolution, which has 32 bits in int8 files."""
        return bias

    def normalized(
        self, batch_norm: Callable[[bool], Any], training: bool, layer: Any
    ) -> Any:
        """Returns `batch_norm(training)` of a layer, in the mode of this quantizer."""
        return batch_norm(False)

    def quantized(self, layer, place, x, limits=None):
        return self.point(f"{layer.path or layer.name}/{place}", x, limits)

    def activate(self, layer, activation, x):
        """Applies an activation, and rounds its result.

        The input of a ReLU is not rounded, because LiteRT fuses it into the convolution
        before it. It fuses no other activations.
        """
        if activation not in (keras.activations.relu, keras.activations.relu6):
            x = self.quantized(layer, "before_activation", x)
        is_swish = activation is swish
        x = x * self.gate(layer, x) if is_swish else activation(x)
        return self.quantized(layer, "activation", x)

    def gate(self, layer, x):
        """Computes `sigmoid(x)`, rounded to LiteRT's range of a sigmoid."""
        return self.quantized(layer, "sigmoid", ops.sigmoid(x), _UNIT)

    def convolve(self, conv, x):
        """Computes `conv(x)` with rounded kernels.

        With a scale per output channel, rounding before or after the batch norm is
        folded into the kernel is equal: the factor that the norm applies to a channel
        changes the channel's scale, but not its integers.
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
        """Computes the function of `extras/segmentation_head.py`, in inference mode."""
        height, width = size
        variance = batch_norm.moving_variance + batch_norm.epsilon
        scale = batch_norm.gamma * ops.rsqrt(variance)
        kernel = self.kernel(conv.kernel * scale[:, None], 2)
        strided = {"strides": tuple(conv.strides), "padding": conv.padding}
        x = ops.conv_transpose(x, kernel, **strided)
        shift = batch_norm.beta - batch_norm.moving_mean * scale
        # No operation is fused into a transposed convolution that is cut afterwards.
        return self.quantized(conv, "normalized", x + shift)[:, :height, :width]


def rounded_kernel(kernel: Any, axis: int) -> Any:
    """Rounds a kernel to 255 symmetric steps, with a scale per index of an axis."""
    kernel = ops.convert_to_tensor(kernel)
    others = [i for i in range(len(kernel.shape)) if i != axis]
    scale = ops.max(ops.abs(kernel), axis=others, keepdims=True) / 127.0
    scale = ops.where(scale > 0, scale, 1.0)
    return ops.round(kernel / scale) * scale


class _FakeQuant(Quantizer):
    """Quantizer with constant ranges."""

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
        # If all biases are equal, as in a new class head, TensorFlow's converter (2.21)
        # gives all channels the integer of the first one, although their scales differ.
        is_first = np.arange(bias.shape[0]) == 0
        return bias * np.where(is_first, np.float32(1 + 2**-20), np.float32(1))


class _FakeQuantTraining(_FakeQuant):
    """Quantizer that updates its ranges; `moved` has the new ranges, in order.

    `rounds` is a bool tensor, whether values are rounded; None means always.
    """

    def __init__(self, places, ranges, momentum, rounds, normalized):
        super().__init__(places, ranges)
        self._momentum = momentum
        self._rounds = rounds
        self._normalized = normalized
        self.moved = []

    def point(self, name, x, limits=None):
        rounded = super().point(name, x, limits)  # also updates the range
        return self._if_rounding(rounded, x)

    def _if_rounding(self, rounded, x):
        return rounded if self._rounds is None else ops.where(self._rounds, rounded, x)

    def _range(self, name, x):
        before = super()._range(name, x)
        x = ops.stop_gradient(x)
        # Zero must be one of the 256 values, because windows are padded with it.
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
    """Returns the names of the places with a learned range, in order of execution."""
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
    """Raises an error if backend or model cannot be trained quantization-aware."""
    require_tensorflow(
        "`quantize_aware` needs TensorFlow, whose converter writes the int8 files",
        "Save the model, and train it in a process with KERAS_BACKEND=tensorflow.",
    )
    if model.features is not None:
        raise InvalidValueError(
            "`quantize_aware` rounds numbers inside of the layers of the network, "
            "which is not possible in a TF-Hub module. Use a model of `from_preset`."
        )
    require(
        all(layer.compute_dtype == "float32" for layer in model.layers),
        "`quantize_aware` needs a model in float32, which is precise enough to "
        'distinguish the 256 steps of int8: load the model with dtype="float32"',
        dtype=model.dtype_policy.name,
    )
    rule = (
        "`quantize_aware` supports only the activations that LiteRT has in int8: "
        f"{', '.join(ACTIVATIONS)}"
    )
    for field in ("activation", "backbone_activation"):
        activation = getattr(model.config, field)
        require(activation in (None, *ACTIVATIONS), rule, **{field: activation})
