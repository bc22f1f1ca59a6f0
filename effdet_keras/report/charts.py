"""Small charts as SVG text, colored by the style sheet of the page around them."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

_MAX_POINTS = 3000  # drawn of a scatter; more only make the file large
_BAR = 22  # height of a row of `bars`


def scatter(points, highlighted, marks, axes):
    """Draws points on two logarithmic axes.

    Args:
        points: float array `[n, 2]`, x and y, above 0.
        highlighted: bool array `[n]`: drawn in the second color, on top.
        marks: float array `[k, 2]`, drawn as crosses.
    """
    points, highlighted = np.asarray(points), np.asarray(highlighted)
    if len(points) > _MAX_POINTS:
        rng = np.random.default_rng(0)
        rows = rng.choice(len(points), _MAX_POINTS, replace=False)
        points, highlighted = points[rows], highlighted[rows]
    logs = np.log2(np.concatenate([points, marks]))
    low, high = (logs.min(), logs.max()) if len(logs) else (0.0, 1.0)
    low = math.floor(low)
    high = max(math.ceil(high), low + 1)
    powers = range(low, high + 1, math.ceil((high - low + 1) / 12))
    ticks = [(power, f"{2.0**power:g}") for power in powers]
    frame = Frame((low, high), (low, high))
    parts = [frame.grid(ticks, ticks, axes)]
    for is_second, color in ((False, "first"), (True, "second")):
        dots = [frame.place(*np.log2(p)) for p in points[highlighted == is_second]]
        circles = "".join(f'<circle cx="{x}" cy="{y}" r="2"/>' for x, y in dots)
        parts.append(f'<g class="{color} dots">{circles}</g>')
    crosses = [frame.place(*np.log2(mark)) for mark in marks]
    path = "".join(f"M{x - 3:.1f} {y}h6M{x} {y - 3:.1f}v6" for x, y in crosses)
    parts.append(f'<path class="mark" d="{path}"/>')
    return _svg(HEIGHT, parts)


def histogram(values, edges, ticks, axes):
    """Draws how many values lie between each two edges.

    Values beyond the ends count into the first and the last bar.
    """
    edges = np.asarray(edges, float)
    inside = np.clip(values, edges[0], np.nextafter(edges[-1], -np.inf))
    counts, _ = np.histogram(inside, edges)
    top = max(int(counts.max(initial=0)), 1)
    frame = Frame((edges[0], edges[-1]), (0, top))
    step = int(_round_step(max(top / 4, 1)))
    rows = [(value, f"{value:,}") for value in range(0, top + 1, step)]
    parts = [frame.grid(ticks, rows, axes)]
    for count, start, end in zip(counts.tolist(), edges, edges[1:]):
        left, y = frame.place(start, count)
        right, bottom = frame.place(end, 0)
        parts.append(
            f'<rect class="first" x="{left + 0.5}" y="{y}" '
            f'width="{max(right - left - 1, 0.5):.1f}" height="{bottom - y:.1f}">'
            f"<title>{count:,}</title></rect>"
        )
    return _svg(HEIGHT, parts)


def bars(names, values, texts):
    """Draws a horizontal bar for each name, with a text at its end."""
    top = max([*values, 1e-9])
    name_width = min(14 + 7 * max(map(len, names), default=0), 170)
    room = WIDTH - name_width - 14 - 7 * max(map(len, texts), default=0)
    parts = []
    for row, (name, value, text) in enumerate(zip(names, values, texts)):
        middle = row * _BAR + _BAR / 2
        length = room * value / top
        parts.append(
            f'<text x="{name_width - 8}" y="{middle + 4}" text-anchor="end">'
            f"{_cut(name, 22)}</text>"
            f'<rect class="first" x="{name_width}" y="{middle - 7}" '
            f'width="{max(length, 1):.1f}" height="14" rx="2"/>'
            f'<text x="{name_width + length + 6:.1f}" y="{middle + 4}">'
            f"{html.escape(text)}</text>"
        )
    return _svg(_BAR * len(names), parts)


def _cut(name, longest):
    """A name, cut if it is long, which is shown whole where one points at it."""
    shown = name if len(name) <= longest else name[: longest - 1] + "…"
    return f"{html.escape(shown)}<title>{html.escape(name)}</title>"


# --- Charts of lines and points on two axes, as SVG text.

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
    `lines` are `(x, y)` of each, floats `[n]`; at most `MAX_LINES`.
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
    return _svg(HEIGHT, parts)


def unit_ticks() -> list[tuple[float, str]]:
    """Ticks of an axis from 0 to 1."""
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
    step = _round_step(span / 4)
    first, last = math.floor(low / step), math.ceil(high / step)
    last = max(last, first + 1)
    return [(k * step, f"{k * step:.6g}") for k in range(first, last + 1)]


def _round_step(least):
    """1, 2 or 5 times a power of ten: the first of these that is no smaller."""
    ten = 10.0 ** math.floor(math.log10(least))
    return next(ten * k for k in (1, 2, 5, 10) if ten * k >= least)


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


# --- A table of counts as colored cells, as SVG text.

_NAMES = 92  # width of the names of the rows
_TOP = 18  # height of the name of the columns
_DARKEST = 0.7  # opacity: numbers stay legible


def heat_map(rows, columns, counts, axes):
    """Draws counts `[rows, columns]` as cells, each as dark as its share of its row."""
    counts = np.asarray(counts)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = (WIDTH - _NAMES - 4) / max(len(columns), 1)
    high = min(side, 46.0)
    parts = [
        f'<text x="{WIDTH - 4}" y="11" text-anchor="end">{html.escape(axes[0])}</text>'
        f'<text x="4" y="11">{html.escape(axes[1])}</text>'
    ]
    for row, name in enumerate(rows):
        top = _TOP + row * high
        parts.append(_name(_NAMES - 6, top + high / 2 + 4, name))
        for column in range(len(columns)):
            left, share = _NAMES + column * side, float(shares[row, column])
            parts.append(
                f'<rect class="cell" x="{left:.1f}" y="{top:.1f}" '
                f'width="{side - 1:.1f}" height="{high - 1:.1f}" '
                f'fill-opacity="{max(round(_DARKEST * share, 3), 0.03):g}"/>'
                f'<text class="cell-text" x="{left + side / 2:.1f}" '
                f'y="{top + high / 2 + 4:.1f}" text-anchor="middle">'
                f"{int(counts[row, column])}</text>"
            )
    bottom = _TOP + len(rows) * high + 12
    for column, name in enumerate(columns):
        left = _NAMES + (column + 0.5) * side + 4
        turn = f' transform="rotate(-40 {left:.1f} {bottom:.1f})"'
        parts.append(_name(left, bottom, name, turn))
    return _svg(f"{bottom + 62:.0f}", parts)


def _name(x, y, name, more=""):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="end"{more}>{_cut(name, 13)}</text>'
    )


# --- A chart with its title and words, and charts beside each other.


class Chart(NamedTuple):
    """A chart with its words."""

    title: str
    svg: str
    words: tuple = ()  # lines below it
    legend: tuple = ()  # the names of its lines, in the order of their colors


def chart_figures(charts: Iterable[Chart]) -> str:
    """Writes charts as HTML, as many side by side as have room."""
    return f'<div class="charts">{"".join(map(_figure, charts))}</div>'


def _figure(chart):
    items = "".join(
        f'<li class="line{number}">{html.escape(name)}</li>'
        for number, name in enumerate(chart.legend)
    )
    legend = f'<ul class="legend">{items}</ul>' if items else ""
    words = "".join(f"<figcaption>{html.escape(w)}</figcaption>" for w in chart.words)
    return (
        f"<figure><h3>{html.escape(chart.title)}</h3>{chart.svg}{legend}{words}"
        "</figure>\n"
    )


# --- The frame of a chart: where values lie on the paper, grid, numbers, names.

WIDTH, HEIGHT = 420, 260
_LEFT, _RIGHT, _TOP_OF_FRAME, _BOTTOM = 46, 18, 24, 34


class Frame:
    """Places on the paper of values on two axes."""

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
        """Lines and numbers of both axes, and their names."""
        lines, words = [], []
        for value, text in x_ticks:
            x, bottom = self.place(value, self._y[0])
            lines.append(f"M{x} {_TOP_OF_FRAME}V{bottom}")
            words.append(_word(x, bottom + 15, text, "middle"))
        for value, text in y_ticks:
            left, y = self.place(self._x[0], value)
            lines.append(f"M{left} {y}H{WIDTH - _RIGHT}")
            words.append(_word(left - 5, y + 4, text, "end"))
        words.append(_word(WIDTH - _RIGHT, HEIGHT - 4, axes[0], "end"))
        words.append(_word(4, _TOP_OF_FRAME - 12, axes[1], "start"))
        return f'<path class="grid" d="{"".join(lines)}"/>{"".join(words)}'


def _word(x, y, text, anchor):
    return (
        f'<text x="{x}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'
    )


def _svg(height, parts):
    return f'<svg viewBox="0 0 {WIDTH} {height}">{"".join(parts)}</svg>'
