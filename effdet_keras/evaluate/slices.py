"""Average precision of a part of a dataset: of sizes, of classes, of any column."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.curves import average_precisions
from effdet_keras.evaluate.image_result import ImageResult, mean_of_measured
from effdet_keras.evaluate.matches import check_labels, objects_that_count

COCO_SIZES: tuple[float, ...] = (32, 96)
FINE_SIZES: tuple[float, ...] = (16, 32, 64, 96, 128, 256)


@dataclasses.dataclass(frozen=True)
class Slice:
    """One row of a table: the average precision of a part of a dataset.

    Attributes:
        name: string, which part.
        num_images: int; of a slice of images all of them, of a slice of objects those
            that have such an object.
        num_objects: int, crowd regions not counted.
        ap: float, COCO's AP: mean over ten IoU thresholds, 0.5 to 0.95, and over the
            classes that have objects in the slice; -1 where it has no objects.
        ap50: float, the same at IoU 0.5.
    """

    name: str
    num_images: int
    num_objects: int
    ap: float
    ap50: float


def slice_by_class(
    results: Sequence[ImageResult], class_names: Sequence[str]
) -> list[Slice]:
    """Computes the average precision of each class.

    Args:
        results: an `ImageResult` per image, also for images without objects.
        class_names: strings `[C]`, in the order of the labels.

    Returns:
        List of `C` `Slice`, in the order of the labels.

    Raises:
        InvalidValueError: If a label has no name.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8]], truth_labels=[0],
        ...     boxes=[[0, 0, 8, 8]], scores=[0.9], labels=[0])
        >>> for row in slice_by_class([result], ["cat", "dog"]):
        ...     print(row)
        Slice(name='cat', num_images=1, num_objects=1, ap=1.0, ap50=1.0)
        Slice(name='dog', num_images=0, num_objects=0, ap=-1.0, ap50=-1.0)
    """
    check_labels(results, class_names)
    precisions = average_precisions(results, len(class_names))
    objects = [result.truth_labels[objects_that_count(result)] for result in results]
    return [
        _slice(name, [(x == label).sum() for x in objects], precisions[:, label])
        for label, name in enumerate(class_names)
    ]


def slice_by_object_size(
    results: Sequence[ImageResult],
    class_names: Sequence[str],
    *,
    borders: Sequence[float] = COCO_SIZES,
) -> list[Slice]:
    """Computes the average precision of objects of some sizes.

    The size of an object is the side of the square of its area (`truth_areas`): 20 x 5
    pixels have size 10. As in COCO's evaluation, objects of other sizes are ignored:
    they are neither missed, nor is it wrong to find them. Of the detections that found
    nothing, those of this size are wrong. An object on a border belongs to both sides.

    Args:
        results: an `ImageResult` per image, also for images without objects.
        class_names: strings `[C]`, in the order of the labels.
        borders: floats in pixels, ascending. `COCO_SIZES`, 32 and 96, give COCO's APs,
            APm and APl; `FINE_SIZES` gives seven slices.

    Returns:
        List of `Slice`, one more than there are borders, smallest first.

    Raises:
        InvalidValueError: If a label has no name, or the borders do not ascend from
            above 0.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8], [0, 0, 100, 100]], truth_labels=[0, 0],
        ...     boxes=[[0, 0, 100, 100]], scores=[0.9], labels=[0])
        >>> for row in slice_by_object_size([result], ["cat"]):
        ...     print(row)
        Slice(name='under 32 px', num_images=1, num_objects=1, ap=0.0, ap50=0.0)
        Slice(name='32 to 96 px', num_images=0, num_objects=0, ap=-1.0, ap50=-1.0)
        Slice(name='96 px and more', num_images=1, num_objects=1, ap=1.0, ap50=1.0)
    """
    check_labels(results, class_names)
    rows = []
    for name, (low, high) in _bins(borders):
        area_range = low**2, high**2
        counts = [objects_that_count(result, area_range).sum() for result in results]
        aps = average_precisions(results, len(class_names), area_range=area_range)
        rows.append(_slice(name, counts, aps))
    return rows


def slice_by_image_size(
    results: Sequence[ImageResult],
    class_names: Sequence[str],
    *,
    borders: Sequence[float] = (512, 1024),
) -> list[Slice]:
    """Computes the average precision of images of some sizes.

    The size of an image is its longer side, which decides how much smaller the network
    sees it.

    Args:
        results: an `ImageResult` per image, each with its `size`.
        class_names: strings `[C]`, in the order of the labels.
        borders: floats in pixels, ascending. An image on a border is of the larger.

    Returns:
        List of `Slice`, one more than there are borders, smallest first.

    Raises:
        InvalidValueError: If a label has no name, an image has no size, or the borders
            do not ascend from above 0.

    Example:
        >>> result = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8]], truth_labels=[0],
        ...     boxes=[[0, 0, 8, 8]], scores=[0.9], labels=[0], size=(480, 640))
        >>> [(row.name, row.ap) for row in slice_by_image_size([result], ["cat"])]
        [('under 512 px', -1.0), ('512 to 1024 px', 1.0), ('1024 px and more', -1.0)]
    """
    check_labels(results, class_names)
    bins = _bins(borders)
    for result in results:
        if result.size is None:
            raise InvalidValueError(
                "Every `ImageResult` must have a `size`, (height, width) in pixels, to "
                f"be sliced by it. Received: size=None of image {result.image_id}"
            )
    return [
        _slice_of_images(
            name, [r for r in results if low <= max(r.size) < high], class_names
        )
        for name, (low, high) in bins
    ]


def slice_by_column(
    results: Sequence[ImageResult],
    class_names: Sequence[str],
    values: Mapping[int, object],
) -> list[Slice]:
    """Computes the average precision of images with one value of a column.

    The column is anything that is known of each image, such as its camera, the weather,
    or the day.

    Args:
        results: an `ImageResult` per image, also for images without objects.
        class_names: strings `[C]`, in the order of the labels.
        values: the column, from image id to value; ids of other images may be there.

    Returns:
        List of `Slice`, one for each value that an image has, in the order in which the
        values first stand in the column. A slice has the value as its name.

    Raises:
        InvalidValueError: If a label has no name, or an image no value.

    Example:
        >>> day = ImageResult(
        ...     1, truth_boxes=[[0, 0, 8, 8]], truth_labels=[0],
        ...     boxes=[[0, 0, 8, 8]], scores=[0.9], labels=[0])
        >>> night = ImageResult(
        ...     2, truth_boxes=[[0, 0, 8, 8]], truth_labels=[0],
        ...     boxes=[[0, 0, 8, 3]], scores=[0.9], labels=[0])
        >>> column = {1: "day", 2: "night"}
        >>> for row in slice_by_column([day, night], ["cat"], column):
        ...     print(row)
        Slice(name='day', num_images=1, num_objects=1, ap=1.0, ap50=1.0)
        Slice(name='night', num_images=1, num_objects=1, ap=0.0, ap50=0.0)
    """
    check_labels(results, class_names)
    missing = [r.image_id for r in results if r.image_id not in values]
    if missing:
        raise InvalidValueError(
            "`values` must have a value for every image; give those that are not known "
            f"one of their own, such as 'unknown'. Missing: {len(missing)} of "
            f"{len(results)} images, such as {missing[:5]}"
        )
    parts: dict[object, list[ImageResult]] = {value: [] for value in values.values()}
    for result in results:
        parts[values[result.image_id]].append(result)
    return [
        _slice_of_images(str(value), part, class_names)
        for value, part in parts.items()
        if part
    ]


def _slice(name, counts, precisions):
    """A slice with `counts[i]` objects in image `i`, and precisions `[10, ...]`."""
    return Slice(
        name,
        num_images=int(np.count_nonzero(counts)),
        num_objects=int(np.sum(counts)),
        ap=mean_of_measured(precisions),
        ap50=mean_of_measured(precisions[0]),
    )


def _slice_of_images(name, results, class_names):
    counts = [objects_that_count(result).sum() for result in results]
    row = _slice(name, counts, average_precisions(results, len(class_names)))
    return dataclasses.replace(row, num_images=len(results))


def _bins(borders):
    """Name and `(low, high)` of each bin between borders, and outside of them."""
    if not len(borders) or np.any(np.diff([0, *borders]) <= 0):
        raise InvalidValueError(
            "`borders` must be one or more numbers of pixels above 0, each above the "
            f"one before, such as (32, 96). Received: borders={tuple(borders)}"
        )
    last = borders[-1]
    inner = [
        (f"{low:g} to {high:g} px", (low, high))
        for low, high in itertools.pairwise(borders)
    ]
    smallest = f"under {borders[0]:g} px", (0, borders[0])
    return [smallest, *inner, (f"{last:g} px and more", (last, math.inf))]
