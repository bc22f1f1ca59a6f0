"""The curves of a training, drawn with matplotlib."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from effdet_keras.errors import InvalidValueError, MissingPackageError
from effdet_keras.visualize.boxes import COLORS, draw_boxes, draw_class_map


def plot_history(history: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """Draws the curves of a training: losses, precision, learning rate.

    Shows what is there: the loss and its terms for training and validation,
    `AP`, `AP50`, `AP75`, and the learning rate. A curve that was measured
    only in every second or third epoch (with NaN or nothing between) is drawn
    with its points in the right places.

    Args:
        history: what `model.fit` returns, or its `history` dict: lists of
            one number per epoch.
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
    if not panels:
        raise InvalidValueError(
            "`history` has no curve to draw. Received keys: " + str(sorted(curves))
        )
    figure_class = require_matplotlib()
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = figure_class(figsize=(5.6 * columns, 3.6 * rows), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
    epochs = max(len(values) for values in curves.values())
    for number, (title, names) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(rows, columns, number)
        _draw_panel(axes, title, {name: curves[name] for name in names}, epochs)
    if path is not None:
        figure.savefig(os.fspath(path), dpi=130)
    return figure


def history_panels(curves):
    """Title -> names of the curves that belong there and exist."""
    terms = ("class_loss", "box_loss", "box_iou_loss", "segmentation_loss")
    terms += ("reg_l2_loss",)
    wanted = {
        "Loss": ("loss", "val_loss"),
        "Loss terms": tuple(prefix + t for t in terms for prefix in ("", "val_")),
        "Average precision": ("AP", "AP50", "AP75"),
        "Mean IoU of pixels": ("mIoU",),
        "Learning rate": ("learning_rate",),
    }
    # A term that is switched off is zero throughout: no curve, and no logarithm.
    panels = {
        title: [name for name in names if name in curves and np.any(curves[name] != 0)]
        for title, names in wanted.items()
    }
    return {title: names for title, names in panels.items() if names}


def require_matplotlib():
    """Matplotlib's `Figure`, or an ImportError that says how to install it."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError(
            "Plots need matplotlib. Install it with "
            "`pip install 'effdet-keras[plot]'` or `pip install matplotlib`."
        ) from error
    return Figure


def _draw_panel(axes, title, curves, epochs):
    colors = {}
    for name, values in curves.items():
        # A curve and its validation share a color.
        base = name.removeprefix("val_")
        light = COLORS[(1, 0, 2, 4, 7)[len(colors) % 5]]
        color = colors.setdefault(base, tuple(x / 255 * 0.85 for x in light))
        # Measured in every k-th epoch: the last of each k.
        every = epochs // max(len(values), 1)
        epoch = epochs - every * np.arange(len(values))[::-1]
        known = np.isfinite(values)
        label = name
        if title == "Average precision" and known.any():
            label = f"{name} (best {values[known].max():.3f})"
        axes.plot(
            epoch[known],
            values[known],
            color=color,
            linestyle="--" if name != base else "-",
            marker="o" if len(values) <= 30 else None,
            markersize=3.5,
            linewidth=1.8,
            label=label,
        )
    axes.set_title(title, fontsize=11, loc="left", fontweight="bold")
    axes.set_xlabel("epoch")
    axes.set_xlim(1 - 0.02 * epochs, epochs * 1.02)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if title.startswith("Loss"):
        _use_log_scale(axes, curves.values())
    if title == "Average precision":
        axes.set_ylim(0, 1.02)
    if len(curves) > 1 or title == "Average precision":
        axes.legend(frameon=False, fontsize=8)


def _use_log_scale(axes, curves):
    """Losses fall by factors; plain numbers at the ticks, not powers of ten."""
    values = np.concatenate([curve[np.isfinite(curve)] for curve in curves])
    if not values.size or values.min() <= 0:
        return
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    wide = values.max() > 30 * values.min()
    axes.yaxis.set_major_locator(
        LogLocator(subs=(1, 3) if wide else (1, 1.5, 2, 3, 5, 7))
    )
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


# --- What training really sees of a dataset, as one grid of images.

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

    They come out of `dataset.batches(training=True)`, so they have gone through all
    of it: `augment`, flip, scale jitter, crop and padding.

    Args:
        dataset: `DetectionDataset`.
        augment: what `batches` takes: `ek.augment.Augmentation`, a function
            `(example, seed) -> example`, a list of these, or None.
        images: how many images, the first ones of the dataset, or the indices of some.
            Each fills a row.
        repeats: int, how often each is drawn, one column per draw.
        seed: int. The same seed gives the same grid.
        image_size: `(height, width)` of the network's input, or one int for both.
        **options: more arguments of `DetectionDataset.batches`, such as
            `scale_jitter=(0.5, 1.5)`.

    Returns:
        uint8 array `[H, W, 3]`, a row per image, a column per draw. `PIL.Image`
        writes it to a file: `Image.fromarray(grid).save("augmented.png")`.

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
    if not isinstance(repeats, numbers.Integral) or repeats < 1:
        raise InvalidValueError(
            f"`repeats` must be an int above zero. Received: repeats={repeats!r}"
        )
    chosen = _indices(images, len(dataset))
    # The chosen ones first; the others stay, because they are partners of mosaics.
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
    # Each pass over the batches has draws of its own.
    passes = batches.take(1).repeat(int(repeats))
    names = dataset.class_names, dataset.seg_class_names
    columns = [_drawn(*batch, *names) for batch in passes]
    return _grid(list(zip(*columns)))


def batch_grid(
    images: Any,
    truth: Any,
    class_names: Any,
    seg_class_names: Any = None,
    *,
    max_images: int = 16,
) -> np.ndarray:
    """Draws the images of a batch, as a step of the training gets them.

    Args:
        images: array `[B, H, W, 3]`, pixels 0-255.
        truth: dict with `boxes` `[B, M, 4]` and `labels` `[B, M]`, -1 in padding; and
            `masks` `[B, H, W]`, where there are names of classes of pixels.

    Returns:
        uint8 array `[H, W, 3]`, about as many rows as columns.
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


def _indices(images, size):
    """The places of the images to show, from a number of them or from a list."""
    if size == 0:
        raise InvalidValueError("`augmented` needs at least one image. Received none")
    if isinstance(images, numbers.Integral):
        if images < 1:
            raise InvalidValueError(
                "`images` must be above zero, or the indices of images. "
                f"Received: images={images}"
            )
        return list(range(min(images, size)))
    chosen = [int(index) for index in images]
    if not chosen or len(set(chosen)) < len(chosen):
        raise InvalidValueError(
            f"`images` must name images, each once. Received: images={chosen}"
        )
    wrong = [index for index in chosen if not 0 <= index < size]
    if wrong:
        raise InvalidValueError(
            f"`images` must be indices from 0 to {size - 1}, the last image of the "
            f"dataset. Received: {wrong}"
        )
    return chosen


def _drawn(images, truth, class_names, seg_class_names):
    """The images of a batch with their boxes, over the colors of their masks."""
    images = list(np.asarray(images))
    for place, mask in enumerate(np.asarray(truth.get("masks", ()))):
        images[place] = draw_class_map(images[place], mask, seg_class_names)
    examples = zip(images, np.asarray(truth["boxes"]), np.asarray(truth["labels"]))
    return [draw_boxes(*example, class_names=class_names) for example in examples]


def _grid(rows):
    """Joins images of one size, with white gaps between them."""
    padding = ((0, _GAP), (0, _GAP), (0, 0))
    padded = [
        np.concatenate(
            [np.pad(image, padding, constant_values=255) for image in row], axis=1
        )
        for row in rows
    ]
    return np.concatenate(padded)[:-_GAP, :-_GAP]
