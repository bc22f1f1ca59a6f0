"""What training really sees of a dataset, as one grid of images."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

from effdet_keras.errors import InvalidValueError
from effdet_keras.visualize.boxes import draw_boxes
from effdet_keras.visualize.class_map import draw_class_map

_GAP = 4  # white pixels between the images of a grid


def augmented(
    dataset: Any,
    augment: Any = None,
    *,
    images: int | Iterable[int] = 4,
    repeats: int = 4,
    seed: int = 0,
    image_size: int | tuple[int, int] = 320,
    **options: Any,
) -> np.ndarray:
    """Draws images as training sees them, with their boxes and class names.

    They come out of `dataset.batches(training=True)`, so they have gone through all
    of it: `augment`, flip, scale jitter, crop and padding.

    Args:
        dataset: `DetectionDataset`.
        augment: what `batches` takes: `ek.augment.Augmentation`, a function
            `(example, seed) -> example`, a list of these, or None.
        images: how many images, the first ones of the dataset, or the indices of some.
            Each fills a row.
        repeats: int, how often each is drawn, one column per draw.
        seed: int. The same seed gives the same grid.
        image_size: `(height, width)` of the network's input, or one int for both.
        **options: more arguments of `DetectionDataset.batches`, such as
            `scale_jitter=(0.5, 1.5)`.

    Returns:
        uint8 array `[H, W, 3]`, a row per image, a column per draw. `PIL.Image`
        writes it to a file: `Image.fromarray(grid).save("augmented.png")`.

    Raises:
        ValueError: If the dataset is empty, or an argument is out of its range.
        ImportError: If TensorFlow is not installed.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((48, 64, 3), "uint8")
        >>> dataset = from_arrays(
        ...     [image] * 2, boxes=[[[4, 8, 40, 40]]] * 2, labels=[[0]] * 2,
        ...     class_names=["cat"])
        >>> grid = augmented(dataset, images=2, repeats=3, image_size=96)
        >>> grid.shape, grid.dtype  # 2 x 3 images of 96 x 96, 4 pixels apart
        ((196, 296, 3), dtype('uint8'))
    """
    if not isinstance(repeats, numbers.Integral) or repeats < 1:
        raise InvalidValueError(
            f"`repeats` must be an int above zero. Received: repeats={repeats!r}"
        )
    chosen = _indices(images, len(dataset))
    # The chosen ones first; the others stay, because they are partners of mosaics.
    others = sorted(set(range(len(dataset))) - set(chosen))
    batches = dataset.subset([*chosen, *others]).batches(
        len(chosen),
        image_size=image_size,
        augment=augment,
        seed=seed,
        training=True,
        shuffle=False,
        **options,
    )
    # Each pass over the batches has draws of its own.
    passes = batches.take(1).repeat(int(repeats))
    names = dataset.class_names, dataset.seg_class_names
    columns = [_drawn(*batch, *names) for batch in passes]
    return _grid(list(zip(*columns)))


def batch_grid(
    images: Any,
    truth: Any,
    class_names: Any,
    seg_class_names: Any = None,
    *,
    max_images: int = 16,
) -> np.ndarray:
    """Draws the images of a batch, as a step of the training gets them.

    Args:
        images: array `[B, H, W, 3]`, pixels 0-255.
        truth: dict with `boxes` `[B, M, 4]` and `labels` `[B, M]`, -1 in padding.
        class_names: list of strings, one per label.
        seg_class_names: list of strings, one per class of pixels, where `truth` has
            `masks` `[B, H, W]`; or None.
        max_images: int, how many to draw at most.

    Returns:
        uint8 array `[H, W, 3]`, about as many rows as columns.

    Example:
        >>> truth = {"boxes": np.zeros((3, 1, 4)), "labels": np.full((3, 1), -1)}
        >>> batch_grid(np.zeros((3, 64, 64, 3), "uint8"), truth, ["cat"]).shape
        (132, 132, 3)
    """
    known = [name for name in ("boxes", "labels", "masks") if name in truth]
    drawn = _drawn(
        np.asarray(images)[:max_images],
        {name: np.asarray(truth[name])[:max_images] for name in known},
        class_names,
        seg_class_names,
    )
    columns = math.ceil(math.sqrt(len(drawn)))
    rows = [drawn[i : i + columns] for i in range(0, len(drawn), columns)]
    white = np.full_like(drawn[0], 255)
    rows[-1] = rows[-1] + [white] * (columns - len(rows[-1]))
    return _grid(rows)


def _indices(images, size):
    """The places of the images to show, from a number of them or from a list."""
    if size == 0:
        raise InvalidValueError("`augmented` needs at least one image. Received none")
    if isinstance(images, numbers.Integral):
        if images < 1:
            raise InvalidValueError(
                "`images` must be above zero, or the indices of images. "
                f"Received: images={images}"
            )
        return list(range(min(images, size)))
    chosen = [int(index) for index in images]
    if not chosen or len(set(chosen)) < len(chosen):
        raise InvalidValueError(
            f"`images` must name images, each once. Received: images={chosen}"
        )
    wrong = [index for index in chosen if not 0 <= index < size]
    if wrong:
        raise InvalidValueError(
            f"`images` must be indices from 0 to {size - 1}, the last image of the "
            f"dataset. Received: {wrong}"
        )
    return chosen


def _drawn(images, truth, class_names, seg_class_names):
    """The images of a batch with their boxes, over the colors of their masks."""
    images = np.asarray(images)
    if "masks" in truth:
        masks = np.asarray(truth["masks"])
        images = [
            draw_class_map(image, mask, seg_class_names)
            for image, mask in zip(images, masks)
        ]
    examples = zip(images, np.asarray(truth["boxes"]), np.asarray(truth["labels"]))
    return [draw_boxes(*example, class_names=class_names) for example in examples]


def _grid(rows):
    """Joins images of one size, with white gaps between them."""
    height, width, _ = rows[0][0].shape
    shape = (
        len(rows) * (height + _GAP) - _GAP,
        len(rows[0]) * (width + _GAP) - _GAP,
        3,
    )
    grid = np.full(shape, 255, np.uint8)
    for row, column in itertools.product(range(len(rows)), range(len(rows[0]))):
        top, left = row * (height + _GAP), column * (width + _GAP)
        grid[top : top + height, left : left + width] = rows[row][column]
    return grid
