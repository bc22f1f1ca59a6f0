"""A chart with its title and words, and charts beside each other."""

import html
from collections.abc import Iterable
from typing import NamedTuple


class Chart(NamedTuple):
    """A chart with its words.

    Attributes:
        title: str.
        svg: str, an `<svg>` element.
        words: tuple of str, lines below it.
        legend: tuple of str, the names of its lines, in the order of their colors.
    """

    title: str
    svg: str
    words: tuple = ()
    legend: tuple = ()


def chart_figures(charts: Iterable[Chart]) -> str:
    """Writes charts as HTML, as many side by side as have room.

    Args:
        charts: `Chart`s.

    Returns:
        str, a `<div>` element.

    Example:
        >>> chart_figures([Chart("Sizes & shapes", "<svg></svg>", ("In pixels.",))])
        '<div class="charts"><figure><h3>Sizes &amp; shapes</h3><svg></svg><figcaption>\
In pixels.</figcaption></figure>\\n</div>'
    """
    return f'<div class="charts">{"".join(map(_figure, charts))}</div>'


def _figure(chart):
    words = "".join(f"<figcaption>{html.escape(w)}</figcaption>" for w in chart.words)
    return (
        f"<figure><h3>{html.escape(chart.title)}</h3>{chart.svg}"
        f"{_legend(chart.legend)}{words}</figure>\n"
    )


def _legend(names):
    if not names:
        return ""
    items = "".join(
        f'<li class="line{number}">{html.escape(name)}</li>'
        for number, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'
