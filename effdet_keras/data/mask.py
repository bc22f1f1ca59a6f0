"""The class of each pixel of an image: from files of masks, or drawn of its objects."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pycocotools import mask as coco_mask

from effdet_keras._internal.label_constants import IGNORED_PIXEL
from effdet_keras._internal.remote_path import is_file, path_of
from effdet_keras.errors import InvalidTypeError, InvalidValueError
from effdet_keras.images import read_mask

BACKGROUND_NAME = "background"  # class 0 of masks that are drawn of objects


def load_mask(record: Any) -> np.ndarray | None:
    """Returns the mask of a record, uint8 `[H, W]`, or None where it has none.

    Args:
        record: `Record`. Its `mask` is one, or the path of one; or its `shapes` are
            drawn: pixels of an object with label `i` get class `i + 1`, others 0,
            smaller objects over larger ones. Of an object without a shape only the
            box is known: in it, pixels of no other object get 255.
    """
    if isinstance(record.mask, np.ndarray):
        return record.mask
    if record.mask is not None:
        return _read_mask(record.mask, record)
    return None if record.shapes is None else _drawn(record)


def _read_mask(path, record):
    mask = read_mask(path)
    if mask.shape != tuple(record.image_size):
        raise InvalidValueError(
            "A mask must have the size of its image, (height, width) "
            f"{tuple(record.image_size)}. Received: '{path}' of size {mask.shape}"
        )
    if mask.max(initial=0) > IGNORED_PIXEL:
        raise InvalidValueError(
            f"Classes of pixels must be below {IGNORED_PIXEL}. Received: '{path}' with "
            f"{mask.max()}"
        )
    return mask.astype(np.uint8)


def _drawn(record):
    height, width = record.image_size
    mask = np.zeros((height, width), np.uint8)
    order = np.argsort(-record.area, kind="stable")  # the largest first
    for index in order:
        if record.shapes[index] is None:
            x, y, w, h = record.boxes_xywh[index]
            rows = slice(max(0, int(y)), max(0, int(np.ceil(y + h))))
            mask[rows, max(0, int(x)) : max(0, int(np.ceil(x + w)))] = IGNORED_PIXEL
    for index in order:
        shape = record.shapes[index]
        if shape is not None:
            mask[pixels_of_shape(shape, height, width)] = record.labels[index] + 1
    return mask


def pixels_of_shape(shape: Any, height: int, width: int) -> np.ndarray:
    """Which pixels belong to an object, bool `[height, width]`.

    Args:
        shape: as COCO's `segmentation`: a list of polygons `[x0, y0, x1, y1, ...]`; or
            run lengths, a dict of `size` and `counts`; or the bytes of an image file in
            which the object's pixels are not 0.

    Example:
        >>> shape = [np.float32([1, 0, 4, 0, 4, 2, 1, 2])]
        >>> pixels_of_shape(shape, 3, 5).astype(int)
        array([[0, 1, 1, 1, 0],
               [0, 1, 1, 1, 0],
               [0, 0, 0, 0, 0]])
    """
    if isinstance(shape, bytes):
        pixels = read_mask(shape)
    else:
        pixels = _decoded(shape, height, width)
    if pixels.shape != (height, width):
        raise InvalidValueError(
            "The shape of an object must have the size of its image, (height, width) "
            f"{(height, width)}. Received: {pixels.shape}"
        )
    return pixels != 0


def shape_as_coco(shape: Any, height: int, width: int) -> list | dict:
    """The shape of an object as a COCO file has it: polygons, or run lengths.

    Example:
        >>> shape_as_coco([np.float32([1, 0, 4, 0.1, 4, 2])], 3, 5)
        [[1.0, 0.0, 4.0, 0.1, 4.0, 2.0]]
    """
    if isinstance(shape, dict):
        counts = shape["counts"]
        if isinstance(counts, bytes):
            counts = counts.decode()
        return {**shape, "counts": counts}
    if isinstance(shape, bytes):
        pixels = pixels_of_shape(shape, height, width)
        runs = coco_mask.encode(np.asfortranarray(pixels, dtype=np.uint8))
        return {"size": [height, width], "counts": runs["counts"].decode()}
    # Of float32 the text is short: 0.1, where the float64 of it is 0.10000000149.
    return [[float(str(number)) for number in polygon] for polygon in shape]


def _decoded(shape, height, width):
    try:
        if isinstance(shape, dict):
            counts = shape["counts"]
            if isinstance(counts, list):
                shape = coco_mask.frPyObjects(shape, *shape["size"])
            return coco_mask.decode(shape)
        polygons = [np.asarray(points, "float64").tolist() for points in shape]
        runs = coco_mask.frPyObjects(polygons, height, width)
        return coco_mask.decode(coco_mask.merge(runs))
    except Exception as error:  # of Cython: almost anything
        raise InvalidValueError(
            "The `segmentation` of an annotation must be a list of polygons, each of "
            "six numbers or more, or run lengths with `size` and `counts`. "
            f"Received: {str(shape)[:80]} ({error})"
        ) from error


def masks_of(records: Sequence[Any], folder: Any, suffix: str) -> list[str]:
    """The path of the mask of each record in a folder; see `with_masks`."""
    folder, found, lacking = path_of(folder), [], []
    for record in records:
        name = pathlib.PurePosixPath(record.file_name or str(record.image))
        own = [folder / str(name.with_suffix(suffix)), folder / f"{name.stem}{suffix}"]
        places = own[1:] if name.is_absolute() else own
        path = next((place for place in places if is_file(place)), None)
        lacking += [str(places[-1])] if path is None else []
        found.append(str(path))
    if lacking:
        raise FileNotFoundError(
            f"{len(lacking)} of {len(found)} images have no mask in {str(folder)!r}, "
            f"such as {lacking[0]!r}. A mask has the name of its image and ends in "
            f"{suffix!r}: pass `suffix` for another ending."
        )
    return found


def check_seg_class_names(class_names: Iterable[str]) -> tuple[str, ...]:
    """Returns names of classes of pixels as a tuple; raises where they cannot be."""
    if isinstance(class_names, str):
        raise InvalidTypeError(
            "`class_names` must be a list of names, one for each class of pixels. "
            f"Received: class_names={class_names!r}"
        )
    names = tuple(map(str, class_names))
    if not names or len(set(names)) != len(names) or len(names) > IGNORED_PIXEL:
        raise InvalidValueError(
            f"Names of classes of pixels must differ, and be 1 to {IGNORED_PIXEL}. "
            f"Received: {len(names)} names, {names[:5]}"
        )
    return names
