"""Turns gradients into updates: factors, clipping, L2 decay, and the optimizers."""

from __future__ import annotations

import collections
import difflib
import functools
import math
import re
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.backend import runs_on_processors
from effdet_keras._internal.number_ranges import NumberRange
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.optional_imports import torch
from effdet_keras._internal.replicas import num_replicas
from effdet_keras.errors import check_argument
from effdet_keras.network.computing import ON_TENSORFLOW, ON_TORCH
from effdet_keras.network.initial_values import quick
from effdet_keras.train.schedules import choice

# --- Counters of an optimizer. It counts training steps. With `accumulate_steps` of N,
# each update of the weights takes N steps.


def steps_per_update(optimizer: keras.optimizers.Optimizer) -> int:
    """Returns the number of steps whose gradients make one update of the weights."""
    return _inner(optimizer).gradient_accumulation_steps or 1


def step_counter(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """Returns the variable that counts the steps of an optimizer."""
    return _inner(optimizer)._iterations  # `iterations` counts updates


def steps_done(optimizer: keras.optimizers.Optimizer) -> int:
    """Returns the number of steps that an optimizer has done since its creation."""
    return int(ops.convert_to_numpy(step_counter(optimizer)))


def has_schedule(optimizer: keras.optimizers.Optimizer) -> bool:
    """Returns whether a schedule sets the learning rate, so that nothing else can."""
    return callable(_inner(optimizer)._learning_rate)


def unknown_variables(
    optimizer: keras.optimizers.Optimizer, variables: list[keras.Variable]
) -> list[keras.Variable]:
    """Returns the variables that a built optimizer cannot update.

    It has a momentum and the like only for the variables that it was built with. An
    optimizer that is not built yet can update all variables.
    """
    optimizer = _inner(optimizer)
    if not optimizer.built:
        return []
    known = {id(variable) for variable in optimizer._trainable_variables}
    return [variable for variable in variables if id(variable) not in known]


def _inner(optimizer):
    return getattr(optimizer, "inner_optimizer", optimizer)  # a `LossScaleOptimizer`


KERNELS = "kernel$"  # of all convolutions, also depthwise and pointwise ones


# --- Dicts from regular expressions to numbers. The first expression that is found in
# the path of a variable (`re.search`) gives its number.


def check_found(argument, patterns, variables):
    """Raises ValueError if an expression is found in no variable's path."""
    paths = [variable.path for variable in variables]
    for pattern in patterns:
        near = difflib.get_close_matches(pattern, paths, n=3, cutoff=0.0)
        expected = (
            "a regular expression that occurs in the path of one of the model's "
            f"variables, such as {near}"
        )
        is_found = any(re.search(pattern, path) for path in paths)
        check_argument(is_found, argument, pattern, expected)


def factors_of(multipliers, variables):
    """Returns the factor of each variable: 1 if no expression is found in its path."""
    return [_first_found(multipliers or {}, v.path, otherwise=1.0) for v in variables]


def multiply_gradients(gradients, multipliers, variables):
    """Returns gradients multiplied by the factors of their variables.

    It is applied before clipping. TF-Slim's `multiply_gradients`, which the Object
    Detection API uses for `bias_grad_multiplier`, does the same. It has no effect on
    the updates of optimizers that divide gradients by their own size, such as Adam: for
    these use `learning_rate_multipliers`.
    """
    if not multipliers:
        return gradients
    factors = factors_of(multipliers, variables)
    pairs = zip(gradients, factors, strict=True)
    return [g if factor == 1.0 else g * factor for g, factor in pairs]


def decay_factors(decay, variables):
    """Returns the L2 decay of each variable, 0 for variables that do not decay.

    `decay` is a float for all kernels, or a dict of regular expressions to floats.
    """
    patterns = decay if isinstance(decay, dict) else {KERNELS: decay}
    return [_first_found(patterns, v.path, otherwise=0.0) for v in variables]


def decay_loss(decay, variables):
    """Returns the L2 loss of variables, weighted by `decay_factors`: float32 scalar."""
    factors = decay_factors(decay, variables)
    decaying = [(v, factor) for v, factor in zip(variables, factors) if factor]
    if not decaying:
        return ops.zeros(())
    factors = ops.convert_to_tensor([f for _, f in decaying], "float32")
    return ops.sum(factors * ops.stack([l2_loss(v) for v, _ in decaying]))


def _first_found(patterns, path, otherwise):
    found = (value for pattern, value in patterns.items() if re.search(pattern, path))
    return float(next(found, otherwise))


# --- Gradients of TensorFlow's tape.


def gradients_of(tape, target, variables):
    """Returns the gradients of a scalar; zeros for variables it does not depend on.

    The tape's own `unconnected_gradients="zero"` fails for Keras variables if a step
    runs eagerly.
    """
    gradients = tape.gradient(target, variables)
    return [
        ops.zeros_like(variable.value) if gradient is None else gradient
        for gradient, variable in zip(gradients, variables, strict=True)
    ]


# --- Gradient clipping in two stages, as in the reference: each one, then all together.


def clip_gradients(gradients, limit, *, each_first=True, scale=None):
    """Clips gradients by norm, and returns them with their global norm.

    Args:
        gradients: list of float tensors.
        limit: float, the largest norm. None or 0 clips nothing.
        each_first: bool, whether each gradient is clipped to `limit` before the global
            norm of all of them is.
        scale: float scalar, the loss scale that the gradients are multiplied by, or
            None. The clipping and the returned norm are those of gradients without it;
            the returned gradients keep it.

    Returns:
        Tuple of the clipped gradients and their global norm after clipping, a float32
        scalar.
    """
    # All vectors are concatenated: a step has 300, and each operation has a
    # cost.
    vectors = [g for g in gradients if len(g.shape) == 1]
    tensors = [g for g in gradients if len(g.shape) != 1]
    numbers = ops.concatenate(vectors) if vectors else ops.zeros((0,))
    count = len(vectors) + 1  # torch needs at least one segment
    sizes = [v.shape[0] for v in vectors]
    owners = np.repeat(np.arange(count - 1), sizes or 0)
    squares = ops.segment_sum(ops.square(ops.cast(numbers, "float32")), owners, count)
    halves = ops.stack([l2_loss(g) for g in tensors] or [ops.zeros(())])
    norms = ops.sqrt(ops.concatenate([squares, 2.0 * halves]))
    if scale is not None:
        norms = norms / scale
    factors = ops.ones_like(norms)
    if limit:
        if each_first:
            factors = limit / ops.maximum(norms, limit)
        together = _norm(norms * factors)
        factors = factors * (limit / ops.maximum(together, limit))
    numbers = numbers * ops.cast(ops.take(factors[:count], owners), numbers.dtype)
    clipped = iter(_split(numbers, sizes))
    tensors = zip(tensors, ops.unstack(factors[count:]))
    tensors = (g * ops.cast(f, g.dtype) for g, f in tensors)
    parts = [next(clipped if len(g.shape) == 1 else tensors) for g in gradients]
    return parts, _norm(norms * factors)


def _split(vector, sizes):
    """Splits a vector into pieces of these sizes: on TensorFlow 1 operation, not 24."""
    if len(sizes) < 2:
        return [vector]
    if ON_TENSORFLOW:
        return tf.split(vector, sizes)
    return ops.split(vector, np.cumsum(sizes)[:-1].tolist())


def l2_loss(tensor):
    """Returns half the sum of squares, a float32 scalar, on TensorFlow in one op."""
    tensor = ops.cast(tensor, "float32")
    if ON_TENSORFLOW:
        return tf.nn.l2_loss(tensor)
    return ops.sum(ops.square(tensor)) / 2.0


def _norm(vector):
    return ops.sqrt(ops.sum(ops.square(vector)))


def all_finite(tensors):
    """Returns whether no number in a list of float tensors is NaN or infinite."""
    vectors = [
        t
        if len(t.shape) == 1 and keras.backend.standardize_dtype(t.dtype) == "float32"
        else ops.reshape(ops.cast(t, "float32"), (-1,))
        for t in tensors
    ]
    return ops.all(ops.isfinite(ops.concatenate(vectors)))


def float_values(pairs):
    """Returns the values of the float variables among (variable, value) pairs."""
    return [value for v, value in pairs if keras.backend.is_float_dtype(v.dtype)]


# --- Updates with few operations.


def assign_sub_scaled(variable, rate, direction):
    """Subtracts `rate * direction` from a variable, on TensorFlow in one operation."""
    if ON_TENSORFLOW:
        variable = variable.value if isinstance(variable, keras.Variable) else variable
        tf.raw_ops.ResourceApplyGradientDescent(
            var=variable.handle, alpha=tf.cast(rate, variable.dtype), delta=direction
        )
    else:
        variable.assign(variable.value - direction * rate)


class _Fused:
    """Makes the update of a Keras optimizer one operation per variable on TensorFlow.

    Keras' update consists of ten to thirty operations per variable, which take half of
    the time until the first step. With several replicas, with `amsgrad`, and on other
    backends, Keras' own update runs.
    """

    def add_variable(self, shape, initializer="zeros", *args, **kwargs):
        """Adds a variable, on JAX without compiling a program for each shape."""
        return super().add_variable(shape, quick(initializer), *args, **kwargs)

    def _is_fused(self):
        is_plain = not getattr(self, "amsgrad", False)
        return ON_TENSORFLOW and num_replicas() == 1 and is_plain

    def _factor(self, index):
        """Returns the factor on the learning rate of a variable."""
        return 1.0

    def _apply_weight_decay(self, variables):
        if not self._is_fused():
            super()._apply_weight_decay(variables)

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        """Updates variables with fused operations, or as Keras if not `_is_fused`."""
        if not self._is_fused():
            super()._backend_update_step(grads, trainable_variables, learning_rate)
            return
        shared = _Shared(learning_rate)
        updates = []
        for gradient, known in zip(grads, trainable_variables):
            index = self._get_variable_index(known)
            variable = known.value if isinstance(known, keras.Variable) else known
            factor = self._factor(index)
            if self.weight_decay and self._use_weight_decay(known):
                decay = shared.rate(factor * self.weight_decay, variable.dtype)
                assign_sub_scaled(variable, decay, variable)
            gradient = tf.cast(gradient, variable.dtype)
            updates.append(_Update(index, variable, gradient, factor))
        self._update(updates, shared)


class _Update(NamedTuple):
    index: int
    variable: Any  # TensorFlow's
    gradient: Any
    factor: float  # on the learning rate


class _Shared:
    """Caches scalars that several updates of a step use, as one graph op each."""

    def __init__(self, learning_rate):
        self._learning_rate = learning_rate
        self.number = functools.cache(tf.constant)
        self.rate = functools.cache(self._rate)

    def _rate(self, factor, dtype):
        return tf.cast(self._learning_rate * factor, dtype)


@keras.saving.register_keras_serializable(package="effdet_keras")
class SGD(_Fused, keras.optimizers.SGD):
    """`keras.optimizers.SGD`, with faster updates and the same arguments."""

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        """Updates all variables with a few operations on torch.

        Keras does this only for its own `SGD` class. The result has the same bits:
        Keras' update is `m <- momentum * m - rate * gradient`.
        """
        is_plain = ON_TORCH and self.momentum and not self.nesterov
        indices = [self._get_variable_index(v) for v in trainable_variables]
        if not is_plain or any(
            self._factor(i) != 1.0 or v.dtype != "float32"
            for i, v in zip(indices, trainable_variables)
        ):
            super()._backend_update_step(grads, trainable_variables, learning_rate)
            return
        momentums = [self.momentums[i].value for i in indices]
        with torch.no_grad():
            steps = torch._foreach_mul(grads, ops.cast(learning_rate, "float32"))
            torch._foreach_mul_(momentums, self.momentum)
            torch._foreach_sub_(momentums, steps)
            torch._foreach_add_([v.value for v in trainable_variables], momentums)

    def _update(self, updates, shared):
        for index, variable, gradient, factor in updates:
            rate = shared.rate(factor, variable.dtype)
            if not self.momentum:
                assign_sub_scaled(variable, rate, gradient)
                continue
            tf.raw_ops.ResourceApplyKerasMomentum(
                var=variable.handle,
                accum=self.momentums[index].value.handle,
                lr=rate,
                grad=gradient,
                momentum=shared.number(self.momentum, variable.dtype),
                use_nesterov=self.nesterov,
            )


class _FusedAdam(_Fused):
    def _update(self, updates, shared):
        """Applies TensorFlow's fused Adam operation to each variable."""

        @functools.cache
        def power(beta, dtype):
            return tf.pow(shared.number(beta, dtype), tf.cast(step, dtype))

        step = ops.convert_to_tensor(self.iterations) + 1
        for index, variable, gradient, factor in updates:
            dtype = variable.dtype
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=self._momentums[index].value.handle,
                v=self._velocities[index].value.handle,
                beta1_power=power(self.beta_1, dtype),
                beta2_power=power(self.beta_2, dtype),
                lr=shared.rate(factor, dtype),
                beta1=shared.number(self.beta_1, dtype),
                beta2=shared.number(self.beta_2, dtype),
                epsilon=shared.number(self.epsilon, dtype),
                grad=gradient,
            )


