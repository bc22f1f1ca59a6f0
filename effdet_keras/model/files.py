"""How a model's weights lie in Keras' files, with what is kept beside them."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from effdet_keras._internal.weights_h5 import (
    ENDING,
    check_weights_h5,
    warn_unless_finite,
    write_weights_h5,
)
from effdet_keras._internal.whole_files import atomic_write, is_remote
from effdet_keras.errors import InvalidValueError, require


class ModelFiles:
    """Saving and loading of `EfficientDet` by Keras' own methods, as a mix-in.

    Files have the moving averages as the weights, and beside them the weights of
    training, and what quantization-aware and adversarial training need to resume.
    """

    _loaded: Sequence[Any] = ()  # of `_kept_beside`, what the last file had

    def save(
        self,
        filepath: str | os.PathLike,
        overwrite: bool = True,
        zipped: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Saves the model as Keras does, with averages and weights of training.

        A `.keras` file is written atomically: where it fails, an older one stays.

        Raises:
            ValueError: If the path does not end in `.keras`.
        """
        rule = (
            "HDF5 files do not hold a whole model with its training. Save it as "
            "'model.keras', or its weights by `save_weights('model.weights.h5')`"
        )
        is_hdf5 = str(filepath).endswith((".h5", ".hdf5"))
        require(not is_hdf5, rule, filepath=str(filepath))
        save = functools.partial(
            super().save, overwrite=overwrite, zipped=zipped, **kwargs
        )
        is_one_file = str(filepath).endswith(".keras") and not is_remote(filepath)
        is_one_file = is_one_file and zipped is not False
        with self._averages_in_place():
            if is_one_file and (overwrite or not os.path.exists(filepath)):
                with atomic_write(filepath) as partial:
                    save(partial)
            else:
                save(filepath)

    def save_weights(
        self, filepath: str | os.PathLike, overwrite: bool = True, **kwargs: Any
    ) -> None:
        """Saves the weights as Keras does, with averages and weights of training.

        A `.weights.h5` is written atomically, with a checksum: loading it raises where
        a byte of it has changed.
        """
        save = functools.partial(super().save_weights, overwrite=overwrite, **kwargs)
        is_one_file = str(filepath).endswith(ENDING) and not is_remote(filepath)
        with self._averages_in_place():
            if is_one_file and (overwrite or not os.path.exists(filepath)):
                write_weights_h5(filepath, save, self._saved_variables())
            else:
                save(filepath)

    def load_weights(
        self, filepath: str | os.PathLike, skip_mismatch: bool = False, **kwargs: Any
    ) -> None:
        """Loads weights as Keras does; averages that the file lacks start again.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If its weights are of other shapes than the model's, for
                instance of another `num_classes`, and `skip_mismatch` is False; or if
                the file is damaged. Model and optimizer are then as before.
        """
        if os.path.isfile(filepath):
            check_weights_h5(filepath)
        self._loaded = []
        try:
            with self._unchanged_by_errors():
                super().load_weights(filepath, skip_mismatch=skip_mismatch, **kwargs)
        except ValueError as error:
            if "could not be loaded" not in str(error):
                raise
            raise InvalidValueError(
                f"The weights in {str(filepath)!r} do not fit the model, which has "
                f"`num_classes` {self.config.num_classes}. Make it with the class "
                "count and config of the file, or pass `skip_mismatch=True` to leave "
                f"what does not fit as it is. Keras says: {error}"
            ) from error
        self.score_settings = None  # an evaluation of other weights chose them
        warn_unless_finite(self, filepath)
        for kept in self._kept_beside():
            if kept not in self._loaded:
                kept.reset()
            elif kept is self.averages:
                kept.finish_load()

    def save_own_variables(self, store: Any) -> None:
        """Writes what is kept beside the weights; Keras calls it."""
        for kept in self._kept_beside():
            kept.save(store)

    def load_own_variables(self, store: Any) -> None:
        """Reads what `save_own_variables` wrote."""
        self._loaded = [kept for kept in self._kept_beside() if kept.load(store)]
        self.pretrained = "detector"
        self.loaded_classes = None  # an earlier file's, which these replace

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Sets all weights; training and its averages both start from them.

        What else is kept beside the weights stays, as the ranges of quantization-aware
        training: the weights may be earlier ones of the same training, which
        `EarlyStopping` restores.
        """
        super().set_weights(weights)
        if self.averages is not None:
            self.averages.reset()

    def weights_were_set(self) -> None:
        """Starts again from them what is kept beside the weights."""
        for kept in self._kept_beside():
            kept.reset()

    def _kept_beside(self):
        """What files keep besides variables of the model and of the optimizer."""
        owners = [
            self.averages,
            self.quantization,
            self.adversarial,
            self.moving_normalizer,
        ]
        return [owner for owner in owners if owner is not None]

    def _saved_variables(self):
        optimizer = getattr(self, "optimizer", None)
        optimizers = [] if optimizer is None else [optimizer]
        owners = [self, *optimizers, *self._kept_beside()]
        return [variable for owner in owners for variable in owner.variables]

    def _averages_in_place(self):
        if self.averages is None:
            return contextlib.nullcontext()
        return self.averages.swapped()

    @contextlib.contextmanager
    def _unchanged_by_errors(self) -> Iterator[None]:
        """Puts all weights, averages and the optimizer back where the block raises."""
        variables = self._saved_variables()
        values = [np.array(ops.convert_to_numpy(v)) for v in variables]
        start = self.pretrained, self.loaded_classes
        state = None if self.averages is None else self.averages.state
        try:
            yield
        except BaseException:
            for variable, value in zip(variables, values):
                variable.assign(value)
            self.pretrained, self.loaded_classes = start
            if state is not None:
                self.averages.state = state
            raise
