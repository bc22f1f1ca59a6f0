"""Name maps: a mapping from arrays of a file to weights of a model, by their names.

They are for files of EfficientDet's network whose arrays have other names, and for
loading only some arrays of a file. Everything else about a file, such as the order of
axes, is as for other files of its format.
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

_SHOWN = 3  # the number of example names in an error


class NameMap:
    """Maps names of arrays in a file to names of weights.

    Args:
        names: dict of strings. A key is the name of an array in the file, or a regular
            expression that matches whole names. An exact name takes precedence over
            expressions, and an earlier expression over a later one. A value is the name
            of a weight of the model, as in google/automl's checkpoints or as the
            weight's `path`. For an expression, it may refer to groups, such as `\\1`.

    Raises:
        TypeError: If `names` is not a dict of strings.

    Example:
        >>> name_map = NameMap({r"my_(.*)_bias": r"\\1_net/\\1-predict/bias"})
        >>> name_map.targets(["my_box_bias", "other"], "file.h5")
        {'my_box_bias': 'box_net/box-predict/bias'}
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        if not isinstance(names, Mapping):
            raise InvalidTypeError(
                "`name_map` must be a dict from names of arrays in the file to names "
                f"of the model's weights. Received: name_map={names!r}"
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
                # A key that is an exact name, such as "a[0", need not be a valid
                # expression.
                self._expressions[key] = error

    def targets(self, names: Any, path: str) -> dict[str, str]:
        """Returns a dict from each mapped name in a file to the name of its weight.

        Args:
            names: iterable of strings, the names of all arrays in the file.
            path: string, path of the file, for messages.

        Raises:
            ValueError: If a key matches no name, also because it is not a valid
                expression; if a value refers to a group that its key does not have; or
                if two names get the same weight.
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
                    f"`name_map` maps both {by_target[target]!r} and {name!r} of "
                    f"'{path}' to the same weight {target!r}."
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
                f"`name_map` has the entry {key!r}: {target!r}, whose value cannot be "
                f"built from the groups of the expression before it ({error})."
            ) from error

    def _refuse_unused(self, key, names, path):
        expression = self._expressions[key]
        if isinstance(expression, re.error):
            reason = (
                f", and which is not a valid regular expression either ({expression})"
            )
        else:
            reason = ", neither as a name nor as a regular expression for a whole name"
        raise InvalidValueError(
            f"`name_map` has the key {key!r}, which matches no array of "
            f"'{path}'{reason}.{hint(key, names)} The file has {len(names):,} arrays, "
            f"such as {', '.join(map(repr, names[:_SHOWN]))}."
        )


def _normalised(name):
    """Converts the path of a weight to its name in `NetworkArray`; keeps such names."""
    return tf1_name(types.SimpleNamespace(path=name))


@dataclasses.dataclass(frozen=True)
class RawArrays:
    """All arrays of a file of any format, by their names in the file."""

    path: str
    arrays: dict[str, np.ndarray]
    is_torch: bool  # whether the axes are in torch's order

    def with_mapped_names(
        self, source: WeightSource | None, names: Mapping[str, str]
    ) -> WeightSource:
        """Returns a source in which the arrays of a name map are assigned to weights.

        `source` is the result of the reader for the kind of file, or None if that
        reader found no network. The map may use the names of that reader, which
        `inspect-weights` shows, or the names in the file.
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
    """Reads the arrays of a file of any network."""
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
    # The dtype kind of ml_dtypes' bfloat16 is "V".
    floats = {n: array for n, array in arrays.items() if array.dtype.kind in "fV"}
    return {n: np.asarray(array, "float32") for n, array in floats.items()}, True


def _is_keras_archive(path):
    if not zipfile.is_zipfile(path):
        return False
    with open_zip(path) as archive:
        return WEIGHTS_ENTRY in archive.namelist()
