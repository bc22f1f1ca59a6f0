"""The image size and the anchors of a model, fitted to the boxes of a dataset."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from effdet_keras.config import EfficientDetConfig
from effdet_keras.errors import InvalidValueError
from effdet_keras.inspection.coverage import anchor_fit, input_boxes

_SMALL_SHARE = 0.1  # the share of boxes that may be smaller than `_SMALL_SIDE`
_SMALL_SIDE = 24.0  # pixels of the input: three cells of the finest level
_STEP = 64  # pixels between the sizes that are tried
_SMALLEST = 192
_MOST_BOXES = 2_000  # drawn at random from more
_SCALES = (1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0)
_WORTH_IT = 0.01  # other anchors must raise the mean IoU by this much
_FEWEST = 10  # boxes: classes with fewer are one class together


def fitted_image_size(dataset: Any, config: EfficientDetConfig) -> tuple[int, int]:
    """The smallest image size at which boxes of every class can be seen well.

    These are nine boxes of ten, and half of those of each class, because AP counts a
    class of few small boxes as much as one of many large ones. A box is
    seen well if the root of its area is 24 pixels or more. Where nine images
    of ten are wide, or nine of ten are high, the input has their shape: a square would
    be padding for a good part.

    Args:
        dataset: `DetectionDataset`.
        config: `EfficientDetConfig`, whose own size is the largest that is chosen.

    Returns:
        `(height, width)`, multiples of 64. The larger is from 192 to the larger side
        of `config.image_size`.

    Raises:
        ValueError: If the dataset has no boxes to train on.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((400, 400, 3), "uint8")
        >>> large = from_arrays([image], [[[0, 0, 300, 300]]], [[0]], ["cat"])
        >>> small = from_arrays([image], [[[0, 0, 30, 40]]], [[0]], ["cat"])
        >>> config = EfficientDetConfig()
        >>> fitted_image_size(large, config), fitted_image_size(small, config)
        ((192, 192), (320, 320))
    """
    largest = max(config.image_size)
    boxes, classes = _boxes(dataset, (largest, largest))
    sides = np.sqrt(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1))
    medians = [np.median(sides[classes == c]) for c in np.unique(classes)]
    small = max(float(min(np.quantile(sides, _SMALL_SHARE), *medians)), 1.0)
    needed = _in_steps(largest * _SMALL_SIDE / small)
    side = min(max(needed, _SMALLEST), max(largest, _STEP))
    # What of a square of that side the images fill.
    sizes = np.array([record.image_size for record in dataset.records], float)
    filled = side * sizes / sizes.max(axis=1, keepdims=True)
    height, width = np.quantile(filled, 1 - _SMALL_SHARE, axis=0)
    return min(_in_steps(height), side), min(_in_steps(width), side)


def fitted_anchors(dataset: Any, config: EfficientDetConfig) -> dict[str, Any]:
    """The anchors that boxes of a dataset overlap most, all classes alike.

    `ek.inspection.fit_anchors` measures what they gain, and says what is tried.

    Args:
        dataset: `DetectionDataset`.
        config: `EfficientDetConfig`, whose anchors are kept unless others are better.

    Returns:
        Dict of `anchor_scale` and `aspect_ratios` for `EfficientDetConfig`.

    Raises:
        ValueError: If the dataset has no boxes to train on.
    """
    boxes, classes = _boxes(dataset, config.image_size)
    heights, widths = (boxes[:, 2:] - boxes[:, :2]).T
    shapes = np.quantile(np.log(widths / heights), [0.1, 0.5, 0.9])
    ratios = tuple(round(float(r), 2) for r in np.exp(shapes))
    own = {"anchor_scale": config.anchor_scale, "aspect_ratios": config.aspect_ratios}
    others = [
        {"anchor_scale": scale, "aspect_ratios": chosen}
        for chosen in (config.aspect_ratios, ratios)
        for scale in _SCALES
    ]
    best, reached = own, _mean_of_classes(boxes, classes, config) + _WORTH_IT
    for anchors in others:
        mean = _mean_of_classes(boxes, classes, config.replace(**anchors))
        if mean > reached:
            best, reached = anchors, mean
    return best


def class_mean_iou(dataset: Any, config: EfficientDetConfig) -> float:
    """The IoU of a box and its best anchor, averaged over the classes as AP is.

    Classes of fewer than ten boxes count as one together; of more than 2,000 boxes
    a sample is measured.

    Args:
        dataset: `DetectionDataset`.
        config: `EfficientDetConfig`.

    Raises:
        ValueError: If the dataset has no boxes to train on.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((128, 128, 3), "uint8")
        >>> boxes = [[[8, 8, 40, 40], [0, 0, 20, 90]]]
        >>> dataset = from_arrays([image], boxes, [[0, 1]], ["plate", "pen"])
        >>> round(class_mean_iou(dataset, EfficientDetConfig(image_size=128)), 2)
        0.56
    """
    return _mean_of_classes(*_boxes(dataset, config.image_size), config)


def _in_steps(pixels):
    return math.ceil(round(pixels / _STEP, 2)) * _STEP


def _mean_of_classes(boxes, classes, config):
    iou = anchor_fit(boxes, config)
    return float(np.mean([iou[classes == c].mean() for c in np.unique(classes)]))


def _boxes(dataset, image_size):
    """Boxes on the network's input, and the class of each; of many, a sample."""
    boxes, rows = input_boxes(dataset.records, image_size)
    if len(boxes) == 0:
        raise InvalidValueError(
            "Image size and anchors are fitted to the boxes of the dataset, which has "
            "none to train on. Give numbers in the place of 'auto'."
        )
    labels = np.concatenate([record.labels for record in dataset.records])[rows]
    if len(boxes) > _MOST_BOXES:
        drawn = np.random.default_rng(0).choice(len(boxes), _MOST_BOXES, replace=False)
        boxes, labels = boxes[drawn], labels[drawn]
    known, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return boxes, np.where(counts[place] >= _FEWEST, known[place], -1)
