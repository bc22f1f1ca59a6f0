"""`Record`: one annotated image as a reader stores it, its example and its mask."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from pycocotools import mask as coco_mask

from effdet_keras._internal.remote_path import is_file, path_of
from effdet_keras.errors import InvalidValueError, require
from effdet_keras.images import EncodedImage, read_image, read_mask
from effdet_keras.labels import IGNORED_PIXEL

BACKGROUND_NAME = "background"  # class 0 of masks that are drawn from objects


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One image, not decoded, with its annotations as in the annotation file.

    `dataset.records` holds the records, and `dataset[i]` is the decoded example of
    record `i`. Boxes keep the exact numbers of the annotation file, in float64, because
    COCO's evaluation must use these numbers.

    Attributes:
        image: path of the image as str, or `EncodedImage` for an image inside a larger
            file, or uint8 array `[H, W, 3]`.
        image_size: `(height, width)` in pixels.
        image_id: int, unique in the dataset.
        source_id: int or str, the image's id in the annotation file.
        file_name: str, the image's name in the annotation file; empty for arrays.
        boxes_xywh: float64 array `[n, 4]` of left, top, width and height in pixels.
        labels: int32 array `[n]`, from 0.
        is_crowd: bool array `[n]`: True for COCO's crowds and VOC's difficult objects.
        area: float64 array `[n]`, the area of each object in square pixels. COCO's
            evaluation uses it to decide whether an object is small, medium or large.
        annotation_ids: int64 array `[n]`.
        mask: uint8 array `[H, W]`, the class of each pixel, or 255 for a pixel without
            a class; or the path of an image with these values; or None.
        shapes: tuple of `n` shapes of the objects, from which a mask is drawn (see
            `from_coco`); a shape is None if the object has only a box. Or None if no
            mask is to be drawn.

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
        # A frozen dataclass, also one with `slots`, can set fields only like this.
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
        """Whether the record has a mask, or shapes from which a mask can be drawn."""
        return self.mask is not None or self.shapes is not None

    @property
    def name(self) -> str:
        """The image's file name, or its id if it has none, for use in messages."""
        return self.file_name or f"image_id={self.image_id}"

    def relabelled(self, new_label: ArrayLike) -> Record:
        """Returns the record with new labels; label -1 removes an annotation.

        Args:
            new_label: ints `[C]`, the new label of each old label, or -1 to leave out
                the annotations of that class.

        Raises:
            ValueError: If a label of the record is not from 0 to `C - 1`.
        """
        new_label = np.asarray(new_label, np.int32)
        self._check_labels(len(new_label))
        labels = new_label[self.labels]
        return dataclasses.replace(self, labels=labels).select(labels >= 0)

    def select(self, keep: ArrayLike | slice) -> Record:
        """Returns the record with only some of its annotations.

        Args:
            keep: bool `[n]`, which annotations to keep; or a slice or an array of
                indices.
        """
        shapes = self.shapes
        if shapes is not None:
            shapes = tuple(shapes[i] for i in np.arange(len(shapes))[keep])
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
        """Returns the record without the boxes that have no area inside the image."""
        return self.select(clip_boxes_xywh(self.boxes_xywh, self.image_size)[1])

    def to_coco(self, category_ids: Sequence[int]) -> list[dict]:
        """Returns the annotations in COCO's format, with Python numbers.

        Args:
            category_ids: sequence of int, the category id of each label.

        Returns:
            List of dicts with the keys "id", "image_id", "category_id", "bbox", "area"
            and "iscrowd".

        Raises:
            ValueError: If a label has no category id.
        """
        self._check_labels(len(category_ids))
        return [
            {
                "id": int(self.annotation_ids[i]),
                "image_id": self.image_id,
                "category_id": category_ids[label],
                "bbox": self.boxes_xywh[i].tolist(),
                "area": float(self.area[i]),
                "iscrowd": int(self.is_crowd[i]),
            }
            for i, label in enumerate(self.labels.tolist())
        ]

    def _check_labels(self, num_classes):
        is_bad = (self.labels < 0) | (self.labels >= num_classes)
        if is_bad.any():
            raise InvalidValueError(
                f"The labels of an image must be from 0 to {num_classes - 1}. "
                f"Received: image={self.name!r}, "
                f"labels={self.labels[is_bad].tolist()[:5]}"
            )


def clip_boxes_xywh(boxes_xywh, image_size):
    """Clips boxes to their image and converts them to `yxyx`.

    Args:
        boxes_xywh: floats `[n, 4]` of left, top, width and height in pixels.
        image_size: `(height, width)` in pixels, or floats `[n, 2]`, one per box.

    Returns:
        float32 `[n, 4]`, `yxyx` in pixels; and bool `[n]`, which boxes have an area
        inside the image.
    """
    boxes_xywh = np.asarray(boxes_xywh, np.float64).reshape(-1, 4)
    low = boxes_xywh[:, 1::-1]  # y, x
    high = low + boxes_xywh[:, :1:-1]
    limit = np.asarray(image_size, np.float64)
    boxes = np.concatenate([np.clip(low, 0, limit), np.clip(high, 0, limit)], axis=1)
    boxes = boxes.astype(np.float32)
    return boxes, np.all(boxes[:, 2:] > boxes[:, :2], axis=1)


def describe_example(record):
    """Returns the example of a record without its image and mask."""
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
    """Returns the example of a record: the decoded image and its usable boxes."""
    masks = {"mask": load_mask(record)} if record.has_mask else {}
    return {"image": load_image(record), **describe_example(record), **masks}


