"""A name map: which arrays of a file are which weights of a model, by their names.

For files of EfficientDet's network whose arrays were renamed, or of which some arrays
alone are wanted. Everything else about a file, such as the order of axes, is as for
other files of its format.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import types
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from effdet_keras._internal.unpacking import open_zip
from effdet_keras.errors import InvalidTypeError, InvalidValueError, hint
from effdet_keras.weights.archive import WEIGHTS_ENTRY
from effdet_keras.weights.kinds import automl, keras_h5, torch_state_dict
from effdet_keras.weights.kinds.torch_files import read_torch_file
from effdet_keras.weights.network_arrays import TF1, WeightSource, tf1_name

_SHOWN = 3  # names of a file in an error


class NameMap:
    """Names of arrays in a file, exact or as regular expressions, to those of weights.

    Args:
        names: dict of strings. A key is the name of an array in the file, or a regular
            expression that matches the whole of such names; exact names count first,
            then expressions in their order. A value is the name of a weight of the
            model, as in google/automl's checkpoints or as the weight's `path`; of an
            expression it may have groups, such as `\\1`.

    Raises:
        TypeError: If a name is no string.
        ValueError: If a key that is meant as an expression is none.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        if not isinstance(names, Mapping):
            raise InvalidTypeError(
                "`name_map` must be a dict from names in the file to names of weights. "
                f"Received: name_map={names!r}"
            )
        self._names, self._expressions = dict(names), {}
        for key, value in names.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise InvalidTypeError(
                    "`name_map` must be a dict from strings to strings. Received: "
                    f"{key!r}: {value!r}"
                )
            try:
                self._expressions[key] = re.compile(key)
            except re.error as error:
                # An exact name need not be an expression: "a[0" is a fine one.
                self._expressions[key] = error

    def targets(self, names: Any, path: str) -> dict[str, str]:
        """For the names in a file that are mapped, the name of the weight.

        Raises:
            ValueError: If a key matches no name, or two names get the same weight.
        """
        found, unused = {}, set(self._names)
        for name in names:
            key = self._key_of(name)
            if key is not None:
                unused.discard(key)
                found[name] = _normalised(self._target(key, name))
        for key in self._names:
            if key in unused:
                self._refuse_unused(key, list(names), path)
        by_target: dict[str, str] = {}
        for name, target in found.items():
            if target in by_target:
                raise InvalidValueError(
                    f"`name_map` gives {by_target[target]!r} and {name!r} of '{path}' "
                    f"the same weight {target!r}."
                )
            by_target[target] = name
        return found

    def _key_of(self, name):
        if name in self._names:
            return name
        for key, expression in self._expressions.items():
            if isinstance(expression, re.Pattern) and expression.fullmatch(name):
                return key
        return None

    def _target(self, key, name):
        target = self._names[key]
        if key == name:
            return target
        try:
            return self._expressions[key].fullmatch(name).expand(target)
        except (re.error, IndexError) as error:
            raise InvalidValueError(
                f"`name_map` has {key!r}: {target!r}, whose second part is not made of "
                f"groups of the first ({error})."
            ) from error

    def _refuse_unused(self, key, names, path):
        expression = self._expressions[key]
        if isinstance(expression, re.error):
            reason = f", and it is no regular expression either ({expression})"
        else:
            reason = ", neither as a name nor as a regular expression of a whole name"
        raise InvalidValueError(
            f"`name_map` has {key!r}, which matches no array of '{path}'{reason}."
            f"{hint(key, names)} The file has {len(names):,} arrays, such as "
            f"{', '.join(map(repr, names[:_SHOWN]))}."
        )


def _normalised(name):
    """The name of a weight as `NetworkArray` has it; it may be the weight's path."""
    return tf1_name(types.SimpleNamespace(path=name))


@dataclasses.dataclass(frozen=True)
class RawArrays:
    """All arrays of a file of any format, by their own names."""

    path: str
    arrays: dict[str, np.ndarray]
    is_torch: bool  # whether their axes have torch's order

    def with_mapped_names(
        self, source: WeightSource | None, names: Mapping[str, str]
    ) -> WeightSource:
        """A source with those arrays that a name map names.

        `source` is what the reader of the file's kind found, or None where it found no
        network. The map may name arrays as that reader does, as `inspect-weights`
        shows them, or as they are in the file.
        """
        if source is None:
            scheme = torch_state_dict.TORCH if self.is_torch else TF1
            kind, others = "arrays by their names", tuple(self.arrays)
            source = WeightSource(self.path, kind, scheme, arrays={}, others=others)
        arrays = {**self.arrays, **source.arrays}
        targets = NameMap(names).targets(arrays, source.path)
        return dataclasses.replace(
            source,
            mapped={target: (n, arrays[n]) for n, target in targets.items()},
            arrays={n: a for n, a in source.arrays.items() if n not in targets},
            others=tuple(name for name in source.others if name not in targets),
        )


def read_raw_arrays(path: pathlib.Path, averages: bool = True) -> RawArrays:
    """Reads the arrays of a file, whatever network they are of."""
    return RawArrays(str(path), *_raw_arrays(path, averages))


def _raw_arrays(path, averages):
    if automl.KIND.is_of(path, b""):
        return automl.read_raw_arrays(path, averages), False
    with open(path, "rb") as file:
        head = file.read(len(keras_h5.HDF5_MAGIC))
    if head == keras_h5.HDF5_MAGIC:
        return keras_h5.read_h5_arrays(path, path, lambda name: True)[0], False
    if _is_keras_archive(path):
        with open_zip(path) as archive, archive.open(WEIGHTS_ENTRY) as entry:
            return keras_h5.read_h5_arrays(entry, path, lambda name: True)[0], False
    content = read_torch_file(path)
    arrays = {n: value for n, value in content.items() if isinstance(value, np.ndarray)}
    # ml_dtypes' bfloat16 is "V".
    floats = {n: array for n, array in arrays.items() if array.dtype.kind in "fV"}
    return {n: np.asarray(array, "float32") for n, array in floats.items()}, True


def _is_keras_archive(path):
    if not zipfile.is_zipfile(path):
        return False
    with open_zip(path) as archive:
        return WEIGHTS_ENTRY in archive.namelist()
