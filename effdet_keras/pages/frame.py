"""The frame of a chart: where values lie on the paper, grid, numbers, names."""

import html
import math

WIDTH, HEIGHT = 420, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 18, 24, 34


class Frame:
    """Places on the paper of values on two axes."""

    def __init__(self, x_range, y_range):
        self._x, self._y = x_range, y_range

    def place(self, x, y):
        width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
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
            lines.append(f"M{x} {_TOP}V{bottom}")
            words.append(word(x, bottom + 15, text, "middle"))
        for value, text in y_ticks:
            left, y = self.place(self._x[0], value)
            lines.append(f"M{left} {y}H{WIDTH - _RIGHT}")
            words.append(word(left - 5, y + 4, text, "end"))
        words.append(word(WIDTH - _RIGHT, HEIGHT - 4, axes[0], "end"))
        words.append(word(4, _TOP - 12, axes[1], "start"))
        return f'<path class="grid" d="{"".join(lines)}"/>{"".join(words)}'


def word(x, y, text, anchor):
    return (
        f'<text x="{x}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'
    )


def svg_element(width, height, parts):
    return f'<svg viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'


def round_ticks(top):
    """Whole numbers from 0 to `top`: about four steps of 1, 2 or 5 times ten."""
    rough = max(top / 4, 1)
    ten = 10 ** math.floor(math.log10(rough))
    step = next(ten * k for k in (1, 2, 5, 10) if ten * k >= rough)
    return [(value, f"{value:,}") for value in range(0, top + 1, step)]
