"""Fuses several sets of detections in one image: those of several models, or those in
flipped and scaled views (test-time augmentation). It uses weighted box fusion."""

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

_LARGEST_SCALE = 8.0  # the number of tiles grows with the square of the scale
_PAD_RGB = (124, 116, 104)  # ImageNet's mean, around an image that is made smaller


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
    """Detects objects in several views of each image, and fuses the detections.

    The views at a scale are the image and, with `flips`, its mirror image. Since the
    network's input has a fixed size,

    - at a scale below 1, the image fills this fraction of the input, and the rest is
      padded;
    - at a scale above 1, the image is cut into tiles of `1 / scale` of its sides, which
      fill the input. Detections in the tiles and in the whole image are combined into
      one view (`detect_tiled`).

    `detect` should keep low scores, and scores should be filtered after the fusion. For
    each object, a view counts only once: of its boxes that would be fused with each
    other, only the best one is used.

    Args:
        detect: function of a list of arrays `[H, W, 3]` that returns a list of
            `Detections`. A low threshold works best, such as in
            `functools.partial(model.detect, score_threshold=0.05)`.
        images: one image, a list of images, or a folder, as in `EfficientDet.detect`.
        flips: bool, whether to detect in the mirror image at each scale, too.
        scales: one or more floats above 0 and at most 8.
        iou_threshold: float in `[0, 1]`, see `weighted_box_fusion`.
        weights: one float above 0 per scale, its weight in the fusion; None for equal
            weights.
        pad_rgb: three numbers from 0 to 255, `config.padding_rgb` of the model.

    Returns:
        `Detections` for one image, else a list of them, in descending order of score.
        No score is filtered out. Boxes are clipped to the image.

    Raises:
        ValueError: If an argument is not as described above.

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
    """Returns the detections of each view, with boxes in pixels of the image."""
    mirrored = pixels[:, ::-1]
    images = [pixels, mirrored] if flips else [pixels]
    # Images of the same size go through the network together.
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
    """Returns an image `1 / scale` as large, with `pixels` at its top left."""
    if scale == 1:
        return pixels
    height, width = pixels.shape[:2]
    size = (math.ceil(height / scale), math.ceil(width / scale))
    padded = np.empty((*size, 3), "float32")
    padded[:] = pad_rgb
    padded[:height, :width] = pixels
    return padded


def _once_each(view, iou_threshold):
    """Keeps the best of overlapping boxes per class: Soft-NMS may leave several."""
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
    """Returns the scales for the argument `augment` of `Predictor.detect`."""
    if augment is True:
        return (1.0,)
    return _checked_scales(
        augment, "augment", "None, True (also the mirrored image), or "
    )


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
    """Fuses the detections of several models, or in several views, of one image.

    Weighted box fusion (https://arxiv.org/abs/1910.13302, section 3) takes the boxes of
    a class in descending order of their weighted score. Each box joins the cluster
    whose fused box has the highest IoU with it, or starts a new cluster. With the
    scores `s` of a cluster, the weights `w` of their lists (scaled to a mean of 1) and
    `N` lists, the fused box of the cluster is

        box = sum(w * s * box) / sum(w * s)
        score = sum(w * s) / sum(w) * min(1, sum(w) / N)

    Each list should have an object only once. A second, weak box for it (Soft-NMS may
    leave such boxes) lowers the mean score. The results equal those of the reference
    implementation, except that the reference leaves out the last class.

    Args:
        detections: list of `N` `Detections` of one image.
        iou_threshold: float in `[0, 1]`, the IoU from which a box joins a cluster.
        weights: `N` floats above 0, the weight of each list; None for equal weights.

    Returns:
        `Detections` in descending order of score; names and image are those of the
        first list.

    Raises:
        ValueError: If there is no list, if an argument is not as described above, or if
            the lists have different classes.

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
    """Returns the sums over each cluster of a class, `[k, 6]`: w s box, w s, w."""
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
        # A score of 0 moves no box; a cluster with only such boxes keeps its first box.
        total = sums[best, 4]
        fused[best] = sums[best, :4] / total if total else boxes[i]
    return np.concatenate([fused[:count], sums[:count, 4:]], axis=1)


def _one_box_each(clusters, label, num_lists):
    """Returns `[k, 6]`: box, score and label."""
    boxes, total, weights = clusters[:, :4], clusters[:, 4:5], clusters[:, 5:]
    scores = total / weights * np.minimum(1.0, weights / num_lists)
    return np.concatenate([boxes, scores, np.full_like(scores, label)], axis=1)


def _checked_weights(detections, iou_threshold, weights):
    """Returns the weights, scaled to a mean of 1."""
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
