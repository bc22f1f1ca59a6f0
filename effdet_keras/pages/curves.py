"""Charts of lines and points on two axes, as SVG text."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.pages.frame import HEIGHT, WIDTH, Frame, svg_element

MAX_LINES = 8  # colors that the style sheet has
_DOTS = 40  # points of a line, from which they are no longer marked


def curves(
    lines: Sequence[tuple[ArrayLike, ArrayLike]],
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    axes: tuple[str, str],
    *,
    diagonal: bool = False,
) -> str:
    """Draws lines; the axes end at their first and last ticks.

    A line is broken where a value is not finite. Short lines have their points marked.

    Args:
        lines: `(x, y)` of each, floats `[n]`; at most `MAX_LINES`.
        x_ticks: `(place, text)` of the grid, ascending.
        y_ticks: the same.
        axes: `(name of x, name of y)`.
        diagonal: bool, whether to draw a dashed line from corner to corner.

    Returns:
        str, an `<svg>` element. The lines have the colors of the classes `line0`,
        `line1`, ...

    Example:
        >>> chart = curves([([0, 1], [0.5, 1])], [(0, "0"), (1, "1")],
        ...     [(0, "0"), (1, "1")], ("recall", "precision"))
        >>> chart.count('class="line0"'), chart.count("<circle")
        (1, 2)
    """
    frame = Frame((x_ticks[0][0], x_ticks[-1][0] or 1), (y_ticks[0][0], y_ticks[-1][0]))
    parts = [frame.grid(x_ticks, y_ticks, axes)]
    if diagonal:
        start = frame.place(x_ticks[0][0], y_ticks[0][0])
        end = frame.place(x_ticks[-1][0], y_ticks[-1][0])
        path = f"M{start[0]} {start[1]}L{end[0]} {end[1]}"
        parts.append(f'<path class="diagonal" d="{path}"/>')
    for number, (x, y) in enumerate(lines[:MAX_LINES]):
        parts.append(_line(frame, np.asarray(x, float), np.asarray(y, float), number))
    return svg_element(WIDTH, HEIGHT, parts)


def unit_ticks() -> list[tuple[float, str]]:
    """Ticks of an axis from 0 to 1.

    Example:
        >>> unit_ticks()[1]
        (0.25, '0.25')
    """
    return [(value, f"{value:g}") for value in (0.0, 0.25, 0.5, 0.75, 1.0)]


def even_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """About four ticks, at steps of 1, 2 or 5 times a power of ten, around two values.

    Example:
        >>> even_ticks(0.3, 2.2)
        [(0.0, '0'), (0.5, '0.5'), (1.0, '1'), (1.5, '1.5'), (2.0, '2'), (2.5, '2.5')]
    """
    span = high - low
    if not span > 0:
        span = abs(high) or 1.0
    ten = 10.0 ** math.floor(math.log10(span / 4))
    step = next(ten * k for k in (1, 2, 5, 10) if ten * k >= span / 4)
    first, last = math.floor(low / step), math.ceil(high / step)
    last = max(last, first + 1)
    return [(k * step, f"{k * step:.6g}") for k in range(first, last + 1)]


def _line(frame, x, y, number):
    known = np.isfinite(x) & np.isfinite(y)
    path, marks, is_first = [], [], True
    for along, up, is_known in zip(x.tolist(), y.tolist(), known.tolist()):
        if not is_known:
            is_first = True
            continue
        left, top = frame.place(along, up)
        path.append(f"{'M' if is_first else 'L'}{left} {top}")
        marks.append(f'<circle class="point" cx="{left}" cy="{top}" r="2.4"/>')
        is_first = False
    dots = "".join(marks) if len(marks) <= _DOTS else ""
    return f'<g class="line{number}"><path class="line" d="{"".join(path)}"/>{dots}</g>'