def load_image(record):
    """Decodes the image of a record, uint8 `[H, W, 3]`: see `load_example`."""
    if isinstance(record.image, np.ndarray):
        return record.image
    image, size = read_image(record.image, size=record.image_size), record.image_size
    if image.shape[:2] != tuple(size):
        raise InvalidValueError(
            f"An image must have the size that its annotation gives, {tuple(size)}. "
            f"Received: {record.image!r} of size {image.shape[:2]}. Was it resized "
            "after it was annotated?"
        )
    return image


def stored_bytes(image):
    """Returns the bytes of an image file, which may be part of a larger file."""
    if isinstance(image, EncodedImage):
        return image.read()
    return path_of(image).read_bytes()


def count_unusable(records):
    """Counts the boxes of each record that have no area inside their image."""
    if not records:
        return np.zeros(0, np.int64)
    # All records at once: one by one, COCO's 118,000 images take ten seconds.
    owner = owners(records)
    sizes = np.asarray([record.image_size for record in records])
    _, usable = clip_boxes_xywh(concat_field(records, "boxes_xywh"), sizes[owner])
    return np.bincount(owner[~usable], minlength=len(records))


def check_labels(records: Sequence[Record], num_classes: int) -> None:
    """Raises ValueError, naming the image, if a label does not belong to a class."""
    labels = concat_field(records, "labels")
    if ((labels < 0) | (labels >= num_classes)).any():
        for record in records:
            record._check_labels(num_classes)


def concat_field(records, field):
    """Returns one field of the annotations of all records as one array."""
    arrays = [getattr(record, field) for record in records]
    return np.concatenate(arrays) if arrays else np.zeros(0, bool)


def owners(records):
    """Returns, for each annotation of all records, the index of its record."""
    return np.repeat(np.arange(len(records)), [len(r.labels) for r in records])


# --- Segmentation masks: read from files, or drawn from the objects' shapes.


def load_mask(record: Any) -> np.ndarray | None:
    """Returns the mask of a record, uint8 `[H, W]`, or None if it has none.

    Raises:
        ValueError: If the mask has another size than the image or a value above 255,
            or if a mask would have to be drawn from a label of 254 or more.
    """
    if isinstance(record.mask, np.ndarray):
        return record.mask
    if record.mask is None:
        return None if record.shapes is None else _drawn(record)
    mask = read_mask(record.mask)
    size, highest = tuple(record.image_size), mask.max(initial=0)
    is_right = mask.shape == size and highest <= IGNORED_PIXEL
    rule = f"A mask must have the size of its image, {size}, and classes below 256"
    received = {"mask": record.mask, "shape": mask.shape, "highest": int(highest)}
    require(is_right, rule, **received)
    return mask.astype(np.uint8)


def _drawn(record):
    height, width = record.image_size
    highest = int(record.labels.max(initial=-1))
    rule = "Masks are drawn of labels below 254: 255 has no class. Choose classes by "
    rule += "`dataset.filter(classes=...)`, or leave out `masks`"
    require(highest + 1 < IGNORED_PIXEL, rule, image=record.name, label=highest)
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
    """Returns which pixels belong to an object, bool `[height, width]`.

    Args:
        shape: the bytes of an image file that is not zero at the object's pixels; or
            COCO's run-length encoding, a dict with `size` and `counts`; or COCO's list
            of polygons.
        height, width: ints, the size of the image in pixels.

    Raises:
        ValueError: If `shape` is neither a list of polygons nor a run-length encoding.
    """
    if isinstance(shape, bytes):  # an image file
        return read_mask(shape) != 0
    try:
        if isinstance(shape, dict):
            if isinstance(shape["counts"], list):
                shape = coco_mask.frPyObjects(shape, *shape["size"])
            return coco_mask.decode(shape) != 0
        polygons = [np.asarray(points, "float64").tolist() for points in shape]
        runs = coco_mask.frPyObjects(polygons, height, width)
        return coco_mask.decode(coco_mask.merge(runs)) != 0
    except Exception as error:  # Cython code may raise almost anything
        raise InvalidValueError(
            "The `segmentation` of an annotation must be a list of polygons, each of "
            "six numbers or more, or run lengths with `size` and `counts`. "
            f"Received: {str(shape)[:80]} ({error})"
        ) from error


def shape_as_coco(shape: Any, height: int, width: int) -> list | dict:
    """Returns an object's shape as in a COCO file: polygons or run-length encoding."""
    if isinstance(shape, dict):
        counts = shape["counts"]
        is_bytes = isinstance(counts, bytes)
        return {**shape, "counts": counts.decode() if is_bytes else counts}
    if isinstance(shape, bytes):
        return run_lengths(pixels_of_shape(shape, height, width))
    # `str` keeps a float32 short: 0.1, which converted to float64 is 0.10000000149.
    return [[float(str(number)) for number in polygon] for polygon in shape]


def run_lengths(pixels):
    """Returns COCO's run-length encoding of pixels, bool `[height, width]`."""
    runs = coco_mask.encode(np.asfortranarray(pixels, dtype=np.uint8))
    return {"size": list(pixels.shape), "counts": runs["counts"].decode()}


def masks_of(records: Sequence[Any], folder: Any, suffix: str) -> list[str]:
    """Returns the path of each record's mask: see `DetectionDataset.with_masks`."""
    folder, found, lacking = path_of(folder), [], []
    for record in records:
        name = pathlib.PurePosixPath(record.file_name or str(record.image))
        path = folder / str(name.with_suffix(suffix)).lstrip("/")
        if not is_file(path):
            path = folder / f"{name.stem}{suffix}"
        if not is_file(path):
            lacking.append(str(path))
        found.append(str(path))
    if lacking:
        raise FileNotFoundError(
            f"{len(lacking)} of {len(found)} images have no mask, such as "
            f"{lacking[0]!r}. Pass `suffix` for another ending."
        )
    return found
