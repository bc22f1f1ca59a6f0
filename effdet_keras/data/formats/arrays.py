"""Makes a dataset from Python lists of images and boxes."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras._internal.remote_path import path_of
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.label_map import ClassNames, requested_classes
from effdet_keras.data.formats.reading import Found, make_dataset
from effdet_keras.data.problems import Problems
from effdet_keras.errors import InvalidValueError, check_choice, require
from effdet_keras.images import read_image_size

_BOX_FORMATS = ("yxyx", "xyxy", "xywh")


def from_arrays(
    images: Sequence[np.ndarray | str | os.PathLike[str]],
    boxes: Sequence[ArrayLike],
    labels: Sequence[ArrayLike],
    class_names: ClassNames,
    *,
    image_ids: Sequence[int] | None = None,
    is_crowd: Sequence[ArrayLike] | None = None,
    box_format: str = "yxyx",
) -> DetectionDataset:
    """Makes a dataset from lists of images, boxes and labels in Python.

    Boxes that reach out of their image are clipped. Boxes without an area inside their
    image are left out, and a warning counts them. A box that ends before it begins is
    an error, because its `box_format` must be wrong.

    Args:
        images: list of uint8 arrays `[H, W, 3]`, of any sizes, or of paths of image
            files.
        boxes: list with the boxes `[n, 4]` of each image, in pixels, or an empty list
            for an image without objects.
        labels: list with the int labels `[n]` of each image, from 0.
        class_names: names of the classes in the order of the labels, or a label map:
            see `load`.
        image_ids: ints, one per image. None means 1, 2, ...
        is_crowd: list with the flags `[n]` of each image: True for a box around a
            crowd, which is not trained on, and which evaluation ignores. None means
            that there are no crowds.
        box_format: `"yxyx"` or `"xyxy"` for two corners; `"xywh"` for left, top, width
            and height.

    Returns:
        `DetectionDataset`.

    Raises:
        FileNotFoundError: If an image given as a path is missing.
        ValueError: If the lists differ in length, an image is not uint8 `[H, W, 3]`, a
            label has no class name, or boxes are not of `box_format` in pixels.

    Example:
        >>> image = np.zeros((32, 48, 3), "uint8")
        >>> dataset = from_arrays(
        ...     [image, image], boxes=[[[4, 8, 20, 40]], []], labels=[[0], []],
        ...     class_names=["cat"])
        >>> dataset
        DetectionDataset(2 images, 1 box, 1 class: cat)
    """
    lists = {"images": images, "boxes": boxes, "labels": labels}
    lists |= {"image_ids": image_ids, "is_crowd": is_crowd}
    lengths = {name: len(v) for name, v in lists.items() if v is not None}
    rule = "`from_arrays` expects one entry per image in each list"
    require(len(set(lengths.values())) == 1, rule, lengths=lengths)
    check_choice("box_format", box_format, _BOX_FORMATS)
    names, category_ids = requested_classes(class_names)
    found = []
    for i, image in enumerate(images):
        is_path = isinstance(image, str | os.PathLike)
        image_id = i + 1 if image_ids is None else int(image_ids[i])
        crowd = None if is_crowd is None else np.asarray(is_crowd[i], bool)
        item = Found(
            place=f"image_id={image_id}",
            image=path_of(image) if is_path else _checked_image(image, i),
            boxes=_boxes_xywh(boxes[i], box_format, i),
            classes=np.asarray(labels[i]),
            source_id=image_id,
            file_name=os.path.basename(os.fspath(image)) if is_path else "",
            image_size=read_image_size(image) if is_path else None,
            is_crowd=crowd,
            image_id=image_id,
        )
        count = len(item.boxes)
        is_right = item.classes.shape == (count,)
        is_right &= crowd is None or crowd.shape == (count,)
        rule = f"`labels` and `is_crowd` of an image must be one per box, here {count}"
        require(is_right, rule, position=i, labels=item.classes, is_crowd=crowd)
        found.append(item)
    classes = names, category_ids, range(len(names))
    return make_dataset(
        found, classes, Problems("`from_arrays`", "raise"), source="`boxes`"
    )


def _checked_image(image, position):
    image = np.asarray(image)
    is_right = image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3
    rule = "Each of `images` must be a uint8 array [H, W, 3] of values from 0 to 255"
    received = {"position": position, "shape": image.shape, "dtype": image.dtype}
    require(is_right, rule, **received)
    return image


def _boxes_xywh(boxes, box_format, position):
    """Checks the boxes of one image and returns them as `xywh`, float64 `[n, 4]`."""
    boxes = np.asarray(boxes, np.float64)
    if boxes.size == 0:
        return np.zeros((0, 4))
    is_right = boxes.ndim == 2 and boxes.shape[1] == 4 and np.isfinite(boxes).all()
    rule = "`boxes` of an image must be finite numbers of shape [n, 4]"
    require(is_right, rule, position=position, shape=boxes.shape)
    if box_format == "yxyx":
        boxes = boxes[:, [1, 0, 3, 2]]
    if box_format != "xywh":
        boxes = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)
    if (boxes[:, 2:] < 0).any():
        raise InvalidValueError(
            f"A box of the format {box_format!r} must not end before it begins. "
            f"Received: boxes[{position}]. If the boxes have another format, pass it "
            f"as `box_format`, one of {_BOX_FORMATS}"
        )
    return boxes
