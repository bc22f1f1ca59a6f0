"""Keeps moving averages of the weights, and swaps them with the weights."""

from __future__ import annotations

import collections
import contextlib
import zlib

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.backend import compiles_each_operation
from effdet_keras._internal.number_ranges import check_number
from effdet_keras._internal.old_names import warn_of_old_name
from effdet_keras._internal.optional_imports import jax
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.errors import (
    InvalidStateError,
    InvalidValueError,
    require,
)
from effdet_keras.network.computing import ON_TENSORFLOW
from effdet_keras.train.optimizers import assign_sub_scaled

# In files, prefixes of the path of a variable: the averages, or the raw weights.
AVERAGE, TRAINING = "average:", "training:"


def placed_like(variable, value):
    """Returns a value placed on the devices of a variable, without communication.

    JAX distributes a variable over the devices of several processes. For an assignment,
    Keras makes all processes compare their numbers: if one has failed, the others would
    wait for it.
    """
    sharding = getattr(variable.value, "sharding", None)
    if sharding is None or sharding.is_fully_addressable:
        return value
    array = np.asarray(keras.ops.convert_to_numpy(value))
    return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])


# --- Exponential moving averages of weights, and their exact exchange.


class WeightAverages:
    """Exponential moving averages of variables, which can be swapped into them.

    After step `k` (0-based) every average `a` of a variable `w` becomes

        a = a - (a - w) * (1 - d)    d = min(decay, (1 + k) / (10 + k))

    So the average covers few steps early on, when the weights move fast. This is the
    moving average of the reference (tf2/train.py, with TensorFlow Addons).

    When `fit` ends, it leaves the averages in the variables. When it begins, it calls
    `swap_out`, which restores every raw weight bit for bit, also after an interruption
    in the middle of a swap. If a variable was assigned another value in between, both
    the variable and its average keep that value. When weights are loaded, call `reset`.
    Only `update` runs inside a compiled step.

    Args:
        variables: list of float32 or float64 `keras.Variable`.
        decay: float in [0, 1).

    Raises:
        ValueError: If `decay` is out of its range, or a variable has another dtype.

    Example:
        >>> weight = keras.Variable([0.0])
        >>> averages = WeightAverages([weight], decay=0.9)
        >>> _ = weight.assign([1.0])
        >>> averages.update(0)  # d = 0.1
        >>> averages.swap_in()
        >>> ops.convert_to_numpy(weight)
        array([0.9], dtype=float32)
    """

    def __init__(self, variables, decay=0.9998):
        check_number("decay", decay, "[0, 1)")
        self.decay = decay
        self.sources = list(variables)
        # Averages of one shape share an array: a step has 700 of them, and each
        # operation has a cost.
        groups = collections.defaultdict(list)
        for place, variable in enumerate(self.sources):
            groups[tuple(variable.shape), variable.dtype].append(place)
        self._groups = list(groups.values())
        self.variables = [_averages_of(self._of(group)) for group in self._groups]
        self._is_swapped = False
        # While swapped: a checksum of the average in each variable, or None if it is
        # not known.
        self._given = None
        # During an exchange: the values before it, which can be restored.
        self._before = None

    @property
    def values(self):
        """The averages as arrays; while swapped, the raw weights."""
        found = {}
        for group, rows in zip(self._groups, _values(self.variables)):
            found.update(zip(group, rows))
        return [found[place] for place in range(len(self.sources))]

    @property
    def is_swapped(self):
        """Whether the variables hold the averages at this moment."""
        return self._is_swapped or self._before is not None

    @property
    def state(self):
        """The state of the exchange, which can be set again.

        It does not contain the values of `variables`.
        """
        return self._is_swapped, self._given, self._before

    @state.setter
    def state(self, state):
        self._is_swapped, self._given, self._before = state

    def update(self, step, has_moved=None, new_values=()):
        """Moves every average towards its variable, after a step.

        Args:
            step: int scalar, the 0-based step.
            has_moved: bool scalar or None. If it is False, no average moves.
            new_values: pairs of a variable and its value as a tensor. These variables
                are not read again, which saves 216 operations of D0's step, 2 % of its
                graph.

        Raises:
            RuntimeError: If the variables hold the averages.
        """
        if self.is_swapped:
            raise InvalidStateError(
                "The model's variables hold the moving averages of its weights, which "
                "cannot be trained. In a training loop of your own, call "
                "`model.averages.swap_out()` before the first step and "
                "`model.averages.swap_in()` after the last one."
            )
        # 1 - (1 + k) / (10 + k), without loss of precision.
        rate = 9.0 / (10.0 + ops.cast(step, "float32"))
        rate = ops.maximum(1.0 - self.decay, rate)
        if has_moved is not None:
            rate = ops.where(has_moved, rate, 0.0)
        known = {id(variable): value for variable, value in new_values}
        for group, average in zip(self._groups, self.variables):
            values = [known.get(id(v), v.value) for v in self._of(group)]
            assign_sub_scaled(average, rate, average.value - _stacked(values))

    def reset(self):
        """Sets each average to a copy of its variable, also while they are swapped."""
        for group, average in zip(self._groups, self.variables):
            average.assign(_stacked([v.value for v in self._of(group)]))
        self._end_swap()

    def commit(self):
        """Sets every variable to its average permanently; the raw weights are lost."""
        self.swap_in()
        self.reset()

    def swap_in(self):
        """Puts the averages into the variables, if they are not there already."""
        if self._before is not None:  # an exchange was interrupted
            self.swap_out()
        if self._is_swapped:
            return
        sources, averages = _values(self.sources), self.values
        # From here on, `swap_out` can undo the exchange wherever it is interrupted.
        self._before = (sources, averages)
        _assign(self.sources, averages)
        self._keep(sources)
        self._given = [_checksum(value) for value in averages]
        self._is_swapped, self._before = True, None

    def swap_out(self):
        """Restores the raw weights. If it is interrupted, call it again."""
        if not self.is_swapped:
            return
        if self._before is None:
            self._before = self._values_before()
        sources, averages = self._before
        _assign(self.sources, sources)
        self._keep(averages)
        self._end_swap()

    def restore(self):
        """Deprecated: `swap_out`."""
        warn_of_old_name("averages.restore", "averages.swap_out")
        self.swap_out()

    def finish_load(self):
        """Puts the averages into the variables, after both were loaded."""
        self.swap_out()
        self.swap_in()

    @contextlib.contextmanager
    def swapped(self):
        """Context in which the variables hold the averages.

        At its end the variables hold what they held before.
        """
        if self._is_swapped and self._before is None:
            yield
            return
        try:
            self.swap_in()
            yield
        finally:
            self.swap_out()

    def save(self, store):
        """Writes the averages to a store; while swapped, the raw weights."""
        prefix = TRAINING if self.is_swapped else AVERAGE
        for source, value in zip(self.sources, self.values):
            store[_key(prefix, source)] = value

    def load(self, store):
        """Reads what `save` wrote, and returns whether the store contained it.

        Raises:
            ValueError: If the store has averages of other variables.
        """
        names = set(store.keys())  # the store of a `.weights.h5` is not a dict
        is_swapped = any(name.startswith(TRAINING) for name in names)
        prefix = TRAINING if is_swapped else AVERAGE
        found = {name for name in names if name.startswith(prefix)}
        if not found:
            return False
        keys = [_key(prefix, source) for source in self.sources]
        if set(keys) != found:
            raise InvalidValueError(
                f"The file holds {len(found)} moving averages, but this model has "
                f"{len(keys)}: when the file was written, the model was compiled with "
                "other trainable weights. Compile it as it was then, and load the "
                "file again."
            )
        values = [store[key] for key in keys]
        if is_swapped:  # the variables of the file hold the averages
            self._end_swap()
            self._is_swapped = True
        else:
            self.swap_out()
        self._keep(values)
        return True

    def _values_before(self):
        """Returns the raw weights and the averages, for the end of a swap.

        A variable whose checksum has changed was assigned during the swap. Its value is
        then both its raw weight and its average.
        """
        training, averages = self.values, _values(self.sources)
        given = [None] * len(averages) if self._given is None else self._given
        for i, (average, checksum) in enumerate(zip(averages, given)):
            if checksum not in (None, _checksum(average)):
                training[i] = np.array(average)  # a copy, to have two buffers
        return training, averages

    def _of(self, group):
        return [self.sources[place] for place in group]

    def _keep(self, values):
        """Stores arrays as the `values`."""
        groups = [np.stack([values[i] for i in group]) for group in self._groups]
        _assign(self.variables, groups)

    def _end_swap(self):
        self._is_swapped, self._before, self._given = False, None, None