@keras.saving.register_keras_serializable(package="effdet_keras")
class Adam(_FusedAdam, keras.optimizers.Adam):
    """`keras.optimizers.Adam`, with faster updates and the same arguments."""


@keras.saving.register_keras_serializable(package="effdet_keras")
class AdamW(_FusedAdam, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW`, with faster updates and the same arguments."""


@keras.saving.register_keras_serializable(package="effdet_keras")
class Muon(AdamW):
    """Updates kernels of pointwise convolutions by Muon, all other variables by AdamW.

    The (Nesterov) momentum of a kernel `[1, 1, m, n]` is taken as a matrix `[m, n]`. It
    is replaced by the nearest matrix whose singular values are all equal (Jordan et
    al., "Muon", 2024), approximated by five Newton-Schulz steps. Updates have a root
    mean square of 0.4, and the momentum is 0.9 (docs/fine_tuning.md). With half of that
    root mean square, the learning rates and weight decay of AdamW fit (Liu et al.,
    arXiv:2502.16982, section 2.2). The last layers of the heads are updated by AdamW.

    Args:
        learning_rate, weight_decay: as in `keras.optimizers.AdamW`, for all variables.
        beta_1, beta_2, epsilon, amsgrad: as in `keras.optimizers.AdamW`, for the
            variables that AdamW updates.
    """

    def build(self, variables):
        super().build(variables)
        self._is_matrix = [_is_hidden_pointwise(v) for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        if not self._is_matrix[index]:
            return super().update_step(gradient, variable, learning_rate)
        momentum = self._momentums[index]
        self.assign(momentum, _MOMENTUM * momentum + gradient)
        matrix = ops.reshape(gradient + _MOMENTUM * momentum, variable.shape[2:])
        update = ops.reshape(_orthogonal(matrix), variable.shape)
        rate = ops.cast(learning_rate * _scale(variable.shape), variable.dtype)
        return self.assign_sub(variable, update * rate)

    def _update(self, updates, shared):
        """Does what `update_step` does, for all matrices of one shape together."""
        matrices = collections.defaultdict(list)
        for update in updates:
            if self._is_matrix[update.index]:
                shape = tuple(update.variable.shape)
                matrices[shape, update.variable.dtype].append(update)
        for (shape, dtype), group in matrices.items():
            gradients = tf.stack([update.gradient for update in group])
            own = [self._momentums[update.index].value for update in group]
            momentums = _MOMENTUM * tf.stack(own) + gradients
            aims = tf.reshape(gradients + _MOMENTUM * momentums, (-1, *shape[2:]))
            steps = tf.reshape(_orthogonal(aims), (-1, *shape))
            each = zip(group, own, tf.unstack(momentums), tf.unstack(steps))
            for update, variable, momentum, step in each:
                variable.assign(momentum, read_value=False)
                rate = shared.rate(update.factor * _scale(shape), dtype)
                assign_sub_scaled(update.variable, rate, step)
        by_adam = [update for update in updates if not self._is_matrix[update.index]]
        super()._update(by_adam, shared)


_MOMENTUM, _RMS = 0.9, 0.4
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # a, b, c of a step a x + b x^3 + c x^5


def _is_hidden_pointwise(variable):
    shape = tuple(variable.shape)
    return len(shape) == 4 and shape[:2] == (1, 1) and "-predict/" not in variable.path


def _scale(shape):
    """Returns the factor that gives an orthogonal update a root mean square of 0.4."""
    return _RMS * math.sqrt(max(shape[2:]))


def _orthogonal(matrices):
    """Returns matrices `[..., m, n]` with singular values of about 0.7 to 1.2.

    Their singular vectors are those of the argument.
    """
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = ops.swapaxes(matrices, -1, -2) if is_tall else matrices
    x = x / (ops.sqrt(ops.sum(ops.square(x), axis=(-2, -1), keepdims=True)) + 1e-7)
    one, (a, b, c) = np.eye(x.shape[-2]), _NEWTON_SCHULZ
    a, b, c = (ops.convert_to_tensor(n, x.dtype) for n in (a * one, b * one, c))

    def next_step(square):
        """Returns the factor of a Newton-Schulz step on `x`, computed from `x x^T`."""
        return a + square @ (b + c * square)

    if x.shape[-1] > 2 * x.shape[-2] and runs_on_processors():
        # Computing the product of all steps from `x x^T` alone is less than half of the
        # work. But it needs the full precision of float32, which GPUs may not use.
        square = x @ ops.swapaxes(x, -1, -2)
        product = step = next_step(square)
        for _ in range(4):
            square = step @ square @ step
            step = next_step(square)
            product = step @ product
        x = product @ x
    else:
        for _ in range(5):
            x = next_step(x @ ops.swapaxes(x, -1, -2)) @ x
    return ops.swapaxes(x, -1, -2) if is_tall else x


# --- Optimizers by name.

# The settings of each optimizer, and the allowed values.
_SHARE, _EPSILON = NumberRange("[0, 1)"), NumberRange("[0, inf)")
_SGD_SETTINGS = {"momentum": _SHARE, "nesterov": bool}
_ADAM_SETTINGS = {
    "beta_1": _SHARE,
    "beta_2": _SHARE,
    "epsilon": _EPSILON,
    "amsgrad": bool,
}
_RMSPROP_SETTINGS = {
    "rho": _SHARE,
    "momentum": _SHARE,
    "epsilon": _EPSILON,
    "centered": bool,
}
# For each name: the class, Keras' default learning rate, and the settings.
_OPTIMIZERS = {
    "sgd": (SGD, 0.01, _SGD_SETTINGS),
    "momentum": (SGD, 0.01, _SGD_SETTINGS),
    "adam": (Adam, 0.001, _ADAM_SETTINGS),
    "adamw": (AdamW, 0.001, _ADAM_SETTINGS),
    "rmsprop": (keras.optimizers.RMSprop, 0.001, _RMSPROP_SETTINGS),
    "muon": (Muon, 0.001, _ADAM_SETTINGS),
}
_DECAYING = ("adamw", "muon")  # optimizers that decay the weights themselves
# Not "kernel$": TensorFlow adds ":0" or "/replica_1:0" to names.
_NO_KERNEL = "^(?!.*kernel)"


def optimizer_choice(optimizer):
    """Returns the name and the checked settings of an optimizer by name or dict."""
    known = {name: settings for name, (_, _, settings) in _OPTIMIZERS.items()}
    return choice("optimizer", optimizer, known, otherwise="a Keras optimizer")


def default_learning_rate(optimizer):
    """Returns Keras' default learning rate of an optimizer by name or dict."""
    return _OPTIMIZERS[optimizer_choice(optimizer)[0]][1]


def has_own_decay(optimizer):
    """Returns whether an optimizer decays the weights, so that the loss should not."""
    if isinstance(optimizer, keras.optimizers.Optimizer):
        return bool(_inner(optimizer).weight_decay)
    return optimizer is not None and optimizer_choice(optimizer)[0] in _DECAYING


def named_optimizer(
    optimizer, learning_rate, *, weight_decay, multipliers=None, **more
):
    """Returns the Keras optimizer for a name or dict. "momentum" is SGD with 0.9.

    Args:
        optimizer: string or dict, see `optimizer` of `Recipe`.
        learning_rate: float or Keras `LearningRateSchedule`.
        weight_decay: float, the decay of the kernels for "adamw" and "muon"; other
            optimizers ignore it.
        multipliers: dict, a recipe's `learning_rate_multipliers`, or None.
        **more: further arguments of the Keras optimizer.
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


# --- Learning rates that differ between variables.


@functools.cache
def _with_multipliers(cls):
    return type(cls.__name__, (_WithMultipliers, cls), {})


class _WithMultipliers:
    """Multiplies the learning rate of a Keras optimizer by a factor for each variable.

    The decay of a variable is multiplied as well. Multiplying gradients would not work
    with optimizers that divide them by their own size, such as Adam: their updates do
    not depend on the factor.
    """

    def build(self, variables):
        super().build(variables)
        self._factors = factors_of(self.multipliers, variables)

    def _factor(self, index):
        return self._factors[index]

    def update_step(self, gradient, variable, learning_rate):
        # `variable` may be TensorFlow's own, whose name is not the path.
        index = self._get_variable_index(variable)
        known = self._trainable_variables[index]
        rate = learning_rate * self._factors[index]
        if self.weight_decay and self._use_weight_decay(known):
            kept = variable * ops.cast(self.weight_decay * rate, variable.dtype)
            self.assign_sub(variable, kept)
        super().update_step(gradient, variable, rate)

    def _apply_weight_decay(self, variables):
        """Does nothing: `update_step` applies the decay."""
