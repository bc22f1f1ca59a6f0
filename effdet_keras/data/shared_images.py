"""Images that two splits share: what was trained on is no evidence of anything."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

import numpy as np

from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.record import Record


def shared_images(first: Sequence[Record], second: Sequence[Record]) -> list[int]:
    """The places in `second` of images that are in `first` as well.

    These are the same file, the same part of a TFRecord file, the same array, or a copy
    of a file: the same name and the same bytes. Copies under another name are found by
    `effdet-keras inspect`, which reads every image.

    Args:
        first, second: records, as `dataset.records` has them.

    Example:
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> image = np.zeros((32, 48, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
        >>> shared_images(dataset.records, dataset.records)
        [0]
    """
    folders = {}
    keys = {_key(record.image, folders) for record in first}
    found = [i for i, r in enumerate(second) if _key(r.image, folders) in keys]
    copies = _copies(first, second)
    return sorted({*found, *copies})


def _key(image, folders):
    """What equal images share: a path without links of folders, or the image itself."""
    if isinstance(image, np.ndarray):
        return id(image)
    if not isinstance(image, str) or is_remote(image):
        return image  # an `EncodedImage`, which compares by its place; an address
    folder, name = os.path.split(image)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    return folders[folder], name


def _copies(first, second):
    """The places in `second` of files with the name and the bytes of one of `first`."""
    by_name = {}
    for record in first:
        if isinstance(record.image, str) and not is_remote(record.image):
            by_name.setdefault(os.path.basename(record.image), []).append(record.image)
    for i, record in enumerate(second):
        if not isinstance(record.image, str) or is_remote(record.image):
            continue
        others = by_name.get(os.path.basename(record.image), ())
        if any(is_copy(record.image, other) for other in others):
            yield i


def is_copy(one: str, other: str) -> bool:
    """Whether two paths are one file, or files of the same bytes."""
    if one == other:
        return True  # without reading it
    try:
        if os.path.getsize(one) != os.path.getsize(other):
            return False
        return _digest(one) == _digest(other)
    except OSError:
        return False


def _digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()
