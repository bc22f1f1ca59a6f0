"""Boxes in colors that say what they are, not of which class."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.visualize.boxes import Painter, as_image

GOOD, BAD, ASIDE = (56, 203, 84), (255, 69, 86), (0, 168, 255)  # green, red, blue


def draw_marked(
    image: ArrayLike,
    boxes: ArrayLike,
    words: Sequence[str],
    colors: Sequence[tuple[int, int, int]],
) -> np.ndarray:
    """Draws boxes with words on a copy of an image.

    The first boxes are drawn on top of the others, and have the first choice of places
    for their words.

    Args:
        image: array `[H, W, 3]`, uint8.
        boxes: `[n, 4]`, `yxyx` in pixels of the image.
        words: `n` strings; an empty one for a box without words.
        colors: `n` times `(red, green, blue)`, such as `GOOD`.

    Returns:
        uint8 array `[H, W, 3]`.

    Example:
        >>> image = np.zeros((60, 90, 3), "uint8")
        >>> drawn = draw_marked(image, [[5, 5, 55, 80]], [""], [GOOD])
        >>> drawn[5, 40].tolist()
        [56, 203, 84]
    """
    painter = Painter(as_image(image))
    rows = list(zip(np.asarray(boxes, float).reshape(-1, 4), words, colors))
    for box, text, color in reversed(rows):
        painter.draw(box, text, color)
    return painter.finish()
