"""Boxes on images, with class names and scores, in the colors of their classes."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw, ImageFont

from effdet_keras._internal.label_constants import IGNORED_PIXEL
from effdet_keras.errors import InvalidValueError

# The first classes get colors that are easy to tell apart on photographs.
COLORS = (
    (255, 69, 86),  # red
    (0, 168, 255),  # blue
    (56, 203, 84),  # green
    (255, 176, 0),  # amber
    (178, 102, 255),  # violet
    (0, 212, 196),  # turquoise
    (255, 112, 214),  # pink
    (255, 127, 39),  # orange
    (164, 214, 33),  # lime
    (88, 120, 255),  # indigo
)

_MIN_TEXT = 11  # pixels: smaller text cannot be read
_TEXT_SHARE = 1 / 40  # of the short side


def class_color(label: int) -> tuple[int, int, int]:
    """Returns the color of a class, the same in every image.

    Args:
        label: int, 0 or more.

    Returns:
        `(red, green, blue)`, ints, 0 to 255.

    Example:
        >>> class_color(0), class_color(0) == class_color(1)
        ((255, 69, 86), False)
    """
    label = int(label)
    if 0 <= label < len(COLORS):
        return COLORS[label]
    # Steps of the golden ratio around the circle of hues never meet again.
    hue = (label * 0.618034) % 1.0
    value = (1.0, 0.8, 0.9)[label % 3]
    saturation = (0.75, 0.9, 0.55)[label // 3 % 3]
    return tuple(round(255 * x) for x in colorsys.hsv_to_rgb(hue, saturation, value))


def draw_boxes(
    image: ArrayLike,
    boxes: Any,
    labels: ArrayLike | None = None,
    scores: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    *,
    min_side: int | None = None,
) -> np.ndarray:
    """Draws boxes with class names and scores on a copy of an image.

    Each class has its own color. Lines and text grow with the image; text is
    never under 11 pixels. Boxes with low scores are drawn first, so that they
    do not hide the others, and a name moves into its box where there is no
    room above it. Rows with a label below 0 (padding) are not drawn.

    Args:
        image: array `[H, W, 3]` or `[H, W]`, uint8, or float from 0 to 255.
        boxes: `[n, 4]`, `yxyx` in pixels of the image. Parts outside of the
            image are not drawn.
        labels: `[n]` ints, or `None` for one color and no names.
        scores: `[n]`, or `None` to draw none, as for ground truth.
        class_names: names by label, or `None` for the numbers.
        min_side: int or `None`. An image whose longer side is below it is
            enlarged first, 2, 3, ... times, so that names have room on tiny images.

    Returns:
        uint8 array `[H, W, 3]`, or larger by a whole factor with `min_side`.

    Raises:
        ValueError: If the image has another shape, or the lengths differ.

    Example:
        >>> image = np.zeros((40, 60, 3), "uint8")
        >>> drawn = draw_boxes(image, [[5, 5, 35, 50]], [0], [0.9], ["cat"])
        >>> drawn.shape, drawn.any(), image.any()
        ((40, 60, 3), np.True_, np.False_)
    """
    image = as_image(image)
    boxes = np.asarray(boxes, "float64").reshape(-1, 4)
    for name, values in (("labels", labels), ("scores", scores)):
        if values is not None and len(values) != len(boxes):
            raise InvalidValueError(
                f"`{name}` must have one number per box. Received: {len(values)} "
                f"{name} for {len(boxes)} boxes"
            )
    factor = 1
    if min_side is not None:
        factor = max(1, math.ceil(min_side / max(image.size)))
    if factor > 1:
        size = (image.width * factor, image.height * factor)
        image = image.resize(size, Image.Resampling.BICUBIC)
    painter = Painter(image)
    order = range(len(boxes))
    if scores is not None:
        order = np.argsort(np.asarray(scores, "float64"), kind="stable")
    for i in order:
        label = 0 if labels is None else int(labels[i])
        if label < 0 or not np.isfinite(boxes[i]).all():
            continue
        names = () if class_names is None else class_names
        name = names[label] if label < len(names) else label
        words = [] if labels is None else [str(name)]
        words += [] if scores is None else [f"{float(scores[i]):.2f}"]
        painter.draw(boxes[i] * factor, " ".join(words), class_color(label))
    return painter.finish()


class Painter:
    """Draws boxes first and all names on top of them, at the end."""

    def __init__(self, image):
        self.image = image
        self.pen = ImageDraw.Draw(self.image)
        self.line = max(2, round(min(image.size) / 220))
        self.font = ImageFont.load_default(text_size(image))
        self.tags = []

    def draw(self, box, text, color):
        y_min, x_min, y_max, x_max = box
        width, height = self.image.size
        # A pixel is a place from i to i + 1: the last one inside is y_max - 1.
        left, right = np.clip([round(x_min), round(x_max) - 1], 0, width - 1).tolist()
        top, bottom = np.clip([round(y_min), round(y_max) - 1], 0, height - 1).tolist()
        outside = y_max <= 0 or x_max <= 0 or y_min >= height or x_min >= width
        if outside or right < left or bottom < top:
            return
        # Thin lines on tiny boxes, so that one sees what is in them.
        line = max(1, min(self.line, min(right - left, bottom - top) // 6))
        self.pen.rectangle((left, top, right, bottom), outline=color, width=line)
        if text:
            self.tags.append(((left, top, right, bottom), text, color))

    def finish(self):
        taken = []
        # The best box comes last: its name gets the first choice of places.
        for box, text, color in reversed(self.tags):
            taken.append(self._place(box, text, taken) + (text, color))
        for left, top, right, bottom, text, color in reversed(taken):
            self.pen.rectangle((left, top, right - 1, bottom - 1), fill=color)
            red, green, blue = color
            dark = 0.299 * red + 0.587 * green + 0.114 * blue > 140
            middle = ((left + right) / 2, (top + bottom) / 2)
            fill = "black" if dark else "white"
            self.pen.text(middle, text, fill=fill, font=self.font, anchor="mm")
        return np.asarray(self.image)

    def _place(self, box, text, taken):
        """The rectangle of a name: above its box, or the first free place."""
        left, top, right, bottom = box
        pad = max(2, self.line)
        width = round(self.font.getlength(text)) + 2 * pad
        height = round(self.font.size * 1.2) + pad
        full_width, full_height = self.image.size
        places = [
            (left, top - height),  # above, at the left
            (left, top),  # inside, at the top
            (right + 1 - width, top - height),  # above, at the right
            (left, bottom + 1),  # below
            (left, bottom + 1 - height),  # inside, at the bottom
            (right + 1 - width, bottom + 1),
        ]
        first = None
        for x, y in places:
            x = min(max(x, 0), max(full_width - width, 0))
            if y < 0 or y + height > full_height:
                continue
            place = (x, y, x + width, y + height)
            first = first or place
            if not any(_overlap(place, other) for other in taken):
                return place
        x = min(max(left, 0), max(full_width - width, 0))
        return first or (x, 0, x + width, height)


def _overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def as_image(image):
    image = np.asarray(image)
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] != 3):
        raise InvalidValueError(
            "`image` must be `[height, width, 3]` or `[height, width]`. "
            f"Received: image.shape={image.shape}"
        )
    if image.dtype != np.uint8:
        image = np.clip(np.round(image.astype("float32")), 0, 255).astype("uint8")
    return Image.fromarray(image).convert("RGB")


def text_size(image):
    return max(_MIN_TEXT, round(min(image.size) * _TEXT_SHARE))


# --- The class of each pixel as a color over the image.

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


# --- Images side by side, under titles.


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


# --- Boxes in colors that say what they are, not of which class.

GOOD, BAD, ASIDE = (56, 203, 84), (255, 69, 86), (0, 168, 255)  # green, red, blue


def draw_marked(image, marks):
    """Draws boxes with words on a copy of an image, `[H, W, 3]`, uint8.

    `marks` are `(box, words, color)`, boxes `yxyx` in pixels of the image. The first
    are drawn on top of the others, and have the first choice of places for their words.
    """
    painter = Painter(as_image(image))
    for box, words, color in reversed(marks):
        painter.draw(box, words, color)
    return painter.finish()
