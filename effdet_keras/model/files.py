"""Saves and loads a model in Keras' file formats, with its averages and more."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from effdet_keras._internal.weights_h5 import (
    ENDING,
    check_weights_h5,
    damaged_hdf5,
    warn_unless_finite,
    write_weights_h5,
)
from effdet_keras._internal.whole_files import atomic_write, is_remote
from effdet_keras.errors import InvalidValueError, first_line, require
from effdet_keras.weights.archive import DamagedFileError


class ModelFiles:
    """Adds saving and loading of `EfficientDet` by Keras' own methods, as a mix-in.

    Files have the moving averages as the model's weights. They also have the raw
    weights, and the state that quantization-aware training, adversarial training and
    the moving loss normalizer need to resume.
    """

    _loaded: Sequence[Any] = ()  # those of `_kept_beside` that the last file had

    def save(
        self,
        filepath: str | os.PathLike,
        overwrite: bool = True,
        zipped: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Saves the model as Keras does, with averages and raw weights.

        A `.keras` file is written atomically: if writing fails, an older file is kept.

        Args:
            filepath: path of the file, such as "model.keras".
            overwrite, zipped, **kwargs: see `keras.Model.save`.

        Raises:
            ValueError: If the path is that of an HDF5 file, or does not end in
                `.keras`.
        """
        rule = (
            "An HDF5 file cannot store a whole model with the state of its training. "
            "Save the model as 'model.keras', or its weights alone with "
            "`save_weights('model.weights.h5')`"
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
        """Saves the weights as Keras does, with averages and raw weights.

        A `.weights.h5` file is written atomically, with a checksum. Loading it raises
        an error if a byte of it has changed.

        Args:
            filepath: path of the file, such as "model.weights.h5".
            overwrite, **kwargs: see `keras.Model.save_weights`.
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
        """Loads weights as Keras does.

        If the model has averages and the file has none, they start again from the
        loaded weights.

        Args:
            filepath: path of the file, such as "model.weights.h5".
            skip_mismatch, **kwargs: see `keras.Model.load_weights`.

        Raises:
            FileNotFoundError: If the file does not exist.
            ValueError: If its weights have other shapes than the model's, for instance
                those of another `num_classes`, and `skip_mismatch` is False; or if the
                file is damaged. Model and optimizer are then not changed.
        """
        if os.path.isfile(filepath):
            check_weights_h5(filepath)
        elif not is_remote(filepath) and not os.path.exists(filepath):
            path = os.fspath(filepath)
            raise FileNotFoundError(f"There is no file of weights '{path}'")
        elif str(filepath).endswith(".h5") and os.path.isdir(filepath):
            path = os.fspath(filepath)
            raise IsADirectoryError(errno.EISDIR, "A folder has this name", path)
        self._loaded = []
        try:
            with self._unchanged_by_errors():
                super().load_weights(filepath, skip_mismatch=skip_mismatch, **kwargs)
        except ValueError as error:
            if "could not be loaded" not in str(error):
                raise
            raise InvalidValueError(
                f"The weights in {str(filepath)!r} do not fit the model, whose "
                f"`num_classes` is {self.config.num_classes}. Make a model with the "
                "`num_classes` and the config of the file, or pass "
                "`skip_mismatch=True` to keep the model's own values where the file "
                f"does not fit. Keras says: {error}"
            ) from error
        except (OSError, zipfile.BadZipFile, zlib.error) as error:
            if getattr(error, "errno", None) is not None:
                raise  # the system cannot read the file, and the error names it
            is_zip = str(filepath).endswith(".keras")
            damaged = DamagedFileError if is_zip else damaged_hdf5
            raise damaged(filepath, first_line(error)) from error
        self.score_settings = None  # they were chosen for other weights
        warn_unless_finite(self, filepath)
        for kept in self._kept_beside():
            if kept not in self._loaded:
                kept.reset()
            elif kept is self.averages:
                kept.finish_load()

    def save_own_variables(self, store: Any) -> None:
        """Writes averages and other state besides the weights. Keras calls it."""
        for kept in self._kept_beside():
            kept.save(store)

    def load_own_variables(self, store: Any) -> None:
        """Reads what `save_own_variables` wrote. Keras calls it."""
        self._loaded = [kept for kept in self._kept_beside() if kept.load(store)]
        self.pretrained = "detector"
        self.loaded_classes = None  # they are those of an earlier file

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Sets all weights. Training and the averages both start from them.

        Other state, such as the ranges of quantization-aware training, is not reset:
        the weights may be earlier ones of the same training, as `EarlyStopping`
        restores them.

        Args:
            weights: list of arrays, in the order of `get_weights`.
        """
        super().set_weights(weights)
        if self.averages is not None:
            self.averages.reset()

    def weights_were_set(self) -> None:
        """Resets averages and other state besides the weights, after new weights."""
        for kept in self._kept_beside():
            kept.reset()

    def _kept_beside(self):
        """Returns the state in files besides variables of model and optimizer."""
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
        """Context that restores weights, averages and optimizer after an error."""
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
