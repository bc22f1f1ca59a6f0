"""AdvProp: how training images are attacked, and the batch norms these have."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any

import keras
from keras import ops

from effdet_keras.errors import InvalidTypeError, InvalidValueError
from effdet_keras.model.batch_norm import BatchNormArrays, batch_norms_with

_LOSSES = ("max", "both", "class", "box")


@keras.saving.register_keras_serializable(package="effdet_keras")
@dataclasses.dataclass(frozen=True)
class AdvProp:
    """Trains on adversarial images, with batch norms of their own, beside clean ones.

    AdvProp (https://arxiv.org/abs/1911.09665), for detectors Det-AdvProp
    (https://arxiv.org/abs/2103.13886). Each step adds noise to its images `x` that
    raises a loss `L`, at most `epsilon` per pixel: from `x_0 = x`, `num_steps` times

        x_k+1 = clip(x_k + step_size * sign(dL / dx_k), x - epsilon, x + epsilon)

    and within 0 to 255. The step then minimizes the loss of the clean images plus the
    loss of the adversarial ones. All weights see both, except that batch norms have
    a second scale, offset, mean and variance, which adversarial images use: these are
    distributed otherwise, and are there to teach, not to be detected in. Evaluation,
    `detect` and exports have the batch norms of clean images alone. Frozen batch norms
    have no second set, and serve both.

    Args:
        epsilon: float above 0, the largest change of a value of a pixel, of 0-255.
        num_steps: int, 1 or above; each costs a forward and a backward pass.
        step_size: float above 0; None is `epsilon / num_steps`.
        random_start: bool, whether `x_0` is `x` with uniform noise up to `epsilon`.
        loss: `L`. "max" attacks each image twice, by its class loss and by its box
            losses, and trains on the one of the two whose whole loss is larger, as
            Det-AdvProp does; "class" and "box" take one of them, "both" the whole
            loss, as AdvProp does.

    Raises:
        ValueError, TypeError: If a field has a value that cannot be right.

    Example:
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> model = EfficientDet.from_preset("efficientdet-lite0", image_size=64)
        >>> model.compile(adversarial=AdvProp(epsilon=4.0, num_steps=2, loss="both"))
        >>> model.settings.recipe.adversarial.change_per_step
        2.0
    """

    epsilon: float = 1.0
    num_steps: int = 1
    step_size: float | None = None
    random_start: bool = False
    loss: str = "max"

    def __post_init__(self) -> None:
        _check_above_zero("epsilon", self.epsilon)
        if self.step_size is not None:
            _check_above_zero("step_size", self.step_size)
        is_whole = isinstance(self.num_steps, numbers.Integral)
        if not is_whole or isinstance(self.num_steps, bool) or self.num_steps < 1:
            raise InvalidValueError(
                "`num_steps` of `AdvProp` must be a whole number of at least 1. "
                f"Received: num_steps={self.num_steps!r}"
            )
        if not isinstance(self.random_start, bool):
            raise InvalidTypeError(
                "`random_start` of `AdvProp` must be True or False. "
                f"Received: random_start={self.random_start!r}"
            )
        if self.loss not in _LOSSES:
            raise InvalidValueError(
                f"`loss` of `AdvProp` must be one of {', '.join(map(repr, _LOSSES))}. "
                f"Received: loss={self.loss!r}"
            )

    @property
    def change_per_step(self) -> float:
        """The change of a value in one step of the attack."""
        return self.step_size or self.epsilon / self.num_steps

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments.

        Example:
            >>> AdvProp.from_config(AdvProp(epsilon=2.0).get_config()).epsilon
            2.0
        """
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> AdvProp:
        """Makes one of what `get_config` returned.

        Example:
            >>> AdvProp.from_config({"num_steps": 3}).num_steps
            3
        """
        return cls(**config)


def needs_tensorflow(backend: str) -> InvalidValueError:
    """The error of a backend that cannot train with an `AdvProp`."""
    return InvalidValueError(
        "`adversarial` trains on TensorFlow alone: set KERAS_BACKEND=tensorflow before "
        f"Keras is imported, or leave it out. Keras runs on {backend!r}."
    )


def _check_above_zero(name, value):
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not 0 < value < math.inf:
        raise InvalidValueError(
            f"`{name}` of `AdvProp` must be a number above 0, of a pixel's 0-255. "
            f"Received: {name}={value!r}"
        )


# --- The second set of arrays that batch norms have in adversarial training.

AUXILIARY = "auxiliary:"  # in files, before the path of the variable that is doubled
_TRAINED, _MOVED = ("gamma", "beta"), ("moving_mean", "moving_variance")


class AuxiliaryNorms:
    """Copies of the arrays of batch norms, which train and move by themselves.

    They are no weights of the model, as moving averages are none: nothing that uses,
    exports or counts these sees them. The optimizer has them, and files of the model
    keep them for the training that goes on.

    Example:
        >>> from effdet_keras.model.batch_norm import BatchNormalization
        >>> layer = BatchNormalization()
        >>> layer.build((None, 1, 1, 2))
        >>> norms = AuxiliaryNorms([layer])
        >>> len(norms.trainable_variables), len(norms.statistics), len(layer.weights)
        (2, 2, 4)
    """

    def __init__(self, batch_norms: Iterable[Any]) -> None:
        self._arrays = {
            bn: BatchNormArrays(
                **{name: _copy(getattr(bn, name)) for name in (*_TRAINED, *_MOVED)}
            )
            for bn in batch_norms
            if bn.trainable
        }

    @property
    def variables(self) -> list[keras.Variable]:
        """All copies, in the order of `sources`."""
        return [copy for _, copy in self._pairs(*_TRAINED, *_MOVED)]

    @property
    def sources(self) -> list[keras.Variable]:
        """The batch norms' own variables that have a copy."""
        return [source for source, _ in self._pairs(*_TRAINED, *_MOVED)]

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        """The copies of scales and offsets that train."""
        return [copy for _, copy in self._pairs(*_TRAINED) if copy.trainable]

    @property
    def trainable_sources(self) -> list[keras.Variable]:
        """The batch norms' own of `trainable_variables`, in the same order."""
        return [source for source, copy in self._pairs(*_TRAINED) if copy.trainable]

    @property
    def statistics(self) -> list[keras.Variable]:
        """The copies of moving means and variances."""
        return [copy for _, copy in self._pairs(*_MOVED)]

    def in_place(self, *, moving: bool) -> contextlib.AbstractContextManager:
        """The context of forward and backward passes of adversarial images."""
        return batch_norms_with(
            {
                bn: arrays._replace(are_moved=moving)
                for bn, arrays in self._arrays.items()
            }
        )

    def reset(self) -> None:
        """Starts anew from what the batch norms hold, as after loading weights."""
        for source, copy in self._pairs(*_TRAINED, *_MOVED):
            copy.assign(ops.copy(source.value))

    def save(self, store: Any) -> None:
        """Writes all copies under the paths of their sources."""
        for source, copy in self._pairs(*_TRAINED, *_MOVED):
            store[_key(source)] = ops.convert_to_numpy(copy)

    def load(self, store: Mapping[str, Any]) -> bool:
        """Reads what `save` wrote; returns whether there was something."""
        names = set(store.keys())  # the store of a `.weights.h5` is no dict
        found = {name for name in names if name.startswith(AUXILIARY)}
        if not found:
            return False
        if {_key(source) for source in self.sources} != found:
            raise InvalidValueError(
                f"The file holds {len(found)} arrays of auxiliary batch norms, this "
                f"model {len(self.sources)}: it was compiled with other frozen batch "
                "norms. Compile it as it was when the file was written."
            )
        for source, copy in self._pairs(*_TRAINED, *_MOVED):
            copy.assign(store[_key(source)])
        return True

    def _pairs(self, *names):
        return [
            (getattr(bn, name), getattr(arrays, name))
            for bn, arrays in self._arrays.items()
            for name in names
        ]


def _copy(variable):
    return keras.Variable(
        # A function, because a model may be built in a stateless scope.
        lambda shape, dtype: ops.copy(ops.stop_gradient(variable.value)),
        shape=variable.shape,
        dtype=variable.dtype,
        trainable=variable.trainable,
        autocast=False,
        name="auxiliary_" + variable.path.replace("/", "_"),
    )


def _key(source):
    return AUXILIARY + source.path.replace("/", ":")
