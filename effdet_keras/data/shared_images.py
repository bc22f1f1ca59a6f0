"""Finds images that two splits share, which make an evaluation meaningless."""

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
    """Returns the indices in `second` of images that are in `first` as well.

    Two records share an image if they have the same file, the same part of a TFRecord
    file, the same array, or copies of a file, that is, the same name and the same
    bytes, also within TFRecord files. `effdet-keras inspect`, which reads every image,
    finds copies under another name as well.

    Args:
        first, second: sequences of `Record`, such as `dataset.records`.

    Returns:
        Sorted list of int.

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
    """Returns a key that equal images share.

    It is the file name and the real path of its folder, or the image itself.
    """
    if isinstance(image, np.ndarray):
        return id(image)
    if not isinstance(image, str) or is_remote(image):
        return image  # an `EncodedImage`, which compares by its place; or an address
    folder, name = os.path.split(image)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    return folders[folder], name


def _copies(first, second):
    """Yields the indices in `second` of files that have a copy in `first`.

    A copy has the same name and the same bytes. Only files with the name and the size
    of another one are read, each at most once.
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


# If more images inside larger files have the same name, it is not a name of their own.
_MOST_OF_A_NAME = 100


def _files_by_name(records):
    """Returns a dict from file name, without folders, to pairs `(image, index)`."""
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
    """Returns whether two paths are the same file, or files with the same bytes."""
    if one == other:
        return True  # without reading it
    size = _size(one)
    if size is None or size != _size(other):
        return False
    digest = _digest(one)
    return digest is not None and digest == _digest(other)


def _size(path):
    """Returns the size of a file in bytes, or None if it does not exist."""
    if isinstance(path, EncodedImage):
        return path.length
    try:
        return os.path.getsize(path)
    except OSError:
        return None


def _digest(path):
    """Returns a hash of the bytes of a file, or None if it cannot be read."""
    try:
        if isinstance(path, EncodedImage):
            return hashlib.blake2b(path.read()).digest()
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "blake2b").digest()
    except OSError:
        return None
