"""Test-time augmentation: an image flipped and scaled, and all answers fused."""

from __future__ import annotations

import dataclasses
import math
import numbers
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from effdet_keras.box_ops import pairwise_iou
from effdet_keras.detect.detect import DetectFunction, Images, image_sources, pixels_of
from effdet_keras.detect.detections import Detections
from effdet_keras.detect.letterbox import boxes_in_image
from effdet_keras.detect.tiles import detect_tiled
from effdet_keras.detect.weighted_box_fusion import weighted_box_fusion
from effdet_keras.errors import InvalidValueError

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

    An object that few views show gets a lower score (`weighted_box_fusion`). So let
    `detect` keep low scores, and filter after the fusion. Each view counts once for
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
        pixels = pixels_of(source)
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
    wholes = [
        _padded(image, scale, pad_rgb)
        for scale in scales
        if scale <= 1
        for image in images
    ]
    found = iter(detect(wholes) if wholes else [])
    views = []
    for scale in scales:
        for image in images:
            view = next(found) if scale <= 1 else _zoomed(detect, image, scale)
            boxes = boxes_in_image(view.boxes, 1.0, pixels.shape[:2])
            if image is mirrored:
                boxes = _mirrored(boxes, pixels.shape[1])
            views.append(dataclasses.replace(view, boxes=boxes))
    return views


def _zoomed(detect, pixels, scale):
    tile_size = [math.ceil(side / scale) for side in pixels.shape[:2]]
    return detect_tiled(detect, pixels, tile_size=tile_size)


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
    if not values or not all(
        isinstance(scale, numbers.Real) and 0 < scale <= _LARGEST_SCALE
        for scale in values
    ):
        raise InvalidValueError(
            f"`{name}` must be {others}numbers above 0 and at most "
            f"{_LARGEST_SCALE:g}, such as (0.75, 1.0), where 1.0 is the image as it "
            f"is. Received: {name}={scales!r}"
        )
    return values
