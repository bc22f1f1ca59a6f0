"""The report of `check`, as text for the terminal and as one HTML file."""

from __future__ import annotations

from collections import Counter

import numpy as np

from effdet_keras import visualize
from effdet_keras.data.anchor_fit import input_boxes
from effdet_keras.data.dataset import boxes_per_class, count_of, what_to_expect
from effdet_keras.data.problems import KINDS, Severity, count_kind
from effdet_keras.data.record import clip_boxes_xywh
from effdet_keras.errors import printable
from effdet_keras.extras.data_check.anchors import COVERED, anchor_sides
from effdet_keras.extras.data_check.forecast import forecast
from effdet_keras.extras.report import charts
from effdet_keras.extras.report.charts import Chart, chart_figures
from effdet_keras.extras.report.pages import (
    SHOWN_SIDE,
    concat_markup,
    element,
    figure,
    gallery,
    html_page,
    image_tag,
    items,
    shrunk,
)
from effdet_keras.images import read_image
from effdet_keras.network.anchors import best_anchor_iou

_SHOWN = 3  # the most problems that are named per kind
_CLASSES = 10  # the most classes that are named


def text_of(report):
    """Returns a `CheckReport` as text, with a few lines per kind of problem."""
    lines = [repr(report.dataset), *_describe_boxes(report.dataset)]
    paths = _paths_of_namesakes(report.dataset)
    severity = None
    for kind, problems in report.by_kind().items():
        if KINDS[kind].severity is not severity:
            severity = KINDS[kind].severity
            lines += ["", f"{severity.value}s"]
        what = count_kind(kind, len(problems))
        lines.append(f"  {what} ({KINDS[kind].consequence})")
        lines += [f"    {_described(problem, paths)}" for problem in problems[:_SHOWN]]
        if len(problems) > _SHOWN:
            lines.append(f"    and {len(problems) - _SHOWN:,} more")
    if report.coverage:
        lines += ["", _describe_anchors(report.config)]
        lines.append(f"  {'size':<8}{'boxes':>9}{'covered':>10}{'mean IoU':>10}")
    for row in report.coverage:
        share, mean = "-", "-"
        if row.num_boxes:
            share, mean = f"{100 * row.share:.1f} %", f"{row.mean_iou:.2f}"
        lines.append(f"  {row.size:<8}{row.num_boxes:>9,}{share:>10}{mean:>10}")
    return printable("\n".join([*lines, "", _verdict(report)]))


def _paths_of_namesakes(dataset):
    """Returns a dict from image id to path, for images that share their file name."""
    count = Counter(record.name for record in dataset.records)
    return {
        record.image_id: record.image
        for record in dataset.records
        if count[record.name] > 1 and isinstance(record.image, str)
    }


def _described(problem, paths):
    """Returns a problem as text, with the paths of images that share their names."""
    places = [paths[i] for i in problem.image_ids[:_SHOWN] if i in paths]
    return f"{problem} ({', '.join(places)})" if places else str(problem)


def _verdict(report):
    """Returns the last line: whether the dataset is fit to train on, and counts."""
    counts = Counter(problem.severity for problem in report.problems)
    words = ", ".join(
        count_of(counts[severity], severity.value) for severity in Severity
    )
    return f"{'Fit to train on' if report.ok else 'Not fit to train on'}: {words}"


def _describe_boxes(dataset):
    """Returns lines on the numbers of objects per image and of boxes per class."""
    counts = [len(record.labels) for record in dataset.records]
    if not counts:
        return []
    of_class = boxes_per_class(dataset)
    order = np.argsort(-of_class, kind="stable")
    names = [f"{dataset.class_names[i]} {of_class[i]:,}" for i in order[:_CLASSES]]
    names += ["..."] if len(order) > _CLASSES else []
    return [
        f"objects per image: {min(counts)} to {max(counts)}, median "
        f"{np.median(counts):g}; {count_of(counts.count(0), 'image')} without objects",
        f"boxes per class: {', '.join(names)}",
        *what_to_expect(dataset),
        *forecast(dataset),
    ]


def _describe_anchors(config):
    """Returns one line that says with which anchors coverage is measured."""
    height, width = config.image_size
    return (
        f"anchors of {config.name} at {height}x{width}: boxes whose best anchor has "
        "an IoU of 0.5 or more"
    )


# --- The report as one HTML file: no network, no scripts, light and dark.

_SAMPLES = 12  # images of the dataset that are shown
_PROBLEM_SAMPLES = 4  # images that are shown for each kind of problem
_GROUP_SAMPLES = 3  # images per group of near-duplicates, one row of a wide page


def html_of(reports):
    """Returns reports as the text of one HTML file.

    Args:
        reports: dict from split name to `CheckReport`.
    """
    parts = []
    for name, report in reports.items():
        parts += [element("h1", f"Dataset check {name}"), *_dataset_section(report)]
    return html_page("Dataset check", concat_markup(*parts))


