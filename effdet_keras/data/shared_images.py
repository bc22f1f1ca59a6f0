"""Images that two splits share: what was trained on is no evidence of anything."""

from __future__ import annotations

import collections
import hashlib
import os
from collections.abc import Sequence

import numpy as np

from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.record import Record
from effdet_keras.images import EncodedImage


def shared_images(first: Sequence[Record], second: Sequence[Record]) -> list[int]:
    """The places in `second` of images that are in `first` as well.

    These are the same file, the same part of a TFRecord file, the same array, or a copy
    of a file, also within TFRecord files: the same name and the same bytes. Copies
    under another name are found by `effdet-keras inspect`, which reads every image.

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
    """The places in `second` of files with the name and the bytes of one of `first`.

    Each file is read once at most: one with the name and the size of another.
    """
    here, there = _files_by_name(first), _files_by_name(second)
    for name in here.keys() & there.keys():
        by_size, digests = collections.defaultdict(set), {}
        for image, _ in here[name]:
            by_size[_size(image)].add(image)
        for image, i in there[name]:
            size = _size(image)
            if size is None or size not in by_size:
                continue
            if size not in digests:
                digests[size] = set(map(_digest, by_size[size])) - {None}
            if _digest(image) in digests[size]:
                yield i


_MOST_OF_A_NAME = 100  # images inside larger files: more have none of their own


def _files_by_name(records):
    """`(image, place)` of each file, by its name without folders."""
    by_name, inside = collections.defaultdict(list), collections.defaultdict(list)
    for i, record in enumerate(records):
        if isinstance(record.image, EncodedImage):
            name = os.path.basename(record.file_name.replace("\\", "/"))
            inside[name].append((record.image, i))
        elif isinstance(record.image, str) and not is_remote(record.image):
            by_name[os.path.basename(record.image)].append((record.image, i))
    for name, images in inside.items():
        if name and len(images) <= _MOST_OF_A_NAME:
            by_name[name] += images
    return by_name


def is_copy(one: str, other: str) -> bool:
    """Whether two paths are one file, or files of the same bytes."""
    if one == other:
        return True  # without reading it
    size = _size(one)
    if size is None or size != _size(other):
        return False
    digest = _digest(one)
    return digest is not None and digest == _digest(other)


def _size(path):
    """The bytes of a file; None where it is not there."""
    if isinstance(path, EncodedImage):
        return path.length
    try:
        return os.path.getsize(path)
    except OSError:
        return None


def _digest(path):
    """What files of the same bytes share; None where one cannot be read."""
    try:
        if isinstance(path, EncodedImage):
            return hashlib.blake2b(path.read()).digest()
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "blake2b").digest()
    except OSError:
        return None
