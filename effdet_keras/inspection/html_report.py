"""What `check` found, as one HTML file: no network, no scripts, light and dark."""

import html
import pathlib

import numpy as np

from effdet_keras import visualize
from effdet_keras.data.problems import KINDS, count_kind
from effdet_keras.images import read_image
from effdet_keras.inspection.box_charts import box_charts
from effdet_keras.inspection.text_report import (
    count_labels,
    describe_boxes,
    verdict,
)
from effdet_keras.pages.chart import chart_figures
from effdet_keras.pages.image_tag import SHOWN_SIDE, image_tag, shrunk
from effdet_keras.pages.page import html_page

_SAMPLES = 12  # images shown of the dataset
_PROBLEM_SAMPLES = 4  # images shown of each kind of problem


def write_html(report):
    """Writes a report as the text of one HTML file.

    Args:
        report: `CheckReport`.

    Returns:
        str. Everything that comes out of the dataset is escaped.
    """
    body = f"<h1>Dataset check</h1>{_of_dataset(report)}"
    return html_page(f"Check of {report.dataset!r}", body)


def write_html_of_splits(reports):
    """Writes the reports of all splits as the text of one HTML file.

    Args:
        reports: dict from the name of a split to its `CheckReport`.

    Returns:
        str, as of `write_html`.
    """
    escaped = {html.escape(name): report for name, report in reports.items()}
    links = "".join(
        f'<li><a href="#split-{name}">{name}</a>: {html.escape(verdict(report))}</li>'
        for name, report in escaped.items()
    )
    parts = (
        f'<h1 id="split-{name}">Dataset check: {name}</h1>{_of_dataset(report)}'
        for name, report in escaped.items()
    )
    return html_page("Dataset check", f"<ul>{links}</ul>{''.join(parts)}")


def _of_dataset(report):
    name = html.escape(repr(report.dataset))
    words = "".join(f"<p>{html.escape(w)}</p>" for w in describe_boxes(report.dataset))
    body = [
        f"<p>{name}</p>{words}",
        f'<p class="verdict {"note" if report.ok else "error"}">',
        f"{html.escape(verdict(report))}</p>\n<h2>Problems</h2>",
        _problems(report),
        _charts_and_images(report) if len(report.dataset) else "",
    ]
    return "".join(body)


def _problems(report):
    if not report.problems:
        return "<p>None found.</p>"
    finder = _Finder(report.dataset.records)
    return "".join(
        _kind(kind, problems, _shown(problems, finder, report.dataset.class_names))
        for kind, problems in report.by_kind().items()
    )


def _kind(kind, problems, images):
    severity = KINDS[kind].severity.value
    items = "\n".join(
        f"<li><code>{html.escape(p.file)}</code> {html.escape(p.detail)}"
        for p in problems
    )
    return (
        f'<details class="kind"><summary><b class="badge {severity}">{severity}</b> '
        f"<strong>{html.escape(count_kind(kind, len(problems)))}</strong> "
        f"<span>{html.escape(KINDS[kind].consequence)}</span></summary>"
        f"<ul>{items}</ul></details>{images}\n"
    )


class _Finder:
    """Finds the records that a problem is about."""

    def __init__(self, records):
        self._by_id = {record.image_id: record for record in records}
        # Some problems name the annotation file, which has the stem of the image.
        stems = {pathlib.PurePath(r.name).stem: r for r in reversed(records)}
        self._by_name = stems | {r.name: r for r in reversed(records)}

    def find(self, problem):
        if problem.image_ids:
            return [self._by_id[i] for i in problem.image_ids if i in self._by_id]
        stem = pathlib.PurePath(problem.file).stem
        record = self._by_name.get(problem.file, self._by_name.get(stem))
        return [] if record is None else [record]


def _shown(problems, finder, class_names):
    """Images of the first problems that can be shown, each image once.

    Of a duplicate both images are shown, each with its own boxes.
    """
    figures = {}
    for problem in problems[: 3 * _PROBLEM_SAMPLES]:  # more cannot be shown either
        if len(figures) >= _PROBLEM_SAMPLES:
            break
        for record in finder.find(problem):
            if record.image_id not in figures:
                is_first_of_two = problem.image_ids[:1] == (record.image_id,)
                detail = "" if is_first_of_two else problem.detail
                figure = _figure(record, class_names, detail)
                if figure:
                    figures[record.image_id] = figure
    return _gallery(figures.values())


def _charts_and_images(report):
    class_names = report.dataset.class_names
    samples = [_figure(r, class_names) for r in _samples(report.dataset)]
    return (
        f"<h2>Boxes</h2>{chart_figures(box_charts(report))}"
        f"<h2>Images</h2>{_gallery(samples)}"
    )


def _gallery(figures):
    return f'<div class="images">{"".join(figures)}</div>' if figures else ""


def _samples(dataset):
    """Records spread over the classes: the next of each in turn, rare ones first."""
    rng = np.random.default_rng(0)
    order = [dataset.records[i] for i in rng.permutation(len(dataset))]
    queues = [
        [record for record in order if label in record.labels]
        for label in np.argsort(count_labels(dataset), kind="stable")[:_SAMPLES]
    ]
    chosen = {}
    for turn in range(_SAMPLES):
        for queue in queues:
            if turn < len(queue) and len(chosen) < _SAMPLES:
                chosen[queue[turn].image_id] = queue[turn]
    return list(chosen.values()) or order[:_SAMPLES]


def _figure(record, class_names, detail=""):
    """One image with its boxes and name; an empty text if it cannot be decoded."""
    try:
        image = _decode(record)
    except (ValueError, OSError):
        return ""
    image, scale = shrunk(image)
    left, top, width, height = record.boxes_xywh.T * scale
    boxes = np.stack([top, left, top + height, left + width], axis=1)
    # A small image is enlarged as often as fits: names need room.
    longer = max(image.shape[:2])
    drawn = visualize.draw_boxes(
        image,
        boxes,
        record.labels,
        class_names=class_names,
        min_side=SHOWN_SIDE // longer * longer,
    )
    return (
        f"<figure>{image_tag(drawn, record.name)}"
        f"<figcaption><code>{html.escape(record.name)}</code> {html.escape(detail)}"
        "</figcaption></figure>\n"
    )


def _decode(record):
    if isinstance(record.image, np.ndarray):
        return record.image
    return read_image(record.image, size=record.image_size)