def _dataset_section(report):
    """Yields the HTML of one report: problems, charts of boxes and sample images."""
    dataset, verdict = report.dataset, "note" if report.ok else "error"
    for words in (repr(dataset), *_describe_boxes(dataset)):
        yield element("p", words)
    yield element("p", _verdict(report), class_=f"verdict {verdict}")
    yield element("h2", "Problems")
    if not report.problems:
        yield element("p", "None found.")
    by_id = {record.image_id: record for record in dataset.records}
    by_name = {record.name: record for record in reversed(dataset.records)}
    for kind, problems in report.by_kind().items():
        severity = KINDS[kind].severity.value
        badge = element("b", severity, class_=f"badge {severity}")
        count = element("strong", count_kind(kind, len(problems)))
        words = badge, " ", count, " ", element("span", KINDS[kind].consequence)
        found = (
            concat_markup(element("code", x.file), " ", x.detail) for x in problems
        )
        parts = element("summary", *words), element("ul", items(found))
        yield element("details", *parts, class_="kind")
        if kind == "shared near-duplicate":
            yield _shown_pairs(report.shared, dataset)
        elif kind == "near-duplicate image":
            yield _shown_groups(problems, dataset, by_id)
        else:
            yield _shown(problems, dataset, by_id, by_name)
    if len(dataset):
        shown = np.random.default_rng(0).permutation(len(dataset))[:_SAMPLES]
        samples = [_figure(dataset.records[i], dataset) for i in shown]
        yield concat_markup(element("h2", "Boxes"), chart_figures(_box_charts(report)))
        yield concat_markup(element("h2", "Images"), gallery(samples))


def _shown(problems, dataset, by_id, by_name):
    """Returns a gallery of the first problems' images, each image once."""
    figures = {}
    # If the images of so many problems cannot be shown, those of others cannot either.
    for problem in problems[: 3 * _PROBLEM_SAMPLES]:
        if len(figures) >= _PROBLEM_SAMPLES:
            break
        about = [by_id.get(i) for i in problem.image_ids] or [by_name.get(problem.file)]
        for record in about:
            if record is not None and record.image_id not in figures:
                first, *others = problem.image_ids or [record.image_id]
                is_first_of_two = others and first == record.image_id
                detail = "" if is_first_of_two else problem.detail
                if drawn := _figure(record, dataset, detail):
                    figures[record.image_id] = drawn
    return gallery(figures.values())


def _shown_groups(problems, dataset, by_id):
    """Returns the first images of the first groups of near-duplicates, in rows."""
    rows = []
    for problem in problems[:_PROBLEM_SAMPLES]:
        records = [by_id[i] for i in problem.image_ids[:_GROUP_SAMPLES]]
        more = len(problem.image_ids) - len(records)
        words = [""] * (len(records) - 1) + [f"and {more:,} more" if more else ""]
        shown = zip(records, words)
        rows.append(gallery([_figure(one, dataset, detail) for one, detail in shown]))
    return concat_markup(*rows)


def _shown_pairs(shared, dataset):
    """Returns the first images that look like one of another split, side by side."""
    rows = []
    for one in shared[:_PROBLEM_SAMPLES]:
        other = _figure(one.other, dataset, f"of split {one.other_split!r}")
        rows.append(gallery([_figure(one.record, dataset), other]))
    return concat_markup(*rows)


def _figure(record, dataset, detail=""):
    """Returns an image with boxes and name as HTML, or "" if it cannot be decoded."""
    image = record.image
    if not isinstance(image, np.ndarray):
        try:
            image = read_image(image, size=record.image_size)
        except (ValueError, OSError):
            return ""
    image, scale = shrunk(image)
    left, top, width, height = record.boxes_xywh.T * scale
    drawn = visualize.draw_boxes(
        image,
        np.stack([top, left, top + height, left + width], axis=1),
        record.labels,
        class_names=dataset.class_names,
        # A small image is enlarged by a whole factor, because names need room.
        min_side=SHOWN_SIDE // max(image.shape[:2]) * max(image.shape[:2]),
    )
    return figure(image_tag(drawn, record.name), record.name, detail)


# --- The charts of a checked dataset: anchor coverage, classes, sides of boxes.

_CLASSES_OF_BOX_CHARTS = 30  # the most bars of the class chart
# Pixels. On the logarithmic axes, thinner boxes would lie far away from all others.
_MIN_SIDE = 0.25


def _box_charts(report):
    sides, covered, where = _sides(report)
    return [
        *([_coverage_chart(report)] if report.coverage else []),
        _class_chart(report.dataset),
        _side_chart(sides, covered, report.config, where),
    ]


def _sides(report):
    """Returns the sides of boxes, `[n, (h, w)]` in pixels, for the chart.

    Returns:
        The sides; whether an anchor covers each box, bool `[n]`; and a text that says
        of which image the pixels are, the network's input or the original.
    """
    records, config = report.dataset.records, report.config
    if config is not None:
        boxes, _ = input_boxes(records, config.image_size)
        covered = best_anchor_iou(boxes, config) >= COVERED
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
    words = _describe_anchors(report.config)
    words = f"{words[0].upper()}{words[1:]}."
    return Chart("Anchor coverage", svg, (words,))


def _side_chart(sides, covered, config, where):
    words = [f"Pixels {where}."]
    marks = np.zeros((0, 2))
    if config is not None:
        marks = anchor_sides(config)[:, ::-1]
        words.append("Crosses are the anchors; red boxes have none with an IoU of 0.5.")
    svg = charts.scatter(sides[:, ::-1], ~covered, marks, ("width", "height"))
    return Chart("Width and height of boxes", svg, tuple(words))


def _class_chart(dataset):
    counts = boxes_per_class(dataset)
    order = np.argsort(-counts, kind="stable")
    most = _CLASSES_OF_BOX_CHARTS
    shown = order if len(order) <= most else order[: most - 1]
    names = [dataset.class_names[label] for label in shown]
    values, rest = counts[shown].tolist(), counts[order[len(shown) :]]
    more = count_of(len(rest), "more class", "more classes")
    words = (f"And {more} with {count_of(rest.sum(), 'box', 'boxes')}.",)
    svg = charts.bars(names, values, [f"{value:,}" for value in values])
    return Chart("Boxes of each class", svg, words if len(rest) else ())
