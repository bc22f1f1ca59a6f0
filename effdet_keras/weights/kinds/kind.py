"""What a kind of weights file tells of itself: a name, how it is known, its reader."""

import collections.abc
import dataclasses
import pathlib


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
    """

    title: str
    is_of: collections.abc.Callable[[pathlib.Path, bytes], bool]
    read: collections.abc.Callable
