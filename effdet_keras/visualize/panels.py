"""Images side by side, under titles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw, ImageFont

from effdet_keras.visualize.boxes import as_image, text_size


def side_by_side(
    left: ArrayLike,
    right: ArrayLike,
    titles: Sequence[str] | None = ("ground truth", "detected"),
) -> np.ndarray:
    """Joins two images, with a title above each.

    Args:
        left: array `[H, W, 3]` or `[H, W]`, uint8, or float from 0 to 255.
        right: array like `left`; a lower one is scaled to the same height.
        titles: two texts, or `None`.

    Returns:
        uint8 array `[H + title, W_left + gap + W_right, 3]`.

    Raises:
        ValueError: If an image has another shape.

    Example:
        >>> left, right = np.zeros((40, 60, 3)), np.zeros((20, 30, 3))
        >>> side_by_side(left, right, titles=None).shape
        (40, 124, 3)
    """
    images = [as_image(left), as_image(right)]
    height = max(image.height for image in images)
    images = [
        image
        if image.height == height
        else image.resize((round(image.width * height / image.height), height))
        for image in images
    ]
    gap = max(4, height // 100)
    size = text_size(images[0]) + 1
    bar = 0 if titles is None else 2 * size
    width = sum(image.width for image in images) + gap
    canvas = Image.new("RGB", (width, height + bar), "white")
    pen = ImageDraw.Draw(canvas)
    left_edge = 0
    for number, image in enumerate(images):
        canvas.paste(image, (left_edge, bar))
        if titles is not None:
            middle = (left_edge + image.width / 2, bar / 2)
            font = ImageFont.load_default(size)
            pen.text(middle, titles[number], fill="black", font=font, anchor="mm")
        left_edge += image.width + gap
    return np.asarray(canvas)
