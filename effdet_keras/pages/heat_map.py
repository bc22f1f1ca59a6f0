"""A table of counts as colored cells, as SVG text."""

import html

import numpy as np

_WIDTH = 420
_NAMES = 92  # width of the names of the rows
_TOP = 18  # height of the name of the columns
_DARKEST = 0.7  # opacity: numbers stay legible
_LONGEST = 13  # characters of a name


def heat_map(rows, columns, counts, axes):
    """Draws counts as cells, each as dark as its share of its row.

    Args:
        rows: strings, the names of the rows.
        columns: strings, those of the columns: written below, slanting.
        counts: ints `[rows, columns]`.
        axes: `(name of the columns, name of the rows)`.

    Returns:
        str, an `<svg>` element.

    Example:
        >>> chart = heat_map(["cat"], ["cat", "<none>"], [[3, 1]], ("found", "is"))
        >>> chart.count("<rect"), "&lt;none&gt;" in chart, '="0.525"' in chart
        (2, True, True)
    """
    counts = np.asarray(counts)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = (_WIDTH - _NAMES - 4) / max(len(columns), 1)
    high = min(side, 46.0)
    parts = [
        f'<text x="{_WIDTH - 4}" y="11" text-anchor="end">{html.escape(axes[0])}</text>'
        f'<text x="4" y="11">{html.escape(axes[1])}</text>'
    ]
    for row, name in enumerate(rows):
        top = _TOP + row * high
        parts.append(_name(_NAMES - 6, top + high / 2 + 4, name, "end", ""))
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
        parts.append(_name(left, bottom, name, "end", turn))
    height = bottom + 62
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}">{"".join(parts)}</svg>'


def _name(x, y, name, anchor, more):
    shown = name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>'
        f"{html.escape(shown)}<title>{html.escape(name)}</title></text>"
    )
