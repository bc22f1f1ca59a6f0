"""What data a run had: a digest that tells whether it is still the same."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from effdet_keras._internal.local_paths import is_remote
from effdet_keras.data import DetectionDataset, Record
from effdet_keras.images import EncodedImage


def describe_data(datasets: Mapping[str, DetectionDataset]) -> dict[str, Any]:
    """The classes and splits of a run, each split with its digest.

    Args:
        datasets: dict from name to `DetectionDataset`.

    Returns:
        Dict for JSON: `class_names`, `category_ids`, and `splits`, which has for each
        name the number of `images` and `boxes`, and the digest `sha256`.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((8, 8, 3), "uint8")
        >>> cats = from_arrays([image], [[[0, 0, 4, 4]]], [[0]], ["cat"])
        >>> described = describe_data({"train": cats})
        >>> described["class_names"], described["splits"]["train"]["boxes"]
        (['cat'], 1)
    """
    first = next(iter(datasets.values()))
    return {
        "class_names": list(first.class_names),
        "category_ids": list(first.category_ids),
        "splits": {
            name: {
                "images": len(dataset),
                "boxes": sum(len(record.labels) for record in dataset.records),
                "sha256": fingerprint(dataset),
            }
            for name, dataset in datasets.items()
        },
    }


def fingerprint(dataset: DetectionDataset) -> str:
    """SHA-256 over classes, names of image files, their bytes' number, and boxes.

    Files of images are not read: of COCO's 118,000 that would take minutes. An image
    that was changed and has as many bytes as before goes unnoticed. One at
    an address is not asked for its size: its name alone counts.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((8, 8, 3), "uint8")
        >>> one = from_arrays([image], [[[0, 0, 4, 4]]], [[0]], ["cat"])
        >>> other = from_arrays([image], [[[0, 0, 4, 5]]], [[0]], ["cat"])
        >>> fingerprint(one) == fingerprint(one), fingerprint(one) == fingerprint(other)
        (True, False)
    """
    digest = hashlib.sha256()
    classes = [list(dataset.class_names), list(dataset.category_ids)]
    digest.update(json.dumps(classes).encode())
    for record in dataset.records:
        digest.update(_described(record))
    return digest.hexdigest()


def _described(record: Record) -> bytes:
    head = json.dumps([record.file_name, list(map(int, record.image_size))])
    arrays = (record.boxes_xywh, record.labels, record.is_crowd)
    return b"".join([head.encode(), _content(record.image), *map(_bytes, arrays)])


def _content(image) -> bytes:
    """What stands for the pixels of an image."""
    if isinstance(image, np.ndarray):
        return hashlib.sha256(_bytes(image)).digest()
    if isinstance(image, EncodedImage):
        return str(image.length).encode()
    if is_remote(image):
        return b"remote"
    try:
        return str(os.path.getsize(image)).encode()
    except OSError:  # training names the images that are not there
        return b"missing"


def _bytes(array) -> bytes:
    return np.ascontiguousarray(array).tobytes()
