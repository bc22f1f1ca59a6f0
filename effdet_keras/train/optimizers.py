"""Optimizers: Muon; those by name or dict; a learning rate for each variable."""

from __future__ import annotations

import functools
import math

import keras
from keras import ops

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.errors import InvalidValueError
from effdet_keras.model.batch_norm import ON_TENSORFLOW
from effdet_keras.train.gradients import factors_of
from effdet_keras.train.schedules import choice


@keras.saving.register_keras_serializable(package="effdet_keras")
class Muon(keras.optimizers.AdamW):
    """Muon for the kernels of pointwise convolutions, AdamW for all other variables.

    The momentum of a kernel `[1, 1, m, n]`, as a matrix, is replaced by the nearest one
    whose singular values are equal (Jordan et al., "Muon", 2024, by five steps of
    Newton and Schulz): all directions of a layer are learned at the same speed, those
    of rare and small differences as well. Updates have a root mean square of 0.2, as
    AdamW's, whose rates and decay fit (Liu et al., arXiv:2502.16982, 2.2). The last
    layers of the heads are AdamW's.
    """

    def build(self, variables):
        super().build(variables)
        self._is_matrix = [_is_hidden_pointwise(v) for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        if not self._is_matrix[index]:
            if not ON_TENSORFLOW or self.amsgrad:
                return super().update_step(gradient, variable, learning_rate)
            return self._fused_step(gradient, variable, learning_rate, index)
        momentum = self._momentums[index]
        self.assign(momentum, _MOMENTUM * momentum + gradient)
        matrix = ops.reshape(gradient + _MOMENTUM * momentum, variable.shape[2:])
        scale = _RMS * math.sqrt(max(variable.shape[2:]))
        update = ops.reshape(_orthogonal(matrix), variable.shape)
        rate = ops.cast(learning_rate * scale, variable.dtype)
        return self.assign_sub(variable, update * rate)

    def _fused_step(self, gradient, variable, learning_rate, index):
        """Adam's step by TensorFlow's kernel: one operation in the place of thirty."""
        numbers = (learning_rate, self.beta_1, self.beta_2, self.epsilon, gradient)
        rate, beta_1, beta_2, epsilon, gradient = (
            tf.cast(number, variable.dtype) for number in numbers
        )
        step = tf.cast(self.iterations + 1, variable.dtype)
        return tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=tf.pow(beta_1, step),
            beta2_power=tf.pow(beta_2, step),
            lr=rate,
            beta1=beta_1,
            beta2=beta_2,
            epsilon=epsilon,
            grad=gradient,
        )


_MOMENTUM, _RMS = 0.95, 0.2
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # of a step: a x + b x^3 + c x^5


def _is_hidden_pointwise(variable):
    shape = tuple(variable.shape)
    return len(shape) == 4 and shape[:2] == (1, 1) and "-predict/" not in variable.path