def _key(prefix, variable):
    return prefix + variable.path.replace("/", ":")


def _averages_of(variables):
    """Returns a variable of averages, starting at the values of variables of one shape.

    Raises ValueError unless the variables are float32 or float64.
    """
    # A 16-bit average would never change: 1 - decay is below the machine epsilon.
    rule = (
        "Moving averages need variables of float32 or float64, such as those of "
        "models with mixed precision"
    )
    first = variables[0]
    is_right = first.dtype in ("float32", "float64")
    require(is_right, rule, path=first.path, dtype=first.dtype)
    return keras.Variable(
        # A function, because a model may be built in a stateless scope.
        lambda shape, dtype: _first_average(variables),
        shape=(len(variables), *first.shape),
        dtype=first.dtype,
        trainable=False,
        autocast=False,
        aggregation="only_first_replica",  # replicas hold equal weights
        name="averages_" + first.path.replace("/", "_"),
    )


def _first_average(variables):
    """Returns the stacked values, on JAX without compiling a program per shape."""
    is_single_device = keras.distribution.distribution() is None
    if compiles_each_operation() and is_single_device:
        return jax.device_put(np.stack(_values(variables)))
    return _stacked([v.value for v in variables])


def _stacked(values):
    """Returns a copy of the values of several variables, along a new first axis."""
    stacked = ops.stack(values)
    # `stop_gradient` is not needed on TensorFlow, whose tape does not record updates.
    return stacked if ON_TENSORFLOW else ops.stop_gradient(stacked)


