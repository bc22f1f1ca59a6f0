"""Fits the image size and the anchors of a model to the boxes of a dataset."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from effdet_keras.data.record import clip_boxes_xywh, concat_field, owners
from effdet_keras.errors import InvalidValueError
from effdet_keras.letterbox import scaled_size
from effdet_keras.network.anchors import best_anchor_iou
from effdet_keras.network.config import EfficientDetConfig

_SMALL_SHARE = 0.1  # the share of boxes that may be smaller than `_SMALL_SIDE`
_SMALL_SIDE = 24.0  # input pixels: three cells of the finest level (stride 8)
_DETAILED_SIDE = 96.0  # input pixels, enough to see the details of a class
_STEP = 64  # pixels: image sizes are multiples of this
_SMALLEST = 192  # pixels, the smallest image size
_LARGEST = 1.6  # times the model's own size, where a step takes 2.6 times as long
_MOST_BOXES = 2_000  # boxes: from a larger dataset, this many are drawn at random
_SCALES = (1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0)
_MOST_ELONGATED = 20.0  # the largest ratio of an anchor's sides
_WORTH_IT = 0.01  # other anchors must raise the mean IoU by more than this
_FEWEST = 10  # boxes: classes with fewer boxes are treated as one class


def input_boxes(records, image_size):
    """Returns letterboxed boxes as on the network's input, and their indices.

    Args:
        records: sequence of `Record`.
        image_size: `(height, width)` of the input in pixels.

    Returns:
        Floats `[n, 4]`, `yxyx` in pixels of the input, without crowds and without boxes
        that have no area; and ints `[n]`, the index of each among all annotations.
    """
    if not records:
        return np.zeros((0, 4)), np.zeros(0, int)
    sizes = np.array([record.image_size for record in records])[owners(records)]
    boxes, _ = clip_boxes_xywh(concat_field(records, "boxes_xywh"), sizes)
    # The letterbox truncates sizes to whole pixels, so both axes have their own factor.
    factors = scaled_size(sizes, image_size) / sizes.astype(np.float32)
    boxes = boxes * np.tile(factors, 2)
    # Clipped to the last pixel, not to the border, as in the training pipeline.
    boxes = np.minimum(boxes, np.tile(image_size, 2) - 1.0)
    keep = np.all(boxes[:, 2:] > boxes[:, :2], axis=1) & ~concat_field(
        records, "is_crowd"
    )
    return boxes[keep], np.flatnonzero(keep)


def fitted_image_size(dataset: Any, config: EfficientDetConfig) -> tuple[int, int]:
    """Returns the smallest image size at which boxes of every class are large enough.

    The size of a box is the square root of its area on the network's input. Two
    conditions decide:

    - To be found at all, 90 % of all boxes, and half of the boxes of each class (AP
      weighs classes equally), must have a size of 24 pixels or more. For this, the
      input may grow to 1.6 times the model's own size. Above the model's own size, it
      does not get larger than most images are.
    - For their class to be recognized, half of all boxes must have a size of 96 pixels
      or more, as far as the model's own size and the size of the images allow.

    The input has the aspect ratio of the images.

    Args:
        dataset: `DetectionDataset`.
        config: `EfficientDetConfig` of the model.

    Returns:
        `(height, width)` in pixels.

    Raises:
        ValueError: If the dataset has no boxes to train on.
    """
    own = max(config.image_size)
    boxes, classes = boxes_to_fit(dataset, (own, own))
    sides = np.sqrt(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1))
    medians = [np.median(sides[classes == c]) for c in np.unique(classes)]
    small = max(float(min(np.quantile(sides, _SMALL_SHARE), *medians)), 1.0)
    sizes = np.array([record.image_size for record in dataset.records], float)
    shown = float(np.median(sizes.max(axis=1)))
    most = max(own, int(min(shown, _LARGEST * own)) // _STEP * _STEP, _STEP)
    to_find = min(_in_steps(own * _SMALL_SIDE / small), most)
    to_tell = _in_steps(own * _DETAILED_SIDE / max(float(np.median(sides)), 1.0))
    to_tell = min(to_tell, own, round(shown / _STEP) * _STEP)
    side = min(max(to_find, to_tell, _SMALLEST), most)
    return input_size_of_side(dataset.records, side)


def input_size_of_side(records: Any, side: int) -> tuple[int, int]:
    """Returns the `(height, width)` of an input with the aspect ratio of the images.

    If the images are scaled so that their longest sides are `side`, 90 % of their
    heights and 90 % of their widths fit. Both numbers are multiples of 64 pixels,
    unless `side` limits them.

    Args:
        records: sequence of `Record`.
        side: int, the longest side of the input in pixels.

    Example:
        >>> import types
        >>> photograph = types.SimpleNamespace(image_size=(480, 640))
        >>> input_size_of_side([photograph], 256)
        (192, 256)
    """
    sizes = np.array([record.image_size for record in records], float)
    # The size of each image when it is scaled to fit a square of that side.
    filled = side * sizes / sizes.max(axis=1, keepdims=True)
    height, width = np.quantile(filled, 1 - _SMALL_SHARE, axis=0)
    return min(_in_steps(height), side), min(_in_steps(width), side)


def fitted_anchors(dataset: Any, config: EfficientDetConfig) -> dict[str, Any]:
    """Returns the anchors with the highest mean IoU, all classes weighed equally.

    Args:
        dataset: `DetectionDataset`.
        config: `EfficientDetConfig` with the model's anchors and its input size.

    Returns:
        Dict of `anchor_scale` and `aspect_ratios`. These are the config's own unless
        others raise the mean IoU by more than 0.01.

    Raises:
        ValueError: If the dataset has no boxes to train on.
    """
    boxes, classes = boxes_to_fit(dataset, config.image_size)
    heights, widths = (boxes[:, 2:] - boxes[:, :2]).T
    shapes = np.quantile(np.log(widths / heights), [0.1, 0.5, 0.9])
    ratios = np.clip(np.exp(shapes), 1 / _MOST_ELONGATED, _MOST_ELONGATED)
    ratios = tuple(round(float(ratio), 2) for ratio in ratios)
    best = {"anchor_scale": config.anchor_scale, "aspect_ratios": config.aspect_ratios}
    reached = mean_of_classes(boxes, classes, config) + _WORTH_IT
    for chosen, scale in itertools.product((config.aspect_ratios, ratios), _SCALES):
        anchors = {"anchor_scale": scale, "aspect_ratios": chosen}
        mean = mean_of_classes(boxes, classes, config.replace(**anchors))
        if mean > reached:
            best, reached = anchors, mean
    return best


def _in_steps(pixels):
    return math.ceil(round(pixels / _STEP, 2)) * _STEP


def mean_of_classes(boxes, classes, config):
    """Returns the mean IoU of boxes and their best anchors, averaged over classes."""
    iou = best_anchor_iou(boxes, config)
    return float(np.mean([iou[classes == c].mean() for c in np.unique(classes)]))


def boxes_to_fit(dataset, image_size):
    """Returns boxes on the network's input and their classes, at most 2,000 of them.

    Args:
        dataset: `DetectionDataset`.
        image_size: `(height, width)` of the input in pixels.

    Returns:
        Floats `[n, 4]`, `yxyx` in pixels of the input; and ints `[n]`, the label of
        each box, or -1 for classes with fewer than 10 of these boxes.

    Raises:
        ValueError: If the dataset has no boxes to train on.
    """
    boxes, rows = input_boxes(dataset.records, image_size)
    if len(boxes) == 0:
        raise InvalidValueError(
            "Image size and anchors are fitted to the boxes of the dataset, which has "
            "none to train on. Give numbers instead of 'auto'."
        )
    labels = concat_field(dataset.records, "labels")[rows]
    if len(boxes) > _MOST_BOXES:
        drawn = np.random.default_rng(0).choice(len(boxes), _MOST_BOXES, replace=False)
        boxes, labels = boxes[drawn], labels[drawn]
    known, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return boxes, np.where(counts[place] >= _FEWEST, known[place], -1)
