"""The image size and the anchors of a model, fitted to the boxes of a dataset."""

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
_SMALL_SIDE = 24.0  # pixels of the input: three cells of the finest level
_DETAILED_SIDE = 96.0  # in which details tell classes apart
_STEP = 64  # pixels between the sizes that are tried
_SMALLEST = 192
_LARGEST = 1.6  # times the model's own size: 2.6 times the time of a step
_MOST_BOXES = 2_000  # drawn at random from more
_SCALES = (1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0)
_MOST_ELONGATED = 20.0  # one side of an anchor over the other
_WORTH_IT = 0.01  # other anchors must raise the mean IoU by this much
_FEWEST = 10  # boxes: classes with fewer are one class together


def input_boxes(records, image_size):
    """Boxes `[n, 4]`, `yxyx`, as training sees them letterboxed, and their places."""
    if not records:
        return np.zeros((0, 4)), np.zeros(0, int)
    sizes = np.array([record.image_size for record in records])[owners(records)]
    boxes, _ = clip_boxes_xywh(concat_field(records, "boxes_xywh"), sizes)
    # The letterbox cuts sizes to pixels, so that both axes have a factor of their own.
    factors = scaled_size(sizes, image_size) / sizes.astype(np.float32)
    boxes = boxes * np.tile(factors, 2)
    # The last pixel, not the border: so does the pipeline of training.
    boxes = np.minimum(boxes, np.tile(image_size, 2) - 1.0)
    keep = np.all(boxes[:, 2:] > boxes[:, :2], axis=1) & ~concat_field(
        records, "is_crowd"
    )
    return boxes[keep], np.flatnonzero(keep)


def fitted_image_size(dataset: Any, config: EfficientDetConfig) -> tuple[int, int]:
    """The smallest image size at which boxes of every class can be seen well.

    That is, nine boxes of ten, and half of those of each class, which AP counts alike,
    have a root of the area of 24 pixels, to be found at all: for that at most 1.6 times
    the model's own size, and above that size no larger than most images are. And half
    of all boxes have one of 96 pixels, to be told apart, as far as the model's own size
    and the images allow. The input has the images' shape.
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
    """The `(height, width)` of an input with this longest side, in the images' shape.

    Example:
        >>> import types
        >>> photograph = types.SimpleNamespace(image_size=(480, 640))
        >>> input_size_of_side([photograph], 256)
        (192, 256)
    """
    sizes = np.array([record.image_size for record in records], float)
    # What of a square of that side the images fill.
    filled = side * sizes / sizes.max(axis=1, keepdims=True)
    height, width = np.quantile(filled, 1 - _SMALL_SHARE, axis=0)
    return min(_in_steps(height), side), min(_in_steps(width), side)


def fitted_anchors(dataset: Any, config: EfficientDetConfig) -> dict[str, Any]:
    """The anchors that boxes of a dataset overlap most, all classes alike."""
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
    """The IoU of a box and its best anchor, averaged over the classes as AP is."""
    iou = best_anchor_iou(boxes, config)
    return float(np.mean([iou[classes == c].mean() for c in np.unique(classes)]))


def boxes_to_fit(dataset, image_size):
    """Boxes on the network's input, and the class of each; of many, a sample."""
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