def _orthogonal(matrix):
    """The matrix with singular values between about 0.7 and 1.2."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = ops.transpose(matrix) if is_tall else matrix
    x = x / (ops.sqrt(ops.sum(ops.square(x))) + 1e-7)
    a, b, c = _NEWTON_SCHULZ
    for _ in range(5):
        square = ops.matmul(x, ops.transpose(x))
        x = a * x + ops.matmul(b * square + c * ops.matmul(square, square), x)
    return ops.transpose(x) if is_tall else x


# --- Optimizers by name.

_OF_SGD = ("momentum", "nesterov")
_OF_ADAM = ("beta_1", "beta_2", "epsilon", "amsgrad")
_OF_RMSPROP = ("rho", "momentum", "epsilon", "centered")
# Name: Keras' class, its own default rate, its settings.
_OPTIMIZERS = {
    "sgd": (keras.optimizers.SGD, 0.01, _OF_SGD),
    "momentum": (keras.optimizers.SGD, 0.01, _OF_SGD),
    "adam": (keras.optimizers.Adam, 0.001, _OF_ADAM),
    "adamw": (keras.optimizers.AdamW, 0.001, _OF_ADAM),
    "rmsprop": (keras.optimizers.RMSprop, 0.001, _OF_RMSPROP),
    "muon": (Muon, 0.001, _OF_ADAM),
}
_DECAYING = ("adamw", "muon")  # themselves
# `compile` has arguments for what these do, the same for every optimizer.
_OF_COMPILE = {
    "learning_rate": "learning_rate",
    "weight_decay": "weight_decay",
    "clipnorm": "clip_norm",
    "global_clipnorm": "clip_norm",
    "use_ema": "ema_decay",
    "ema_momentum": "ema_decay",
    "gradient_accumulation_steps": "accumulate_steps",
}
# All variables whose names do not end like a kernel's: TensorFlow's names go on
# with ":0" or "/replica_1:0".
_NO_KERNEL = "^(?!.*kernel)"


def optimizer_choice(optimizer):
    """The name and settings of an optimizer by name or dict, checked."""
    for key in optimizer if isinstance(optimizer, dict) else ():
        if key in _OF_COMPILE:
            raise InvalidValueError(
                f"{key!r} is no setting of an optimizer here: give "
                f"`{_OF_COMPILE[key]}` to `compile`. Received: optimizer={optimizer!r}"
            )
    known = {name: settings for name, (_, _, settings) in _OPTIMIZERS.items()}
    return choice("optimizer", optimizer, known, otherwise="a Keras optimizer")


def default_learning_rate(optimizer):
    """Keras' own default rate of an optimizer by name or dict."""
    return _OPTIMIZERS[optimizer_choice(optimizer)[0]][1]


def has_own_decay(optimizer):
    """Whether an optimizer decays the weights, so that the loss should not."""
    if isinstance(optimizer, keras.optimizers.Optimizer):
        inner = getattr(optimizer, "inner_optimizer", optimizer)  # of a loss scale
        return bool(inner.weight_decay)
    return optimizer is not None and optimizer_choice(optimizer)[0] in _DECAYING


def named_optimizer(
    optimizer, learning_rate, *, weight_decay, multipliers=None, **more
):
    """The Keras optimizer of a name or dict; "momentum" is SGD with 0.9.

    `multipliers` is a recipe's `learning_rate_multipliers`, or None.
    """
    name, settings = optimizer_choice(optimizer)
    cls = _OPTIMIZERS[name][0]
    if multipliers:
        cls = _with_multipliers(cls)
    if name == "momentum":
        settings = {"momentum": 0.9, **settings}
    if name in _DECAYING:
        settings = {"weight_decay": weight_decay, **settings}
    made = cls(learning_rate, **settings, **more)
    if name in _DECAYING:
        made.exclude_from_weight_decay(var_names=[_NO_KERNEL])
    if multipliers:
        made.multipliers = dict(multipliers)
    return made


# --- A learning rate of its own for each variable.


@functools.cache
def _with_multipliers(cls):
    return type(cls.__name__, (_WithMultipliers, cls), {})


class _WithMultipliers:
    """A Keras optimizer whose variables have factors on its rate, and so on its decay.

    Gradients would not do: what divides them by their own size, as Adam, moves as far
    whatever they are multiplied with.
    """

    def build(self, variables):
        super().build(variables)
        self._factors = factors_of(self.multipliers, variables)

    def update_step(self, gradient, variable, learning_rate):
        # TensorFlow gives its own variable, whose name is no path.
        index = self._get_variable_index(variable)
        known = self._trainable_variables[index]
        rate = learning_rate * self._factors[index]
        if self.weight_decay and self._use_weight_decay(known):
            kept = variable * ops.cast(self.weight_decay * rate, variable.dtype)
            self.assign_sub(variable, kept)
        super().update_step(gradient, variable, rate)

    def _apply_weight_decay(self, variables):
        """Nothing: `update_step` does."""
