"""What only sometimes takes part in a training step: `Part`, and the core's own.

With `accumulate_steps` N, N steps, each a batch, make one update of the weights.
Schedules, checkpoints and the warm-up of statistics count steps, averages updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops


class Part:
    """Takes part in the training steps of a model that has it in `parts`, by name.

    A step calls the methods in their order here. By itself a part changes nothing:
    one overrides those that it needs, and declares the variables that it has.

    Args:
        variables: what it keeps in files, beside the weights of the model.
        trainable_variables: those of them that the optimizer moves.
        statistics: statistics of batch norm, which forward passes move.
        moved: other numbers that forward passes move. A refused batch moves neither.
        carried: what the loss leaves for the update; a step of JAX has to carry it.
    """

    logs: tuple[str, ...] = ()  # names of losses that `fit` logs of it

    def __init__(
        self,
        *,
        variables: Sequence[keras.Variable] = (),
        trainable_variables: Sequence[keras.Variable] = (),
        statistics: Sequence[keras.Variable] = (),
        moved: Sequence[keras.Variable] = (),
        carried: Sequence[keras.Variable] = (),
    ) -> None:
        self.variables = variables
        self.trainable_variables = trainable_variables
        self.statistics = statistics
        self.moved = moved
        self.carried = carried

    def call(self, run: Callable[[], Any], training: bool) -> Any:
        """The network's outputs, in place of `run()`; in evaluation as well."""
        return run()

    def normalizer(self, num_positives: Any, rule: Callable) -> Any:
        """The `normalizer` of `DetectionLoss` in a training step; None for its own."""
        return None

    def loss(self, truth: dict, outputs: dict) -> tuple[float, Any] | None:
        """One more term of the loss: its weight, and its value, logged as `logs[0]`."""
        return None

    def gradients(
        self, loss: Any, gradients: list, data: Any, step: Any
    ) -> tuple[Any, list]:
        """Loss and gradients of a batch, for those of `updated_variables()`."""
        return loss, gradients

    def together(self, gradients: list, scale: Any) -> list:
        """The gradients that are clipped; `scale` is that of the loss."""
        return gradients

    def settled(self, before: Any, after: Any, step: Any) -> Any:
        """The statistics of batch norm behind a step, as one vector."""
        return after

    def for_optimizer(
        self, gradients: list, clipped: list, *, step: Any, is_fine: Any
    ) -> list:
        """What the optimizer is given: `clipped`, made of the step's `gradients`."""
        return clipped

    def reset(self) -> None:
        """Starts again from the weights of the model, which were loaded."""

    def save(self, store: Any) -> None:
        """Writes `variables` into a file of weights."""

    def load(self, store: Any) -> bool:
        """Reads what `save` wrote; returns whether there was something."""
        return False


def steps_per_update(optimizer: keras.optimizers.Optimizer) -> int:
    """The number of steps whose gradients make one update of the weights."""
    return _inner(optimizer).gradient_accumulation_steps or 1


