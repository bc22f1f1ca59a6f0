"""Small charts as SVG, colored by the style sheet of the page around them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from effdet_keras.extras.report.pages import Markup, concat_markup, element

WIDTH, HEIGHT = 420, 260
MAX_LINES = 8  # number of colors in the style sheet
_MAX_POINTS = 3000  # of a scatter plot; more would only make the file larger
_DOTS = 40  # lines with more points have no dots
_BAR = 22  # height of a row of `bars`


class Chart(NamedTuple):
    """A chart with its title, captions and legend."""

    title: str
    svg: str
    words: tuple = ()  # captions below it
    legend: tuple = ()  # names of its lines, in the order of their colors


def chart_figures(charts):
    """Returns charts as HTML, side by side if there is room."""
    figures = [_figure(chart) for chart in charts]
    return element("div", *figures, class_="charts") if figures else Markup()


def _figure(chart):
    lines = (
        element("li", name, class_=f"line{number}")
        for number, name in enumerate(chart.legend)
    )
    return element(
        "figure",
        element("h3", chart.title),
        Markup(chart.svg),
        element("ul", *lines, class_="legend") if chart.legend else "",
        *(element("figcaption", words) for words in chart.words),
    )


def scatter(points, highlighted, marks, axes):
    """Draws points `[n, 2]` on log axes, some highlighted, and crosses `[k, 2]`."""
    points, highlighted = np.asarray(points), np.asarray(highlighted)
    every = max(1, len(points) // _MAX_POINTS)
    points, highlighted = points[::every], highlighted[::every]
    logs = np.log2(np.concatenate([points, marks]))
    low, high = (logs.min(), logs.max()) if len(logs) else (0.0, 1.0)
    low = math.floor(low)
    high = max(math.ceil(high), low + 1)
    powers = range(low, high + 1, math.ceil((high - low + 1) / 12))
    ticks = [(power, f"{2.0**power:g}") for power in powers]
    frame = _Frame((low, high), (low, high))
    parts = [frame.grid(ticks, ticks, axes)]
    for is_second, color in ((False, "first"), (True, "second")):
        dots = [frame.place(*np.log2(p)) for p in points[highlighted == is_second]]
        circles = [element("circle", cx=x, cy=y, r=2) for x, y in dots]
        parts.append(element("g", *circles, class_=f"{color} dots"))
    crosses = [frame.place(*np.log2(mark)) for mark in marks]
    path = "".join(f"M{x - 3:.1f} {y}h6M{x} {y - 3:.1f}v6" for x, y in crosses)
    return _svg(HEIGHT, *parts, element("path", class_="mark", d=path))


def bars(names, values, texts):
    """Draws a horizontal bar for each name, with text at its end."""
    top = max([*values, 1e-9])
    left = min(14 + 8 * max(map(len, names), default=0), 178)  # phones have 13 px text
    room = WIDTH - left - 14 - 7 * max(map(len, texts), default=0)
    parts = []
    for row, (name, value, text) in enumerate(zip(names, values, texts)):
        middle = row * _BAR + _BAR / 2
        length = room * value / top
        parts += [
            _text(left - 8, middle + 4, *_cut(name, 22)),
            _rect(left, middle - 7, max(length, 1), 14, "first"),
            _text(left + length + 6, middle + 4, text, anchor="start"),
        ]
    return _svg(_BAR * len(names), *parts)


def intervals(names, ranges, texts):
    """Draws an interval for each name, as a line with a dot at the value.

    `ranges` are `(low, value, high)`. A dashed vertical line marks zero.
    """
    ends = [end for low, _, high in ranges for end in (low, high)]
    low, high = min([*ends, 0.0]), max([*ends, 0.0])
    span = high - low or 1.0
    left = min(14 + 7 * max(map(len, names), default=0), 170)
    room = WIDTH - left - 24 - 7 * max(map(len, texts), default=0)
    height = _BAR * len(names)

    def place(value):
        return round(left + room * (value - low) / span, 1)

    parts = [element("path", class_="diagonal", d=f"M{place(0.0)} 0V{height}")]
    for row, (name, (start, value, end), text) in enumerate(zip(names, ranges, texts)):
        middle = row * _BAR + _BAR / 2
        line = element(
            "path", class_="line", d=f"M{place(start)} {middle}H{place(end)}"
        )
        dot = element("circle", class_="point", cx=place(value), cy=middle, r=3)
        parts += [
            _text(left - 8, middle + 4, *_cut(name, 22)),
            element("g", line, dot, class_="line0"),
            _text(left + room + 8, middle + 4, text, anchor="start"),
        ]
    return _svg(height, *parts)


def curves(lines, x_ticks, y_ticks, axes, *, diagonal=False, dots=()):
    """Draws lines `(x, y)` on axes that end at their ticks; NaN interrupts a line.

    `dots` are additional points `(x, y)` for each line, in its color.
    """
    (left, _), *_, (right, _) = x_ticks
    (bottom, _), *_, (top, _) = y_ticks
    frame = _Frame((left, right or 1), (bottom, top))
    parts = [frame.grid(x_ticks, y_ticks, axes)]
    if diagonal:
        (x0, y0), (x1, y1) = frame.place(left, bottom), frame.place(right, top)
        parts.append(element("path", class_="diagonal", d=f"M{x0} {y0}L{x1} {y1}"))
    for number, (x, y) in enumerate(lines[:MAX_LINES]):
        line = _line(frame, np.asarray(x, float), np.asarray(y, float))
        parts.append(element("g", *line, class_=f"line{number}"))
    for number, (x, y) in enumerate(dots[:MAX_LINES]):
        _, *marks = _line(frame, np.asarray(x, float), np.asarray(y, float))
        parts.append(element("g", *marks, class_=f"line{number}"))
    return _svg(HEIGHT, *parts)


def _line(frame, x, y):
    path, marks, command = [], [], "M"
    for along, up in zip(x.tolist(), y.tolist()):
        if not math.isfinite(along + up):
            command = "M"
            continue
        left, top = frame.place(along, up)
        path.append(f"{command}{left} {top}")
        marks.append(element("circle", class_="point", cx=left, cy=top, r=2.4))
        command = "L"
    line = element("path", class_="line", d="".join(path))
    return [line, *marks] if len(marks) <= _DOTS else [line]


UNIT_TICKS = [(value, f"{value:g}") for value in (0.0, 0.25, 0.5, 0.75, 1.0)]


def even_ticks(low, high, least_step=0.0):
    """Returns about four ticks around two values, at steps of 1, 2 or 5 * 10 ** k."""
    size = (high - low) if high > low else abs(high) or 1.0
    step = _round_step(max(size / 4, least_step))
    first, last = math.floor(low / step), math.ceil(high / step)
    last = max(last, first + 1)
    return [(k * step, f"{k * step:.6g}") for k in range(first, last + 1)]


def _round_step(least):
    """Returns the smallest 1, 2 or 5 times a power of ten that is at least `least`."""
    ten = 10.0 ** math.floor(math.log10(least))
    return next(ten * k for k in (1, 2, 5, 10) if ten * k >= least)


# --- Tables of counts as colored cells.

_NAMES = 92  # width of the row names
_TOP = 18  # height of the axis names
_DARKEST = 0.7  # opacity at which numbers are still legible


def heat_map(rows, columns, counts, axes):
    """Draws counts `[rows, columns]` as cells, shaded by their share of the row."""
    counts = np.asarray(counts)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = (WIDTH - _NAMES - 4) / max(len(columns), 1)
    high = min(side, 46.0)
    parts = [_text(WIDTH - 4, 11, axes[0]), _text(4, 11, axes[1], anchor="start")]
    for row, name in enumerate(rows):
        top = _TOP + row * high
        middle = top + high / 2 + 4
        parts.append(_text(_NAMES - 6, middle, *_cut(name, 13)))
        for column in range(len(columns)):
            left, share = _NAMES + column * side, float(shares[row, column])
            opacity = f"{max(round(_DARKEST * share, 3), 0.03):g}"
            cell = {"class_": "cell-text", "anchor": "middle"}
            parts += [
                _rect(left, top, side - 1, high - 1, "cell", fill_opacity=opacity),
                _text(left + side / 2, middle, int(counts[row, column]), **cell),
            ]
    bottom = _TOP + len(rows) * high + 12
    for column, name in enumerate(columns):
        left = _NAMES + (column + 0.5) * side + 4
        turn = f"rotate(-40 {left:.1f} {bottom:.1f})"
        parts.append(_text(left, bottom, *_cut(name, 13), transform=turn))
    return _svg(f"{bottom + 62:.0f}", *parts)


# --- The frame of a chart: coordinates, grid, numbers and names of axes.

_LEFT, _RIGHT, _TOP_OF_FRAME, _BOTTOM = 46, 18, 24, 34


class _Frame:
    """Converts values on two axes to coordinates in the chart."""

    def __init__(self, x_range, y_range):
        self._x, self._y = x_range, y_range

    def place(self, x, y):
        width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP_OF_FRAME - _BOTTOM
        along = (x - self._x[0]) / (self._x[1] - self._x[0])
        up = (y - self._y[0]) / (self._y[1] - self._y[0])
        return (
            round(float(_LEFT + along * width), 1),
            round(float(HEIGHT - _BOTTOM - up * height), 1),
        )

    def grid(self, x_ticks, y_ticks, axes):
        """Returns lines and numbers of both axes, and their names."""
        lines, words = [], []
        for value, text in x_ticks:
            x, bottom = self.place(value, self._y[0])
            lines.append(f"M{x} {_TOP_OF_FRAME}V{bottom}")
            words.append(_text(x, bottom + 15, text, anchor="middle"))
        for value, text in y_ticks:
            left, y = self.place(self._x[0], value)
            lines.append(f"M{left} {y}H{WIDTH - _RIGHT}")
            words.append(_text(left - 5, y + 4, text))
        words.append(_text(WIDTH - _RIGHT, HEIGHT - 4, axes[0]))
        words.append(_text(4, _TOP_OF_FRAME - 12, axes[1], anchor="start"))
        return concat_markup(element("path", class_="grid", d="".join(lines)), *words)


def _text(x, y, *contents, anchor="end", **attributes):
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text_anchor": anchor}
    return element("text", *contents, **attributes, **place)


def _rect(x, y, width, height, class_, title=None, **attributes):
    sizes = {"x": x, "y": y, "width": width, "height": height}
    sizes = {name: f"{value:.1f}" for name, value in sizes.items()}
    contents = [] if title is None else [element("title", title)]
    return element("rect", *contents, class_=class_, **sizes, **attributes)


def _cut(name, longest):
    """Returns a name, shortened if it is long, and the whole name as a tooltip."""
    shown = name if len(name) <= longest else name[: longest - 1] + "…"
    return shown, element("title", name)


def _svg(height, *parts):
    return element("svg", *parts, viewBox=f"0 0 {WIDTH} {height}")
