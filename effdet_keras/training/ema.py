"""Exponential moving averages of weights, and their exact exchange."""

import contextlib

import keras
import numpy as np
from keras import ops

from effdet_keras.errors import InvalidStateError, InvalidValueError


class WeightAverages:
    """Moving averages of a list of variables, which can take their place.

    After step `k` (0-based) every average `a` of a variable `w` becomes

        a = a - (a - w) * (1 - d)    d = min(decay, (1 + k) / (10 + k))

    so that early on, when the weights move fast, the average is short. With
    `dynamic=False`, `d` is `decay` at every step. This is the moving average
    of the reference (tf2/train.py, by TensorFlow Addons), over whichever
    variables it is given: give it the batch-norm statistics as well.

    An average starts as a copy of its variable. When weights are loaded into
    the variables afterwards, call `reset`.

    `update` runs inside a compiled train step on every backend, the other
    methods outside of one. A swap keeps both sets of values
    in host memory until it is undone: an interruption in the middle of it
    loses nothing, `restore` puts every value back, bit by bit. What is
    written to the variables meanwhile is lost.

    Args:
        variables: list of `keras.Variable`, floating point.
        decay: float in `[0, 1)`.
        dynamic: bool, whether the decay grows with the step.

    Raises:
        ValueError: If `decay` is outside `[0, 1)`, or a variable is not of a
            floating-point type.

    Example:
        >>> weight = keras.Variable([0.0, 4.0])
        >>> averages = WeightAverages([weight])
        >>> _ = weight.assign([10.0, 4.0])
        >>> averages.update(step=0)  # d = 0.1
        >>> with averages.swapped():
        ...     print(ops.convert_to_numpy(weight))
        [9. 4.]
        >>> print(ops.convert_to_numpy(weight))
        [10.  4.]
    """

    def __init__(self, variables, decay=0.9998, dynamic=True):
        if not 0.0 <= decay < 1.0:
            raise InvalidValueError(
                "`decay` of `WeightAverages` must be at least 0 and below 1. "
                f"Received: decay={decay}"
            )
        self.decay = decay
        self.dynamic = dynamic
        self._sources = list(variables)
        self._averages = [_average_of(variable) for variable in self._sources]
        self._held = None  # while swapped: the values of before, as arrays

    @property
    def sources(self):
        """The variables that are averaged, in the order of `variables`."""
        return list(self._sources)

    @property
    def variables(self):
        """The averages: non-trainable variables, to be saved with a model."""
        return list(self._averages)

    @property
    def is_swapped(self):
        """Whether the variables hold the averages at this moment."""
        return self._held is not None

    def update(self, step):
        """Moves every average towards its variable.

        Args:
            step: int or scalar integer tensor, the 0-based number of this
                step: `optimizer.iterations` before it applied the gradients.

        Raises:
            RuntimeError: If the averages are swapped in. A compiled step
                checks this when it is traced.

        Example:
            >>> weight = keras.Variable(0.0)
            >>> averages = WeightAverages([weight], decay=0.5, dynamic=False)
            >>> for step in range(2):
            ...     _ = weight.assign(8.0)
            ...     averages.update(step)
            >>> float(averages.variables[0])
            6.0
        """
        self._check_not_swapped("update")
        rate = 1.0 - self.decay
        if self.dynamic:
            # 1 - (1 + k) / (10 + k) without the loss of digits.
            rate = ops.maximum(rate, 9.0 / (10.0 + ops.cast(step, "float32")))
        for source, average in zip(self._sources, self._averages):
            # Each `.value` of a variable is a node of the graph.
            old, dtype = average.value, average.dtype
            change = (old - ops.cast(source.value, dtype)) * ops.cast(rate, dtype)
            average.assign(old - change)

    def reset(self):
        """Makes every average a copy of its variable again.

        Raises:
            RuntimeError: If the averages are swapped in.

        Example:
            >>> weight = keras.Variable(0.0)
            >>> averages = WeightAverages([weight])
            >>> _ = weight.assign(3.0)  # as loading weights does
            >>> averages.reset()
            >>> float(averages.variables[0])
            3.0
        """
        self._check_not_swapped("reset")
        for source, average in zip(self._sources, self._averages):
            average.assign(_value(source, average.dtype))

    def adopt(self):
        """Gives every variable the value of its average, for good.

        Raises:
            RuntimeError: If the averages are swapped in.

        Example:
            >>> weight = keras.Variable(0.0)
            >>> averages = WeightAverages([weight])
            >>> _ = weight.assign(3.0)
            >>> averages.adopt()
            >>> float(weight), float(averages.variables[0])
            (0.0, 0.0)
        """
        self._check_not_swapped("adopt")
        for source, average in zip(self._sources, self._averages):
            source.assign(_value(average, source.dtype))

    def swap(self):
        """Exchanges the values of variables and averages, exactly.

        The second call undoes the first. `swapped` is the safer form.

        Example:
            >>> weight = keras.Variable(0.0)
            >>> averages = WeightAverages([weight])
            >>> _ = weight.assign(3.0)
            >>> averages.swap()
            >>> float(weight), float(averages.variables[0])
            (0.0, 3.0)
            >>> averages.swap()
            >>> float(weight), float(averages.variables[0])
            (3.0, 0.0)
        """
        if self.is_swapped:
            self.restore()
            return
        sources, averages = _values(self._sources), _values(self._averages)
        # From here on `restore` can undo the exchange, however far it comes.
        self._held = (sources, averages)
        _assign(self._sources, averages)
        _assign(self._averages, sources)

    def restore(self):
        """Puts the variables' own values back if the averages are swapped in.

        It does nothing otherwise, so it may be called at any time; if it is
        interrupted, call it again.

        Example:
            >>> weight = keras.Variable(0.0)
            >>> averages = WeightAverages([weight])
            >>> averages.swap()
            >>> averages.restore()
            >>> averages.restore()
            >>> averages.is_swapped
            False
        """
        if not self.is_swapped:
            return
        sources, averages = self._held
        _assign(self._sources, sources)
        _assign(self._averages, averages)
        self._held = None

    @contextlib.contextmanager
    def swapped(self):
        """Context in which the variables hold the averages.

        The variables' own values come back at the end of the block, also when
        it raises. Inside of another such block it changes nothing.

        Example:
            >>> averages = WeightAverages([keras.Variable(0.0)])
            >>> with averages.swapped():
            ...     print(averages.is_swapped)
            True
            >>> averages.is_swapped
            False
        """
        if self.is_swapped:
            yield
            return
        try:
            self.swap()
            yield
        finally:
            self.restore()

    def require_restored(self, caller):
        """Raises RuntimeError while the weights are swapped for their averages.

        Args:
            caller: string, what needs the weights themselves, for the message.

        Example:
            >>> averages = WeightAverages([keras.Variable(0.0)])
            >>> averages.require_restored("write_archive")
        """
        if self.is_swapped:
            raise InvalidStateError(
                f"`{caller}` was called while the weights of the model are swapped "
                "for their averages: call `model.averages.restore()` before it."
            )

    def _check_not_swapped(self, method):
        if self.is_swapped:
            raise InvalidStateError(
                f"`WeightAverages.{method}` was called while the variables hold "
                "the averages, where it would mistake them for the weights in "
                "training: call `restore()` before it."
            )


def _average_of(variable):
    """A float32 (or float64) variable that starts with `variable`'s value."""
    if "float" not in variable.dtype:
        raise InvalidValueError(
            "`WeightAverages` averages floating-point variables only. "
            f"Received: {variable.path!r} of dtype {variable.dtype}"
        )
    # In 16 bits an average would stand still: 1 - decay is below epsilon.
    dtype = "float64" if variable.dtype == "float64" else "float32"
    return keras.Variable(
        # A function, because a model may be built in a stateless scope.
        # A copy, because torch would share the variable's memory.
        lambda shape, dtype: ops.copy(_value(variable, dtype)),
        shape=variable.shape,
        dtype=dtype,
        trainable=False,
        autocast=False,
        aggregation="only_first_replica",  # replicas hold equal weights
        name="average_" + variable.path.replace("/", "_"),
    )


def _value(variable, dtype):
    return ops.cast(ops.stop_gradient(variable.value), dtype)


def _values(variables):
    # Copies: torch's arrays share memory with the variable, and a compiled
    # step of JAX may take over the variable's own buffer.
    return [np.array(ops.convert_to_numpy(v)) for v in variables]


def _assign(variables, values):
    for variable, value in zip(variables, values):
        variable.assign(ops.cast(value, variable.dtype))
