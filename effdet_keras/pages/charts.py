"""Small charts as SVG text, colored by the style sheet of the page around them."""

import html
import math

import numpy as np

from effdet_keras.pages.frame import HEIGHT, WIDTH, Frame, round_ticks, svg_element

_MAX_POINTS = 3000  # drawn of a scatter; more only make the file large
_BAR = 22  # height of a row of `bars`


def scatter(points, highlighted, marks, axes):
    """Draws points on two logarithmic axes.

    Args:
        points: float array `[n, 2]`, x and y, above 0.
        highlighted: bool array `[n]`: drawn in the second color, on top.
        marks: float array `[k, 2]`, drawn as crosses.
        axes: `(name of x, name of y)`.

    Returns:
        str, an `<svg>` element.

    Example:
        >>> chart = scatter(np.array([[4.0, 8.0]]), np.array([True]), np.ones((0, 2)),
        ...     ("width", "height"))
        >>> chart.startswith("<svg"), chart.count("<circle")
        (True, 1)
    """
    points, highlighted = _thin(np.asarray(points), np.asarray(highlighted))
    low, high = _powers_of_two(np.concatenate([points, marks]))
    frame = Frame((low, high), (low, high))
    parts = [frame.grid(_doublings(low, high), _doublings(low, high), axes)]
    for is_second, color in ((False, "first"), (True, "second")):
        dots = [frame.place(*np.log2(p)) for p in points[highlighted == is_second]]
        circles = "".join(f'<circle cx="{x}" cy="{y}" r="2"/>' for x, y in dots)
        parts.append(f'<g class="{color} dots">{circles}</g>')
    crosses = [frame.place(*np.log2(mark)) for mark in marks]
    path = "".join(f"M{x - 3:.1f} {y}h6M{x} {y - 3:.1f}v6" for x, y in crosses)
    parts.append(f'<path class="mark" d="{path}"/>')
    return svg_element(WIDTH, HEIGHT, parts)


def histogram(values, edges, ticks, axes):
    """Draws how many values lie between each two edges.

    Values beyond the ends count into the first and the last bar.

    Args:
        values: float array `[n]`.
        edges: increasing numbers, one more than bars.
        ticks: list of `(place on the axis, text)`.
        axes: `(name of the values, name of the counts)`.

    Returns:
        str, an `<svg>` element.

    Example:
        >>> chart = histogram([1, 1, 5], [0, 2, 4, 6], [(0, "0")], ("side", "boxes"))
        >>> chart.count("<rect")
        3
    """
    edges = np.asarray(edges, float)
    inside = np.clip(values, edges[0], np.nextafter(edges[-1], -np.inf))
    counts, _ = np.histogram(inside, edges)
    top = max(int(counts.max(initial=0)), 1)
    frame = Frame((edges[0], edges[-1]), (0, top))
    parts = [frame.grid(ticks, round_ticks(top), axes)]
    for count, start, end in zip(counts.tolist(), edges, edges[1:]):
        left, y = frame.place(start, count)
        right, bottom = frame.place(end, 0)
        parts.append(
            f'<rect class="first" x="{left + 0.5}" y="{y}" '
            f'width="{max(right - left - 1, 0.5):.1f}" height="{bottom - y:.1f}">'
            f"<title>{count:,}</title></rect>"
        )
    return svg_element(WIDTH, HEIGHT, parts)


def bars(names, values, texts):
    """Draws a horizontal bar for each name, with a text at its end.

    Args:
        names: list of str.
        values: numbers from 0, one a name.
        texts: list of str, one a name.

    Returns:
        str, an `<svg>` element.

    Example:
        >>> chart = bars(["<b>", "dog"], [1, 3], ["1", "3"])
        >>> "&lt;b&gt;" in chart, chart.count("<rect")
        (True, 2)
    """
    top = max([*values, 1e-9])
    name_width = min(14 + 7 * max(map(len, names), default=0), 170)
    room = WIDTH - name_width - 14 - 7 * max(map(len, texts), default=0)
    parts = []
    for row, (name, value, text) in enumerate(zip(names, values, texts)):
        middle = row * _BAR + _BAR / 2
        length = room * value / top
        shown = name if len(name) <= 22 else name[:21] + "…"
        parts.append(
            f'<text x="{name_width - 8}" y="{middle + 4}" text-anchor="end">'
            f"{html.escape(shown)}<title>{html.escape(name)}</title></text>"
            f'<rect class="first" x="{name_width}" y="{middle - 7}" '
            f'width="{max(length, 1):.1f}" height="14" rx="2"/>'
            f'<text x="{name_width + length + 6:.1f}" y="{middle + 4}">'
            f"{html.escape(text)}</text>"
        )
    return svg_element(WIDTH, _BAR * len(names), parts)


def _thin(points, highlighted):
    if len(points) <= _MAX_POINTS:
        return points, highlighted
    rows = np.random.default_rng(0).choice(len(points), _MAX_POINTS, replace=False)
    return points[rows], highlighted[rows]


def _powers_of_two(values):
    logs = np.log2(values) if len(values) else np.array([0.0, 1.0])
    low, high = math.floor(logs.min()), math.ceil(logs.max())
    return low, max(high, low + 1)


def _doublings(low, high):
    step = math.ceil((high - low + 1) / 12)
    return [(power, f"{2.0**power:g}") for power in range(low, high + 1, step)]
