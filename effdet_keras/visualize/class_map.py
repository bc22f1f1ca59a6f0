"""The class of each pixel as a color over the image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras._internal.label_constants import IGNORED_PIXEL
from effdet_keras.errors import InvalidValueError
from effdet_keras.visualize.boxes import as_image, class_color

_BACKGROUND = "background"


def draw_class_map(
    image: ArrayLike,
    class_map: ArrayLike,
    seg_class_names: Sequence[str] | None = None,
    *,
    opacity: float = 0.5,
) -> np.ndarray:
    """Colors the pixels of an image by their class, on a copy.

    Pixels of the class "background" and those of 255, without a class, keep their
    color. Where class 0 is "background", class `i + 1` has the color of the boxes of
    label `i`.

    Args:
        image: array `[H, W, 3]` or `[H, W]`, uint8, or float from 0 to 255.
        class_map: int array `[H, W]`.
        seg_class_names: names of the classes of pixels, or `None`.
        opacity: float, 0 to 1, how much of the color of the class is seen.

    Returns:
        uint8 array `[H, W, 3]`.

    Raises:
        ValueError: If image and class map differ in size, or `opacity` is not from 0
            to 1.

    Example:
        >>> image = np.zeros((1, 2, 3), "uint8")
        >>> names = ("background", "cat")
        >>> draw_class_map(image, [[0, 1]], names, opacity=1.0).tolist()
        [[[0, 0, 0], [255, 69, 86]]]
    """
    image = np.asarray(as_image(image))
    class_map = np.asarray(class_map)
    if class_map.shape != image.shape[:2] or not 0.0 <= opacity <= 1.0:
        raise InvalidValueError(
            "`class_map` must have the image's size, and `opacity` be from 0 to 1. "
            f"Received: class_map.shape={class_map.shape}, image.shape={image.shape}, "
            f"opacity={opacity}"
        )
    names = tuple(seg_class_names or ())
    first = 1 if names[:1] == (_BACKGROUND,) else 0
    colors = np.zeros((IGNORED_PIXEL + 1, 3), np.float32)
    shares = np.full((IGNORED_PIXEL + 1, 1), opacity, np.float32)
    shares[IGNORED_PIXEL] = 0.0
    for label in np.unique(class_map).tolist():
        if label < len(names) and names[label] == _BACKGROUND:
            shares[label] = 0.0
        elif label != IGNORED_PIXEL:
            colors[label] = class_color(label - first)
    drawn = image + shares[class_map] * (colors[class_map] - image)
    return np.round(drawn).astype(np.uint8)
