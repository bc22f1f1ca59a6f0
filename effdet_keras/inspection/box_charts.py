"""The charts of a checked dataset: sizes, shapes, counts, anchor coverage."""

import math

import numpy as np

from effdet_keras.data.record import clip_boxes_xywh
from effdet_keras.inspection.coverage import (
    COVERED,
    anchor_fit,
    anchor_sides,
    input_boxes,
)
from effdet_keras.inspection.text_report import count_labels, describe_anchors
from effdet_keras.pages import charts
from effdet_keras.pages.chart import Chart

_CLASSES = 30  # bars of the class chart
_MIN_SIDE = 0.25  # pixels: logarithms of boxes thinner than that would be far off


def box_charts(report):
    """Draws the charts of a report.

    Args:
        report: `CheckReport` of a dataset with images.

    Returns:
        List of `Chart`.
    """
    sides, covered, where = _sides(report)
    size_words = f"Square root of the area in pixels {where}."
    ratios = sides[:, 1] / sides[:, 0]
    drawn = [
        _class_chart(report.dataset),
        _side_chart(sides, covered, report.config, where),
        _log_chart("Size of boxes", np.sqrt(sides.prod(axis=1)), 2, size_words),
        _log_chart("Aspect ratio of boxes", ratios, 4, "Width over height."),
        _count_chart([len(record.labels) for record in report.dataset.records]),
    ]
    return [_coverage_chart(report), *drawn] if report.coverage else drawn


def _sides(report):
    """Sides `[n, (h, w)]`, whether an anchor covers them, and where they are."""
    records, config = report.dataset.records, report.config
    if config is not None:
        boxes, _ = input_boxes(records, config.image_size)
        covered = anchor_fit(boxes, config) >= COVERED
        height, width = config.image_size
        where = f"of the {height}x{width} input"
    else:
        boxes = [clip_boxes_xywh(r.boxes_xywh, r.image_size) for r in records]
        boxes = np.concatenate([box[usable] for box, usable in boxes])
        covered, where = np.ones(len(boxes), bool), "of the image"
    return np.maximum(boxes[:, 2:] - boxes[:, :2], _MIN_SIDE), covered, where


def _coverage_chart(report):
    rows = [row for row in report.coverage if row.num_boxes]
    texts = [f"{100 * row.share:.1f} % of {row.num_boxes:,}" for row in rows]
    svg = charts.bars([row.size for row in rows], [row.share for row in rows], texts)
    words = describe_anchors(report.config)
    return Chart(
        "Anchor coverage", svg, (words[0].upper() + words[1:] + ".", *report.hints)
    )


def _side_chart(sides, covered, config, where):
    words = [f"Pixels {where}."]
    marks = np.zeros((0, 2))
    if config is not None:
        marks = anchor_sides(config)[:, ::-1]
        words.append("Crosses are the anchors; red boxes have none with an IoU of 0.5.")
    svg = charts.scatter(sides[:, ::-1], ~covered, marks, ("width", "height"))
    return Chart("Width and height of boxes", svg, tuple(words))


def _log_chart(title, values, bars_per_doubling, words):
    """A histogram on a logarithmic axis, with numbers at the powers of two."""
    logs = np.log2(values) if len(values) else np.zeros(1)
    low, high = math.floor(logs.min()), math.floor(logs.max()) + 1
    edges = np.linspace(low, high, (high - low) * bars_per_doubling + 1)
    ticks = [(power, f"{2.0**power:g}") for power in range(low, high + 1)]
    svg = charts.histogram(logs[: len(values)], edges, ticks, ("", "boxes"))
    return Chart(title, svg, (words,))


def _count_chart(counts):
    step = max(1, math.ceil((max(counts) + 1) / 30))
    edges = np.arange(0, max(counts) + step + 1, step)
    label_step = step * max(1, math.ceil(len(edges) / 10))
    ticks = [
        (value + step / 2, f"{value}" if step == 1 else f"{value}-{value + step - 1}")
        for value in range(0, max(counts) + 1, label_step)
    ]
    svg = charts.histogram(counts, edges, ticks, ("", "images"))
    return Chart("Objects an image", svg)


def _class_chart(dataset):
    counts = count_labels(dataset)
    order = np.argsort(-counts, kind="stable")
    shown = order if len(order) <= _CLASSES else order[: _CLASSES - 1]
    names = [dataset.class_names[label] for label in shown]
    values = counts[shown].tolist()
    words = ()
    if len(shown) < len(order):
        rest = order[len(shown) :]
        words = (f"And {len(rest)} more classes with {counts[rest].sum():,} boxes.",)
    svg = charts.bars(names, values, [f"{value:,}" for value in values])
    return Chart("Boxes of each class", svg, words)
