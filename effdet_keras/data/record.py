"""One annotated image: what a reader stores of it, and the example it becomes."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.data.mask import load_mask
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import EncodedImage, read_image


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One image and its annotations as their file has them, not decoded.

    `dataset.records` has these; `dataset[i]` is the decoded example of one. Boxes stay
    as the file has them, in float64, because COCO's evaluation must see exactly these
    numbers.

    Attributes:
        image: path of the image as str, `EncodedImage` for one inside a
            larger file, or uint8 array `[H, W, 3]`.
        image_size: `(height, width)` in pixels.
        image_id: int, unique in the dataset.
        source_id: int or str, the image's id in its file.
        file_name: str, the image's name in its file; empty for arrays.
        boxes_xywh: float64 array `[n, 4]`: left, top, width, height in pixels.
        labels: int32 array `[n]`, from 0.
        is_crowd: bool array `[n]`: COCO's crowds, VOC's difficult objects.
        area: float64 array `[n]`, square pixels of the object, by which COCO decides
            whether it is small, medium or large.
        annotation_ids: int64 array `[n]`.
        mask: uint8 array `[H, W]`, the class of each pixel, 255 where it has none;
            or the path of an image of these numbers; or None.
        shapes: tuple of `n` shapes of objects, of which a mask is drawn (see
            `from_coco`), each None where there is but a box; or None.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((32, 48, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
        >>> dataset.records[0].boxes_xywh.tolist()
        [[8.0, 4.0, 32.0, 16.0]]
    """

    image: str | EncodedImage | np.ndarray
    image_size: tuple[int, int]
    image_id: int
    source_id: int | str
    file_name: str
    boxes_xywh: np.ndarray
    labels: np.ndarray
    is_crowd: np.ndarray
    area: np.ndarray
    annotation_ids: np.ndarray
    mask: str | np.ndarray | None = None
    shapes: tuple | None = None

    def __post_init__(self):
        # Frozen dataclasses set fields through `object`; `slots` needs it too.
        for field, dtype, shape in (
            ("boxes_xywh", np.float64, (-1, 4)),
            ("labels", np.int32, (-1,)),
            ("is_crowd", bool, (-1,)),
            ("area", np.float64, (-1,)),
            ("annotation_ids", np.int64, (-1,)),
        ):
            array = np.asarray(getattr(self, field), dtype).reshape(shape)
            object.__setattr__(self, field, array)

    @property
    def has_mask(self) -> bool:
        """Whether something tells the class of each pixel."""
        return self.mask is not None or self.shapes is not None

    @property
    def name(self) -> str:
        """The name of the image's file, or else its id: what to look for."""
        return self.file_name or f"image_id={self.image_id}"

    def relabelled(self, new_label: ArrayLike) -> Record:
        """Returns the record with labels `new_label[label]`, without those of -1."""
        labels = np.asarray(new_label, np.int32)[self.labels]
        return dataclasses.replace(self, labels=labels).select(labels >= 0)

    def select(self, keep: ArrayLike | slice) -> Record:
        """Returns the record with the annotations that `keep`, bool `[n]`, marks."""
        shapes = self.shapes
        if shapes is not None:
            kept = np.arange(len(shapes))[keep]
            shapes = tuple(shapes[i] for i in kept.tolist())
        return dataclasses.replace(
            self,
            boxes_xywh=self.boxes_xywh[keep],
            labels=self.labels[keep],
            is_crowd=self.is_crowd[keep],
            area=self.area[keep],
            annotation_ids=self.annotation_ids[keep],
            shapes=shapes,
        )

    def usable(self) -> Record:
        """Returns the record without the boxes that have no area in the image."""
        return self.select(clip_boxes_xywh(self.boxes_xywh, self.image_size)[1])

    def to_coco(self, category_ids: Sequence[int]) -> list[dict]:
        """Returns the annotations in COCO's format, as Python's own numbers."""
        return [
            {
                "id": annotation_id,
                "image_id": self.image_id,
                "category_id": category_ids[label],
                "bbox": box,
                "area": area,
                "iscrowd": int(crowd),
            }
            for annotation_id, label, box, area, crowd in zip(
                self.annotation_ids.tolist(),
                self.labels.tolist(),
                self.boxes_xywh.tolist(),
                self.area.tolist(),
                self.is_crowd.tolist(),
            )
        ]


