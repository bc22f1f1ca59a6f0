"""Draws boxes on images, images as training sees them, and training curves."""

from __future__ import annotations

import colorsys
import math
import numbers
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw, ImageFont

from effdet_keras._internal.number_ranges import check_whole_number
from effdet_keras._internal.optional_imports import matplotlib_figure
from effdet_keras.errors import check_argument, require
from effdet_keras.labels import IGNORED_PIXEL

__all__ = ["augmented", "draw_boxes", "plot_history", "side_by_side"]

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
    """Returns the color of a class, the same in every image: `(red, green, blue)`."""
    label = int(label)
    if 0 <= label < len(COLORS):
        return COLORS[label]
    # Steps of the golden ratio around the circle of hues never repeat a hue.
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

    Boxes with high scores are drawn on top. Rows with a label below 0, or with a box
    that is not finite, are not drawn.

    Args:
        image: array `[H, W, 3]` or `[H, W]`, uint8, or float from 0 to 255.
        boxes: array `[n, 4]`, `yxyx` in pixels of the image.
        labels: ints `[n]`, or `None` for one color and no names.
        scores: floats `[n]`, or `None` to draw no scores, as for ground truth.
        class_names: names by label, or `None` to draw the numbers of labels.
        min_side: int. An image whose longer side is shorter is enlarged first, by a
            factor of 2, 3, ..., so that there is room for names on tiny images.

    Returns:
        uint8 array `[H, W, 3]`, or larger by a whole factor with `min_side`.

    Raises:
        ValueError: If the image has another shape, or `min_side` is below 1.

    Example:
        >>> image = np.zeros((40, 60, 3), "uint8")
        >>> drawn = draw_boxes(image, [[5, 5, 35, 50]], [0], [0.9], ["cat"])
        >>> drawn.shape, drawn.any(), image.any()
        ((40, 60, 3), np.True_, np.False_)
    """
    image = _as_image(image)
    boxes = np.asarray(boxes, "float64").reshape(-1, 4)
    check_whole_number("min_side", min_side, "[1, inf)", others=(None,))
    factor = max(1, math.ceil((min_side or 0) / max(image.size)))
    if factor > 1:
        size = (image.width * factor, image.height * factor)
        image = image.resize(size, Image.Resampling.BICUBIC)
    painter = _Painter(image)
    order = range(len(boxes))
    if scores is not None:
        order = np.argsort(np.asarray(scores, "float64"), kind="stable")
    names = () if class_names is None else class_names
    for i in order:
        label = 0 if labels is None else int(labels[i])
        if label < 0 or not np.isfinite(boxes[i]).all():
            continue
        name = names[label] if label < len(names) else label
        words = [] if labels is None else [str(name)]
        words += [] if scores is None else [f"{float(scores[i]):.2f}"]
        painter.draw(boxes[i] * factor, " ".join(words), class_color(label))
    return painter.finish()


def draw_marked(image, marks):
    """Draws `(box, words, color)` on a copy of an image, the first marks on top."""
    painter = _Painter(_as_image(image))
    for box, words, color in reversed(marks):
        painter.draw(box, words, color)
    return painter.finish()


class _Painter:
    """Draws boxes immediately, and at the end all names on top of them."""

    def __init__(self, image):
        self.image = image
        self.pen = ImageDraw.Draw(self.image)
        self.line = max(2, round(min(image.size) / 220))
        self.font = ImageFont.load_default(_text_size(image))
        self.tags = []

    def draw(self, box, text, color):
        y_min, x_min, y_max, x_max = box
        width, height = self.image.size
        # Pixel i covers the interval from i to i + 1, so the last one inside a box is
        # y_max - 1.
        left, right = np.clip([round(x_min), round(x_max) - 1], 0, width - 1).tolist()
        top, bottom = np.clip([round(y_min), round(y_max) - 1], 0, height - 1).tolist()
        outside = y_max <= 0 or x_max <= 0 or y_min >= height or x_min >= width
        if outside or right < left or bottom < top:
            return
        # Thin lines on tiny boxes, so that their content stays visible.
        line = max(1, min(self.line, min(right - left, bottom - top) // 6))
        self.pen.rectangle((left, top, right, bottom), outline=color, width=line)
        if text:
            self.tags.append(((left, top, right, bottom), text, color))

    def finish(self):
        taken = []
        # The best box comes last. Its name is placed first.
        for box, text, color in reversed(self.tags):
            taken.append(self._place(box, text, taken) + (text, color))
        for left, top, right, bottom, text, color in reversed(taken):
            self.pen.rectangle((left, top, right - 1, bottom - 1), fill=color)
            red, green, blue = color
            is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 140
            middle = ((left + right) / 2, (top + bottom) / 2)
            fill = "black" if is_light else "white"
            self.pen.text(middle, text, fill=fill, font=self.font, anchor="mm")
        return np.asarray(self.image)

    def _place(self, box, text, taken):
        """Returns the rectangle for a name: above its box, or inside at its top."""
        left, top, *_ = box
        pad = max(2, self.line)
        width = round(self.font.getlength(text)) + 2 * pad
        height = round(self.font.size * 1.2) + pad
        x = min(max(left, 0), max(self.image.width - width, 0))
        places = [(x, y, x + width, y + height) for y in (top - height, top)]
        inside = [place for place in places if place[1] >= 0]
        free = (a for a in inside if not any(_overlap(a, b) for b in taken))
        return next(free, inside[0])


def _overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _as_image(image):
    image = np.asarray(image)
    is_image = image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)
    rule = "`image` must be `[height, width, 3]` or `[height, width]`"
    require(is_image, rule, **{"image.shape": image.shape})
    if image.dtype != np.uint8:
        image = np.clip(np.round(image.astype("float32")), 0, 255).astype("uint8")
    return Image.fromarray(image).convert("RGB")


def _text_size(image):
    return max(_MIN_TEXT, round(min(image.size) * _TEXT_SHARE))


def draw_class_map(image, class_map, seg_class_names=None, *, opacity=0.5):
    """Colors the pixels of a copy of an image by their class.

    Pixels of the class "background" and pixels of 255 keep their color. If class 0 is
    "background", class `i + 1` has the color of the boxes of label `i`.

    Args:
        image: array `[H, W, 3]` or `[H, W]`, uint8, or float from 0 to 255.
        class_map: ints `[H, W]`, the class of each pixel.
        seg_class_names: names of the pixel classes, or None.
        opacity: float from 0 to 1, the weight of the class color.

    Returns:
        uint8 array `[H, W, 3]`.

    Raises:
        ValueError: If the two sizes differ.
    """
    image = np.asarray(_as_image(image))
    class_map = np.asarray(class_map)
    shapes = {"class_map.shape": class_map.shape, "image.shape": image.shape}
    is_right = class_map.shape == image.shape[:2]
    require(is_right, "`class_map` must have the image's size", **shapes)
    names = tuple(seg_class_names or ())
    first = 1 if names[:1] == ("background",) else 0
    colors = np.zeros((IGNORED_PIXEL + 1, 3), np.float32)
    shares = np.full((IGNORED_PIXEL + 1, 1), opacity, np.float32)
    for label in np.unique(class_map).tolist():
        is_background = label < len(names) and names[label] == "background"
        if is_background or label == IGNORED_PIXEL:
            shares[label] = 0.0
        else:
            colors[label] = class_color(label - first)
    drawn = image + shares[class_map] * (colors[class_map] - image)
    return np.round(drawn).astype(np.uint8)


def side_by_side(
    left: ArrayLike,
    right: ArrayLike,
    titles: Sequence[str] | None = ("ground truth", "detected"),
) -> np.ndarray:
    """Joins two images, with a title above each.

    Args:
        left: array `[H, W, 3]` or `[H, W]`, uint8, or float from 0 to 255.
        right: array like `left`. The space below a shorter image is white.
        titles: two strings, or `None`.

    Returns:
        uint8 array `[H + title, W_left + gap + W_right, 3]`.

    Raises:
        ValueError: If an image has another shape.

    Example:
        >>> left, right = np.zeros((40, 60, 3)), np.zeros((20, 30, 3))
        >>> side_by_side(left, right, titles=None).shape
        (40, 94, 3)
    """
    images = [_as_image(left), _as_image(right)]
    height = max(image.height for image in images)
    gap = max(4, height // 100)
    size = _text_size(images[0]) + 1
    bar = 0 if titles is None else 2 * size
    width = sum(image.width for image in images) + gap
    canvas = Image.new("RGB", (width, height + bar), "white")
    pen = ImageDraw.Draw(canvas)
    edges, font = (0, images[0].width + gap), ImageFont.load_default(size)
    for edge, image, title in zip(edges, images, titles or ("", "")):
        canvas.paste(image, (edge, bar))
        middle = (edge + image.width / 2, bar / 2)
        pen.text(middle, title, fill="black", font=font, anchor="mm")
    return np.asarray(canvas)


# --- The images of a dataset as training sees them, in a grid.

_GAP = 4  # white pixels between the images of a grid


def augmented(
    dataset: Any,
    augment: Any = None,
    *,
    images: int | Iterable[int] = 4,
    repeats: int = 4,
    seed: int = 0,
    image_size: int | tuple[int, int] = 320,
    **options: Any,
) -> np.ndarray:
    """Draws images as training sees them, with their boxes and class names.

    Args:
        dataset: `DetectionDataset`.
        augment: `augment` of `DetectionDataset.batches`.
        images: int, the number of images from the beginning of the dataset; or the
            indices of images.
        repeats: int, how often each image is drawn.
        seed: int. The same seed gives the same grid.
        image_size: `(height, width)` of the network's input, or one int for both.
        **options: further arguments of `DetectionDataset.batches`. The default of
            `scale_jitter` is (0.1, 2.0). For datasets of up to 5,000 images,
            `model.batches` uses (0.8, 1.25): pass that to see its batches.

    Returns:
        uint8 array `[H, W, 3]`, a row per image, a column per draw.

    Raises:
        ValueError: If the dataset is empty, or an argument is out of its range.
        ImportError: If TensorFlow is not installed.

    Example:
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> image = np.zeros((48, 64, 3), "uint8")
        >>> dataset = from_arrays(
        ...     [image] * 2, boxes=[[[4, 8, 40, 40]]] * 2, labels=[[0]] * 2,
        ...     class_names=["cat"])
        >>> grid = augmented(dataset, images=2, repeats=3, image_size=96)
        >>> grid.shape, grid.dtype  # 2 x 3 images of 96 x 96, 4 pixels apart
        ((196, 296, 3), dtype('uint8'))
    """
    check_whole_number("repeats", repeats, "[1, inf)")
    if isinstance(images, numbers.Integral):
        images = range(min(images, len(dataset)))
    chosen = [int(index) for index in images]
    expected = "a number above zero, or indices, of a dataset with images"
    check_argument(len(chosen) > 0, "images", images, expected)
    # The chosen images come first. The others are kept as partners for mosaics.
    others = sorted(set(range(len(dataset))) - set(chosen))
    batches = dataset.subset([*chosen, *others]).batches(
        len(chosen),
        image_size=image_size,
        augment=augment,
        seed=seed,
        training=True,
        shuffle=False,
        **options,
    )
    # Each pass over the batches draws new random numbers.
    passes = batches.take(1).repeat(int(repeats))
    names = dataset.class_names, dataset.seg_class_names
    columns = [_drawn(*batch, *names) for batch in passes]
    return _grid(list(zip(*columns)))


def batch_grid(images, truth, class_names, seg_class_names=None, *, max_images=16):
    """Draws the images of a batch, `[B, H, W, 3]`, with boxes, labels and masks.

    Returns them as a grid, a uint8 array `[height, width, 3]`.
    """
    known = [name for name in ("boxes", "labels", "masks") if name in truth]
    drawn = _drawn(
        np.asarray(images)[:max_images],
        {name: np.asarray(truth[name])[:max_images] for name in known},
        class_names,
        seg_class_names,
    )
    columns = math.ceil(math.sqrt(len(drawn)))
    rows = [drawn[i : i + columns] for i in range(0, len(drawn), columns)]
    white = np.full_like(drawn[0], 255)
    rows[-1] = rows[-1] + [white] * (columns - len(rows[-1]))
    return _grid(rows)


def _drawn(images, truth, class_names, seg_class_names):
    """Returns the images of a batch with their boxes, over the colors of masks."""
    images = list(np.asarray(images))
    for place, mask in enumerate(np.asarray(truth.get("masks", ()))):
        images[place] = draw_class_map(images[place], mask, seg_class_names)
    examples = zip(images, np.asarray(truth["boxes"]), np.asarray(truth["labels"]))
    return [draw_boxes(*example, class_names=class_names) for example in examples]


def _grid(rows):
    """Joins images of one size, with white gaps between them."""
    padding = ((0, _GAP), (0, _GAP), (0, 0))
    padded = [[np.pad(x, padding, constant_values=255) for x in row] for row in rows]
    canvas = np.concatenate([np.concatenate(row, axis=1) for row in padded])
    return canvas[:-_GAP, :-_GAP]


# --- The curves of a training, drawn with matplotlib.


def plot_history(history: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """Draws the curves of a training: losses, precision, learning rate.

    It draws the curves that the history contains: the loss and its terms for training
    and validation, `AP`, `AP50`, `AP75`, `mIoU`, and the learning rate. A curve that is
    always zero is omitted.

    Args:
        history: the `keras.callbacks.History` that `model.fit` returns, or its
            `history` dict of lists with one number per epoch.
        path: path of the file to write, such as `curves.png`, or `None`.

    Returns:
        The matplotlib figure.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If the history has no curve.

    Example:
        >>> figure = plot_history({"loss": [3.0, 2.0], "AP": [0.1, 0.2]})
        >>> [axes.get_title(loc="left") for axes in figure.axes]
        ['Loss', 'Average precision']
    """
    history = getattr(history, "history", history)
    curves = {name: np.asarray(values, "float64") for name, values in history.items()}
    panels = history_panels(curves)
    require(panels, "`history` has no curve to draw", keys=sorted(curves))
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = matplotlib_figure.Figure(
        figsize=(5.6 * columns, 3.6 * rows), layout="constrained"
    )
    epochs = max(len(values) for values in curves.values())
    for number, (title, names) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(rows, columns, number)
        _draw_panel(axes, title, {name: curves[name] for name in names}, epochs)
    if path is not None:
        figure.savefig(os.fspath(path), dpi=130)
    return figure


_PANELS = {
    "Loss": ("loss",),
    "Loss terms": (
        "class_loss",
        "box_loss",
        "box_iou_loss",
        "segmentation_loss",
        "reg_l2_loss",
    ),
    "Average precision": ("AP", "AP50", "AP75"),
    "Mean IoU of pixels": ("mIoU",),
    "Learning rate": ("learning_rate",),
}


def history_panels(curves):
    """Returns a dict from the title of a panel to the names of its curves."""
    # A term that is switched off is always zero. It has no curve, and no logarithm.
    used = {name for name, values in curves.items() if np.any(values != 0)}
    panels = {
        title: [n for name in names for n in (name, f"val_{name}") if n in used]
        for title, names in _PANELS.items()
    }
    return {title: names for title, names in panels.items() if names}


def _draw_panel(axes, title, curves, epochs):
    """Draws curves over epochs in one panel. Validation curves are dashed."""
    bases = list(dict.fromkeys(name.removeprefix("val_") for name in curves))
    for name, values in curves.items():
        base = name.removeprefix("val_")  # a curve and its validation share a color
        # A curve with fewer values was measured every k epochs, in the last of each k.
        every = epochs // max(len(values), 1)
        epoch = epochs - every * np.arange(len(values))[::-1]
        known = np.isfinite(values)
        curve = epoch[known], values[known], "-" if name == base else "--"
        axes.plot(*curve, color=f"C{bases.index(base)}", marker=".", label=name)
    axes.set_title(title, loc="left")
    axes.set_xlabel("epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(True, alpha=0.25)
    if title.startswith("Loss"):  # losses fall by factors
        axes.set_yscale("log")
    axes.legend(fontsize=8)
