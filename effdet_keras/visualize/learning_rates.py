"""The curve of a learning-rate range test, drawn with matplotlib."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from effdet_keras.visualize.history import require_matplotlib


def plot_learning_rates(
    rates: Sequence[float],
    losses: Sequence[float],
    smoothed: Sequence[float],
    suggestion: float,
    path: str | os.PathLike[str] | None = None,
) -> Any:
    """Draws losses over learning rates, and the rate that is suggested.

    Args:
        rates, losses, smoothed: sequences of as many floats.
        suggestion: float.
        path: path of the file to write, or None.

    Returns:
        The matplotlib figure.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    figure = require_matplotlib()(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(rates, losses, color="0.75", linewidth=1, label="loss of each step")
    axes.plot(rates, smoothed, linewidth=2, label="smoothed")
    axes.axvline(
        suggestion, color="0.3", linestyle="--", label=f"suggested: {suggestion:.2g}"
    )
    axes.set_xscale("log")
    # A last loss that has blown up would hide all others.
    axes.set_ylim(0, 1.1 * max(np.max(smoothed), np.percentile(losses, 90)))
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss")
    axes.set_title(
        "Learning-rate range test", fontsize=11, loc="left", fontweight="bold"
    )
    axes.grid(True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    if path is not None:
        figure.savefig(os.fspath(path), dpi=130)
    return figure
