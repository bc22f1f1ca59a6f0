"""What a reader finds in a file of weights: named arrays, in the file's own names."""

from __future__ import annotations

import collections.abc
import dataclasses
import pathlib

import numpy as np


@dataclasses.dataclass(frozen=True)
class WeightSource:
    """The weights in a file, before they are matched with a network.

    Attributes:
        path: string, the file or checkpoint prefix, for messages.
        kind: string, what it is, in words: "PyTorch effdet state dict".
        scheme: one of the schemes of `network_arrays`: whose names `arrays` has.
        arrays: dict of name to NumPy array, in the layout of the file. Where the
            file holds moving averages and they were asked for, a weight's array
            is its average.
        num_averages: int, how many of `arrays` are moving averages.
        others: tuple of strings, names of what is in the file but no weight of a
            network: optimizer slots, step counters, random state.
        class_names, category_ids: tuples with one entry per label, or None where the
            file does not tell.
        config: dict of the fields of `EfficientDetConfig` that the file tells, or None.
        postprocess: dict of the fields of `Postprocess` that the file tells, or None.
        notes: tuple of strings, what else the user should know.

    Example:
        >>> arrays = {"backbone.bn1.bias": np.ones(32)}
        >>> source = WeightSource("d0.pth", "state dict", "torch-effdet", arrays)
        >>> source.num_averages, source.class_names
        (0, None)
    """

    path: str
    kind: str
    scheme: str
    arrays: dict[str, np.ndarray]
    num_averages: int = 0
    others: tuple = ()
    class_names: tuple | None = None
    category_ids: tuple | None = None
    config: dict | None = None
    postprocess: dict | None = None
    notes: tuple = ()


# --- What a kind of weights file tells of itself: a name, how it is known, its reader.


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of weights file.

    Attributes:
        title: string, what users know it by, for the message that lists all kinds.
        is_of: function of a path and the file's first bytes to bool, whether the
            file is of this kind. The path of a TensorFlow checkpoint is a prefix,
            of which there may be no file: then there are no bytes.
        read: function of a path and of `averages` to `WeightSource`; `averages` is
            a bool, whether to take moving averages where the file has any.
        options: tuple of strings, names of further arguments of `read`, out of those
            of `open_weights`.
    """

    title: str
    is_of: collections.abc.Callable[[pathlib.Path, bytes], bool]
    read: collections.abc.Callable
    options: tuple[str, ...] = ()