def _values(variables):
    # Copies: torch's arrays share memory with the variable, and a compiled
    # step of JAX may take over the variable's own buffer.
    return [np.array(ops.convert_to_numpy(v)) for v in variables]


def _assign(variables, values):
    for variable, value in zip(variables, values):
        if ON_TENSORFLOW:  # TensorFlow's takes a third of the time of Keras' `assign`
            variable.value.assign(tf.cast(value, variable.dtype), read_value=False)
            continue
        is_exact = str(getattr(value, "dtype", None)) == variable.dtype
        value = value if is_exact else ops.cast(value, variable.dtype)
        variable.assign(placed_like(variable, value))


def _checksum(array):
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).reshape(-1))


# --- The callback that swaps weights and averages.


class SwapEMA(keras.callbacks.Callback):
    """Puts the raw weights in place for an epoch's steps, otherwise the averages.

    It puts the averages in place before a validation and at the end of an epoch, and
    the raw weights before the next step.

    `fit` adds it to a model with moving averages, before all other callbacks. So their
    `on_epoch_end`, `on_test_...` and `on_train_end` see the averages. If you pass a
    `SwapEMA` to `fit`, it is used in this position.

    `evaluate(..., callbacks=[SwapEMA()])` also sees the averages. At its end `evaluate`
    restores the weights that were in place, also between two steps of a training.

    Example:
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> model = EfficientDet.from_preset("efficientdet-lite0", image_size=64)
        >>> model.compile()
        >>> callback = SwapEMA()
        >>> callback.set_model(model)  # `evaluate(..., callbacks=[callback])` calls:
        >>> callback.on_test_begin()
        >>> model.averages.is_swapped
        True
    """

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self.model.averages.swap_out()

    def on_test_begin(self, logs: dict | None = None) -> None:
        averages = self.model.averages
        rule = (
            "`SwapEMA` needs moving averages, which this model does not have: compile "
            "it with `ema_decay`, or leave `SwapEMA` out"
        )
        require(averages is not None, rule, averages=averages, model=self.model.name)
        averages.swap_in()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self.model.averages.swap_in()

    def on_train_end(self, logs: dict | None = None) -> None:
        self.model.averages.swap_in()


@contextlib.contextmanager
def evaluated_weights(model):
    """Context that puts the averages in place, if there are any.

    It yields "averages", or "live" for a model without averages.
    """
    averages = getattr(model, "averages", None)
    with contextlib.nullcontext() if averages is None else averages.swapped():
        yield "live" if averages is None else "averages"


@contextlib.contextmanager
def weights_as_before(averages):
    """Context that at its end undoes a swap by a callback.

    `SwapEMA` in `evaluate` leaves the averages in place, because no step of `fit`
    follows that swaps them out. `averages` is a `WeightAverages` or None.
    """
    stays = averages is None or averages.is_swapped
    try:
        yield
    finally:
        if not stays:
            averages.swap_out()
