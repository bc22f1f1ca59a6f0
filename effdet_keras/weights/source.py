"""What a reader finds in a file of weights: named arrays, in the file's own names."""

from __future__ import annotations

import collections.abc
import dataclasses
import pathlib

import numpy as np

from effdet_keras.weights.network_arrays import Scheme


@dataclasses.dataclass(frozen=True)
class WeightSource:
    """The weights in a file, before they are matched with a network."""

    path: str  # the file or checkpoint prefix, for messages
    kind: str  # in words: "PyTorch effdet state dict"
    scheme: Scheme  # whose names `arrays` has
    # In the layout of the file; a moving average where the file has one and averages
    # were asked for.
    arrays: dict[str, np.ndarray]
    num_averages: int = 0  # how many of `arrays` are moving averages
    others: tuple = ()  # names of all else: optimizer slots, counters, random state
    class_names: tuple | None = None  # None where the file does not tell
    category_ids: tuple | None = None
    config: dict | None = None  # the fields of `EfficientDetConfig` that it tells
    postprocess: dict | None = None  # the fields of `Postprocess` that it tells
    notes: tuple = ()  # what else the user should know


# --- What a kind of weights file tells of itself: a name, how it is known, its reader.


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of weights file."""

    title: str  # what users know it by, for the message that lists all kinds
    # Of the path and the file's first bytes; the path of a TensorFlow checkpoint is a
    # prefix, of which there may be no file: then there are no bytes.
    is_of: collections.abc.Callable[[pathlib.Path, bytes], bool]
    # Of the path and of `averages`, whether to take moving averages where there are
    # any, to `WeightSource`.
    read: collections.abc.Callable
    options: tuple[str, ...] = ()  # further arguments of `read`: see `open_weights`
