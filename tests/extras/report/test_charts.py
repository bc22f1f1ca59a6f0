"""Charts of pages: lines, heat maps, ticks; what the page around them is."""

import xml.etree.ElementTree

import numpy as np
import pytest

from effdet_keras.extras.report.charts import (
    UNIT_TICKS,
    Chart,
    chart_figures,
    curves,
    even_ticks,
)
from effdet_keras.extras.report.pages import html_page


def lines_of(svg):
    tree = xml.etree.ElementTree.fromstring(svg)
    return [e.get("d") for e in tree.iter() if e.get("class") == "line"]


def test_lines_are_placed_on_their_axes():
    given = [([0, 0.5, 1], [0, 1, 0.5])], UNIT_TICKS, UNIT_TICKS, ("x", "y")
    svg = curves(*given, diagonal=True)
    (path,) = lines_of(svg)
    points = [tuple(map(float, p.split())) for p in path[1:].split("L")]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y2 == pytest.approx((y0 - y1) / 2, abs=0.2)
    assert 'class="diagonal"' in svg


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1e-4), (0, 0.37), (3, 3), (0, 0), (-2, 900), (0.99, 1.01)]
)
def test_ticks_hold_the_values_and_are_few(low, high):
    places = [place for place, _ in even_ticks(low, high)]
    assert places[0] <= low and places[-1] >= high
    assert 2 <= len(places) <= 7 and np.allclose(np.diff(places, 2), 0)


def test_names_are_escaped():
    chart = Chart("<b>", "<svg></svg>", ("<i>",), ("<u>",))
    page = html_page("<s>", chart_figures([chart]))
    assert not [tag for tag in ("<b>", "<i>", "<u>", "<s>") if tag in page]
    assert "&lt;s&gt;" in page and '<li class="line0">&lt;u&gt;</li>' in page