def step_counter(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """The variable that counts the steps of an optimizer."""
    return _inner(optimizer)._iterations  # `iterations` counts updates


def steps_done(optimizer: keras.optimizers.Optimizer) -> int:
    """The steps that an optimizer was given since it was made."""
    return int(ops.convert_to_numpy(step_counter(optimizer)))


class Accumulation(Part):
    """Makes N batches one: the update that all their images in one batch would give.

    The loss of a batch is divided by `P + 1`, of its `P` anchors that have something to
    predict. Here a batch `i` has the normalizer `n_i = P_i + 1 / N`, and its gradient
    the weight `n_i`:

        sum(n_i * gradient_i) / sum(n_i)

    is the gradient of one batch. What is clipped, and moves the weights, is this. The
    optimizer, which must be built, gets a variable for the sum of the `n_i`, so that
    checkpoints have it.
    """

    _SUM = "accumulated_anchors"

    def __init__(self, optimizer: Any, variables: list) -> None:
        self.count = steps_per_update(optimizer)
        inner = _inner(optimizer)
        self._sums = [
            inner._accumulated_gradients[inner._get_variable_index(variable)]
            for variable in variables
        ]
        made = [v for v in inner.variables if v.name == self._SUM]
        self._total = made[0] if made else inner.add_variable((), name=self._SUM)
        self._weight = new_number("batch_weight", 1.0)
        super().__init__(carried=[self._weight])

    def normalizer(self, num_positives: Any, rule: Callable) -> Any:
        """`n_i`: `rule` is given `N * P_i`, as if all batches were like this one."""
        value = rule(num_positives * self.count) / self.count
        self._weight.assign(value)
        return value

    def together(self, gradients: list, scale: Any) -> list:
        """The mean above, of the batches since the last update."""
        weight = ops.convert_to_tensor(self._weight)
        total = ops.convert_to_tensor(self._total) + weight
        own, before = weight / total, scale / total
        return [
            g * ops.cast(own, g.dtype) + ops.cast(s * before, g.dtype)
            for g, s in zip(gradients, self._sums)
        ]

    def for_optimizer(
        self, gradients: list, mean: list, *, step: Any, is_fine: Any
    ) -> list:
        """What makes the optimizer move the weights by the mean that was clipped."""
        # It adds up what it is given until the last step before an update, and divides
        # by the count: that step is given all of the mean, and nothing to add it to.
        is_last = (step + 1) % self.count == 0
        ends = ops.logical_and(is_last, is_fine)
        for variable in self._sums:
            value = ops.convert_to_tensor(variable)
            variable.assign(ops.where(ends, ops.zeros_like(value), value))
        weight = ops.convert_to_tensor(self._weight)
        total = ops.convert_to_tensor(self._total)
        more = ops.where(is_fine, total + weight, total)
        self._total.assign(ops.where(ends, ops.zeros_like(total), more))
        return [
            ops.where(is_last, m * self.count, g * ops.cast(weight, g.dtype))
            for g, m in zip(gradients, mean)
        ]


def _inner(optimizer):
    return getattr(optimizer, "inner_optimizer", optimizer)  # of a loss scale


def new_number(name: str, value: float = 0.0) -> keras.Variable:
    """A float32 variable of a part; replicas hold the same."""
    return keras.Variable(
        value,
        trainable=False,
        autocast=False,
        dtype="float32",
        aggregation="only_first_replica",
        name=name,
    )


class StatisticsWarmup(Part):
    """Gives batch-norm statistics a short memory in the first steps.

    A layer of momentum `m` moves a statistic `s` towards that of the batch, `b`, by
    `s + (1 - m) * (b - s)`: with 0.99 its first value still counts for a seventh after
    200 steps. This makes the momentum of step `k` (0-based), up to step 891,

        m_k = min(m, (1 + k) / (10 + k))

    as `WeightAverages` has it. It makes the change longer that a layer made.
    """

    def __init__(self, rate: np.ndarray) -> None:
        super().__init__()
        self.rate = rate  # `1 - m`, `[1]` or of each statistic of the model

    def settled(self, before: Any, after: Any, step: Any) -> Any:
        """What the statistics are after a step, with the momentum of that step."""
        # 1 - (1 + k) / (10 + k) without the loss of digits.
        rate = 9.0 / (10.0 + ops.cast(step, "float32"))
        own = self.rate
        if len(own) > 1:  # statistics of parts have the same
            own = np.resize(own, before.shape)
        factor = ops.maximum(rate / own, 1.0)
        # Where the factor is 1 the layers' own value stays, to the last bit.
        return ops.where(factor > 1.0, before + (after - before) * factor, after)


def joined(statistics: Sequence[Any]) -> Any:
    """All statistics in one vector: a step has 250, and each operation its price."""
    return ops.concatenate(list(statistics)) if statistics else ops.zeros((0,))


def parted(vector: Any, like: Sequence[Any]) -> list:
    """The vectors that were `joined`, of which `like` has the lengths."""
    ends = np.cumsum([v.shape[0] for v in like]).tolist()
    return ops.split(vector, ends[:-1]) if len(ends) > 1 else [vector]


def assign_parted(variables: Sequence[Any], vector: Any) -> None:
    """Gives variables the values that were `joined` of variables like them."""
    for variable, value in zip(variables, parted(vector, variables)):
        variable.assign(value)
