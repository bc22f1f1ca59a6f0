"""Where a training is: what a checkpoint has to hold besides the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops


@dataclasses.dataclass(frozen=True)
class Place:
    """The place that a training goes on from, step by step as if it had not stopped.

    Args:
        epoch: int, epochs done.
        step: int, steps done of the epoch after these.
        steps: int, steps done in all, as the optimizer counts them.
        seconds: float, how long that epoch has taken so far.
        means: dict from the name of a metric to the values of its variables, from
            which the running means of that epoch go on.
        callbacks: dict from the name of a callback to what it remembers.
        is_stopped: bool, whether a callback has ended the training.
        seed: int, of the batches, where they are this package's; else None.

    Example:
        >>> place = Place(epoch=2, step=7, steps=47)
        >>> place == Place.from_dict(place.to_dict())
        True
        >>> str(place), str(Place(epoch=1, steps=20))
        ('step 7 of epoch 3', 'epoch 1')
    """

    epoch: int
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    means: Mapping[str, list] = dataclasses.field(default_factory=dict)
    callbacks: Mapping[str, dict] = dataclasses.field(default_factory=dict)
    is_stopped: bool = False
    seed: int | None = None

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Place:
        """Reads what `to_dict` gave; fields of a later version are left out."""
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: x for name, x in fields.items() if name in known})

    def to_dict(self) -> dict[str, Any]:
        """All fields, in types that JSON has."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        if self.step:
            return f"step {self.step} of epoch {self.epoch + 1}"
        return f"epoch {self.epoch}"


def place_in(info: Mapping[str, Any]) -> Place:
    """The place that the entry of an archive tells of.

    Args:
        info: dict of `read_archive_info`.
    """
    if "place" in info:
        return Place.from_dict(info["place"])
    return Place(epoch=int(info.get("epoch", 0)))  # of a version before


def means_of(metrics: list[keras.Metric]) -> dict[str, list]:
    """The values of the variables of metrics, by name.

    Example:
        >>> mean = keras.metrics.Mean(name="loss")
        >>> mean.update_state([1.0, 2.0])
        >>> means_of([mean])
        {'loss': [3.0, 2.0]}
    """
    return {
        metric.name: [ops.convert_to_numpy(v).tolist() for v in metric.variables]
        for metric in metrics
    }


def set_means(metrics: list[keras.Metric], means: Mapping[str, list]) -> None:
    """Gives metrics the values that `means_of` gave."""
    for metric in metrics:
        values = means.get(metric.name, [])
        if len(values) == len(metric.variables):
            for variable, value in zip(metric.variables, values):
                variable.assign(value)
