"""The second set of arrays that batch norms have in adversarial training."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import keras
from keras import ops

from effdet_keras.errors import InvalidValueError
from effdet_keras.layers.other_arrays import BatchNormArrays, batch_norms_with

AUXILIARY = "auxiliary:"  # in files, before the path of the variable that is doubled
_TRAINED, _MOVED = ("gamma", "beta"), ("moving_mean", "moving_variance")


class AuxiliaryNorms:
    """Copies of the arrays of batch norms, which train and move by themselves.

    They are no weights of the model, as moving averages are none: nothing that uses,
    exports or counts these sees them. The optimizer has them, and files of the model
    keep them for the training that goes on.

    Args:
        batch_norms: list of `BatchNormalization`, built. Frozen ones get no copies.

    Example:
        >>> from effdet_keras.layers import BatchNormalization
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
        """The context of forward and backward passes of adversarial images.

        Args:
            moving: bool, whether a forward pass moves the statistics.
        """
        return batch_norms_with(
            {
                bn: dataclasses.replace(arrays, are_moved=moving)
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
        """Reads what `save` wrote; returns whether there was something.

        Raises:
            ValueError: If the file has copies of other batch norms.
        """
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
