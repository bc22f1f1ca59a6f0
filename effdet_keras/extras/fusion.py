"""Several answers about one image made into one: weighted box fusion of what models or,
by test-time augmentation, flipped and scaled views of it found."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from effdet_keras._internal.number_ranges import NumberRange
from effdet_keras.box_ops import pairwise_iou
from effdet_keras.detect.detect import DetectFunction, Images, image_sources, load_rgb
from effdet_keras.detect.detections import Detections
from effdet_keras.errors import check_argument, require
from effdet_keras.extras.tiles import concat_detections, detect_tiled
from effdet_keras.letterbox import boxes_in_image

_LARGEST_SCALE = 8.0  # the tiles of an image grow with the square of it
_PAD_RGB = (124, 116, 104)  # ImageNet's mean, beside an image that is made smaller


def detect_augmented(
    detect: DetectFunction,
    images: Images,
    *,
    flips: bool = True,
    scales: Sequence[float] = (1.0,),
    iou_threshold: float = 0.55,
    weights: Sequence[float] | None = None,
    pad_rgb: Sequence[float] = _PAD_RGB,
) -> Detections | list[Detections]:
    """Finds objects in several views of each image, and fuses the answers.

    The views of a scale are the image and, with `flips`, its mirror image. As a
    network's input has one size,

    - at a scale below 1 the image fills that part of the input, the rest is padded;
    - at a scale above 1 it is cut into tiles of that part of its size, which fill the
      input, and looked at whole beside that (`detect_tiled`): one answer of both.

    Let `detect` keep low scores, and filter after the fusion. Each view counts once for
    an object: of its boxes that would be fused with each other, the best one alone.

    Args:
        detect: function of a list of arrays `[H, W, 3]` that returns a list of
            `Detections`. Best with a low threshold, such as
            `functools.partial(model.detect, score_threshold=0.05)`.
        images: one image, a list of them, or a folder, as for `EfficientDet.detect`.
        flips: bool, whether each scale is looked at in a mirror too.
        scales: floats above 0 and at most 8, at least one.
        iou_threshold: float in `[0, 1]`, see `weighted_box_fusion`.
        weights: one float above 0 per scale, how far it is trusted, or None to trust
            all alike.
        pad_rgb: three numbers 0 to 255, `config.padding_rgb` of the model.

    Returns:
        `Detections` for one image, else a list of them; best first, with all scores
        from 0 up, and boxes clipped to the image.

    Raises:
        ValueError: If an argument is not one of those above.

    Example:
        >>> from effdet_keras.detect.detections import Detections
        >>> def detect(images):  # the left half of everything, and unsure of it
        ...     return [Detections([[0, 0, p.shape[0], p.shape[1] / 2]], [0.5], [0])
        ...             for p in images]
        >>> detect_augmented(detect, np.zeros((10, 20, 3), "uint8"))
        2 detections: 2 0
          0  0.25  y 0.0 to 10.0, x 0.0 to 10.0
          0  0.25  y 0.0 to 10.0, x 10.0 to 20.0
    """
    scales = _checked_scales(scales)
    if weights is not None:
        weights = np.repeat(weights, 2 if flips else 1)
    sources, is_single = image_sources(images)
    fused = []
    for source in sources:
        pixels = load_rgb(source)
        views = [
            _once_each(view, iou_threshold)
            for view in _views(detect, pixels, flips, scales, pad_rgb)
        ]
        found = weighted_box_fusion(views, iou_threshold, weights)
        is_path = isinstance(source, (str, os.PathLike))
        fused.append(dataclasses.replace(found, image=source if is_path else pixels))
    return fused[0] if is_single else fused


def _views(detect, pixels, flips, scales, pad_rgb):
    """What is found at each scale, upright and mirrored, in pixels of the image."""
    mirrored = pixels[:, ::-1]
    images = [pixels, mirrored] if flips else [pixels]
    # All images of one size go through the network together.
    small = [scale for scale in scales if scale <= 1]
    wholes = [_padded(image, scale, pad_rgb) for scale in small for image in images]
    found = iter(detect(wholes) if wholes else [])
    views = []
    for scale in scales:
        for image in images:
            if scale <= 1:
                view = next(found)
            else:
                size = [math.ceil(side / scale) for side in pixels.shape[:2]]
                view = detect_tiled(detect, image, tile_size=size)
            boxes = boxes_in_image(view.boxes, 1.0, pixels.shape[:2])
            if image is mirrored:
                boxes = _mirrored(boxes, pixels.shape[1])
            views.append(dataclasses.replace(view, boxes=boxes))
    return views


def _padded(pixels, scale, pad_rgb):
    """The image at the top left of one that is `1 / scale` as large."""
    if scale == 1:
        return pixels
    height, width = pixels.shape[:2]
    size = (math.ceil(height / scale), math.ceil(width / scale))
    padded = np.empty((*size, 3), "float32")
    padded[:] = pad_rgb
    padded[:height, :width] = pixels
    return padded


def _once_each(view, iou_threshold):
    """The best of the boxes of one class that overlap: no remains of Soft-NMS."""
    is_free = np.ones(len(view), bool)
    kept = []
    for i in np.argsort(-view.scores, kind="stable"):
        if is_free[i]:
            kept.append(i)
            ious = pairwise_iou(view.boxes[i : i + 1], view.boxes)[0]
            is_free &= (ious < iou_threshold) | (view.labels != view.labels[i])
    return view[kept]


def _mirrored(boxes, width):
    y_min, x_min, y_max, x_max = boxes.T
    return np.stack([y_min, width - x_max, y_max, width - x_min], axis=1)


def scales_of(augment: Any) -> tuple[float, ...]:
    """The scales that `augment` of `Predictor.detect` means."""
    if augment is True:
        return (1.0,)
    return _checked_scales(augment, "augment", "None, True (the image mirrored), or ")


def _checked_scales(scales, name="scales", others=""):
    values = tuple(scales) if isinstance(scales, Iterable) else ()
    are_scales = all(map(NumberRange(f"(0, {_LARGEST_SCALE}]").contains, values))
    largest = f"{_LARGEST_SCALE:g}, such as (0.75, 1.0)"
    expected = f"{others}numbers above 0 and at most {largest}"
    check_argument(values and are_scales, name, scales, expected)
    return values


# --- Weighted box fusion.


def weighted_box_fusion(
    detections: Sequence[Detections],
    iou_threshold: float = 0.55,
    weights: Sequence[float] | None = None,
) -> Detections:
    """Fuses what several models, or several views, found in one image.

    Weighted box fusion (https://arxiv.org/abs/1910.13302, section 3): boxes of one
    class are taken best first, and each joins the cluster whose fused box it overlaps
    most, or begins one. With the scores `s` of a cluster, the weights `w` of their
    lists (scaled to a mean of 1) and `N` lists, its one box is

        box = sum(w * s * box) / sum(w * s)
        score = sum(w * s) / sum(w) * min(1, sum(w) / N)

    A list should have an object once: a second, weak box of it (Soft-NMS leaves such)
    draws the mean of the scores down. Equal to the reference where that fuses; it
    leaves out the last class.

    Args:
        detections: list of `Detections` of one image, `N` of them.
        iou_threshold: float in `[0, 1]`, the IoU from which on a box joins a cluster.
        weights: `N` floats above 0, how far each list is trusted, or None for
            all the same.

    Returns:
        `Detections`, best first; names and image are those of the first list.

    Raises:
        ValueError: If there is no list, an argument is not one of those above, or the
            lists are of different classes.

    Example:
        >>> from effdet_keras.detect.detections import Detections
        >>> one = Detections([[0, 0, 10, 10], [20, 20, 30, 30]], [0.9, 0.4], [0, 1])
        >>> two = Detections([[0, 2, 10, 12]], [0.3], [0])
        >>> weighted_box_fusion([one, two])
        2 detections: 1 0, 1 1
          0  0.60  y 0.0 to 10.0, x 0.5 to 10.5
          1  0.20  y 20.0 to 30.0, x 20.0 to 30.0
    """
    detections = list(detections)
    weights = _checked_weights(detections, iou_threshold, weights)
    boxes, scores, labels = concat_detections(detections)
    weights = np.repeat(weights, [len(part) for part in detections])
    fused = [np.zeros((0, 6))]
    for label in np.unique(labels):
        of_class = labels == label
        clusters = _clusters(
            boxes[of_class], scores[of_class], weights[of_class], iou_threshold
        )
        fused.append(_one_box_each(clusters, label, len(detections)))
    fused = np.concatenate(fused)
    fused = fused[np.argsort(-fused[:, 4], kind="stable")]
    return dataclasses.replace(
        detections[0], boxes=fused[:, :4], scores=fused[:, 4], labels=fused[:, 5]
    )


def _clusters(boxes, scores, weights, iou_threshold):
    """The sums over each cluster of one class: `[k, 6]` of w s box, w s, w."""
    trust = weights * scores
    rows = np.concatenate([trust[:, None] * boxes, trust[:, None], weights[:, None]], 1)
    sums = np.zeros_like(rows)
    fused = np.zeros_like(boxes)
    count = 0
    for i in np.argsort(-trust, kind="stable"):
        ious = pairwise_iou(boxes[i : i + 1], fused[:count])[0]
        best = int(np.argmax(ious)) if count else 0
        if not count or ious[best] < iou_threshold:
            best, count = count, count + 1
        sums[best] += rows[i]
        # A score of 0 moves no box, and alone it is its own.
        total = sums[best, 4]
        fused[best] = sums[best, :4] / total if total else boxes[i]
    return np.concatenate([fused[:count], sums[:count, 4:]], axis=1)


def _one_box_each(clusters, label, num_lists):
    """`[k, 6]` of box, score and label."""
    boxes, total, weights = clusters[:, :4], clusters[:, 4:5], clusters[:, 5:]
    scores = total / weights * np.minimum(1.0, weights / num_lists)
    return np.concatenate([boxes, scores, np.full_like(scores, label)], axis=1)


def _checked_weights(detections, iou_threshold, weights):
    """The weights, scaled to a mean of 1."""
    require(detections, "At least one list of detections is needed", lists=0)
    is_iou = 0 <= iou_threshold <= 1
    check_argument(is_iou, "iou_threshold", iou_threshold, "between 0 and 1")
    if weights is None:
        return np.ones(len(detections))
    weights = np.asarray(weights, "float64")
    is_usable = np.isfinite(weights) & (weights > 0)
    is_right = weights.shape == (len(detections),) and is_usable.all()
    expected = f"one number above 0 for each of the {len(detections)} lists"
    check_argument(is_right, "weights", weights.tolist(), expected)
    return weights / weights.mean()
