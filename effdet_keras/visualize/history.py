"""The curves of a training, drawn with matplotlib."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from effdet_keras.errors import InvalidValueError, MissingPackageError
from effdet_keras.visualize.boxes import COLORS


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
        color = colors.setdefault(base, _plot_color(len(colors)))
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


def _plot_color(number):
    red, green, blue = COLORS[(1, 0, 2, 4, 7)[number % 5]]
    return (red / 255 * 0.85, green / 255 * 0.85, blue / 255 * 0.85)
