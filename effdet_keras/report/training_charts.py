"""The curves of a training, as charts of a page."""

import math

import numpy as np

from effdet_keras.pages.chart import Chart
from effdet_keras.pages.curves import MAX_LINES, curves, even_ticks
from effdet_keras.visualize.history import history_panels


def training_charts(history):
    """Draws the curves of a training.

    Args:
        history: mapping from name to one number per epoch; NaN where an epoch has
            none.

    Returns:
        List of `Chart`: losses, average precision, learning rate, as far as they are
        known.

    Example:
        >>> history = {"loss": [3.0, 2.0], "AP": [0.1, float("nan")]}
        >>> for chart in training_charts(history):
        ...     print(chart.title, chart.legend)
        Loss ('loss',)
        Average precision ('AP (best 0.100)',)
    """
    lines = {name: np.asarray(values, float) for name, values in history.items()}
    lines = {name: x for name, x in lines.items() if np.isfinite(x).any()}
    return [
        _panel(title, {name: lines[name] for name in names[:MAX_LINES]})
        for title, names in history_panels(lines).items()
    ]


def _panel(title, lines):
    known = np.concatenate([values[np.isfinite(values)] for values in lines.values()])
    is_log = title.startswith("Loss") and known.min() > 0
    low, high = float(known.min()), float(known.max())
    if is_log:  # losses fall by factors
        y_ticks = _log_ticks(low, high)
        lines = {name: np.log10(values) for name, values in lines.items()}
    else:
        y_ticks = even_ticks(0.0, high)
    epochs = max(map(len, lines.values()))
    x_ticks = _epoch_ticks(epochs)
    svg = curves(
        [(np.arange(1, len(values) + 1), values) for values in lines.values()],
        x_ticks,
        y_ticks,
        ("epoch", "logarithmic" if is_log else ""),
    )
    legend = list(lines)
    if title == "Average precision":
        legend = [f"{n} (best {np.nanmax(v):.3f})" for n, v in lines.items()]
    return Chart(title, svg, (), tuple(legend))


def _epoch_ticks(epochs):
    """Whole numbers from 0, at most eight."""
    step = max(1, math.ceil(epochs / 6))
    last = max(1, math.ceil(epochs / step))
    return [(k * step, f"{k * step}") for k in range(last + 1)]


def _log_ticks(low, high):
    """1, 2 and 5 times powers of ten, around two values, at their logarithms."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    steps = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    first = max(k for k, value in enumerate(steps) if value <= low)
    last = min((k for k, value in enumerate(steps) if value >= high), default=first + 1)
    chosen = steps[first : max(last, first + 1) + 1]
    every = math.ceil(len(chosen) / 8)
    thin = chosen[::every]
    if thin[-1] < high:
        thin.append(chosen[-1])
    return [(math.log10(value), f"{value:g}") for value in thin]