def clip_boxes_xywh(boxes_xywh, image_size):
    """Clips boxes to their image and says which of them still have an area.

    Args:
        boxes_xywh: float array `[n, 4]`: left, top, width, height in pixels.
        image_size: `(height, width)`, or one for each box, `[n, 2]`.

    Returns:
        `(boxes, usable)`: float32 `[n, 4]`, `yxyx` in pixels, and bool `[n]`.

    Example:
        >>> boxes, usable = clip_boxes_xywh([[-2, 1, 5, 4], [3, 3, 0, 9]], (8, 8))
        >>> boxes[0].tolist(), usable.tolist()
        ([1.0, 0.0, 5.0, 3.0], [True, False])
    """
    boxes_xywh = np.asarray(boxes_xywh, np.float64).reshape(-1, 4)
    low = boxes_xywh[:, 1::-1]  # y, x
    high = low + boxes_xywh[:, :1:-1]
    limit = np.asarray(image_size, np.float64)
    boxes = np.concatenate([np.clip(low, 0, limit), np.clip(high, 0, limit)], axis=1)
    boxes = boxes.astype(np.float32)
    return boxes, np.all(boxes[:, 2:] > boxes[:, :2], axis=1)


def describe_example(record):
    """Returns the example of a record without its image: see `load_example`."""
    boxes, usable = clip_boxes_xywh(record.boxes_xywh, record.image_size)
    return {
        "boxes": boxes[usable],
        "labels": record.labels[usable],
        "is_crowd": record.is_crowd[usable],
        "area": record.area[usable],
        "image_id": record.image_id,
        "source_id": record.source_id,
        "file_name": record.file_name,
        "path": record.image if isinstance(record.image, str) else None,
        "image_size": record.image_size,
    }


def load_example(record):
    """Decodes a record: its image and the boxes that can be used.

    Boxes are clipped to the image; those without an area in it are left
    out together with their labels, crowd flags and areas.

    Returns:
        Dict of `image` uint8 `[H, W, 3]`; `boxes` float32 `[n, 4]`, `yxyx` in
        pixels; `labels` int32 `[n]`; `is_crowd` bool `[n]`; `area` float64
        `[n]`; `image_id` int; `source_id`, the id in the file; `file_name`
        str; `path` str, or None where the image is no file of its own;
        `image_size` `(height, width)`; and, where the record has one, `mask` uint8
        `[H, W]`.
    """
    masks = {"mask": load_mask(record)} if record.has_mask else {}
    return {"image": load_image(record), **describe_example(record), **masks}


def load_image(record):
    """Decodes the image of a record: see `load_example`."""
    if isinstance(record.image, np.ndarray):
        return record.image
    image = read_image(record.image, size=record.image_size)
    if image.shape[:2] != tuple(record.image_size):
        raise InvalidValueError(
            "An image must have the size (height, width) that its annotation "
            f"gives, {tuple(record.image_size)}, or its boxes are in the wrong "
            f"place. Received: {record.image!r} of size {image.shape[:2]}. Was it "
            "resized after it was annotated?"
        )
    return image


def count_unusable(records):
    """Counts the boxes of each record that have no area inside their image."""
    if not records:
        return np.zeros(0, np.int64)
    # All at once: one by one, COCO's 118,000 images take ten seconds.
    owner = np.repeat(np.arange(len(records)), [len(r.labels) for r in records])
    boxes_xywh = np.concatenate([record.boxes_xywh for record in records])
    sizes = np.asarray([record.image_size for record in records])
    _, usable = clip_boxes_xywh(boxes_xywh, sizes[owner])
    return np.bincount(owner[~usable], minlength=len(records))


def warn_of_unusable(records, reader):
    """Warns of boxes that have no area inside their image, and counts them."""
    counts = count_unusable(records)
    count = counts.sum()
    names = [records[i].name for i in np.flatnonzero(counts)]
    if count:
        warnings.warn(
            f"{reader}: {count} boxes in {len(names)} images have no area inside "
            f"their image and are not trained on. First: {names[:3]}",
            stacklevel=3,
        )
