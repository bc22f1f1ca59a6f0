"""What `check` found, as one HTML file: no network, no scripts, light and dark."""

import base64
import html
import io
import pathlib

import numpy as np
from PIL import Image

from effdet_keras import visualize
from effdet_keras.data.problems import KINDS, count_kind
from effdet_keras.images import read_image
from effdet_keras.inspection.box_charts import box_charts
from effdet_keras.inspection.text_report import (
    count_labels,
    describe_boxes,
    verdict,
)

_SAMPLES = 12  # images shown of the dataset
_PROBLEM_SAMPLES = 4  # images shown of each kind of problem
# Pixels of a shown image's longer side. The page shows it at this size, not smaller:
# the names of classes are drawn in it.
_SIDE = 320


def write_html(report):
    """Writes a report as the text of one HTML file.

    Args:
        report: `CheckReport`.

    Returns:
        str. Everything that comes out of the dataset is escaped.
    """
    name = html.escape(repr(report.dataset))
    words = "".join(f"<p>{html.escape(w)}</p>" for w in describe_boxes(report.dataset))
    return "".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Check of {name}</title>\n<style>{_STYLE}</style></head>\n",
            f"<body><h1>Dataset check</h1><p>{name}</p>{words}",
            f'<p class="verdict {"note" if report.ok else "error"}">',
            f"{html.escape(verdict(report))}</p>\n<h2>Problems</h2>",
            _problems(report),
            _charts_and_images(report) if len(report.dataset) else "",
            "</body></html>\n",
        ]
    )


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
    figures = "".join(
        f"<figure><h3>{html.escape(chart.title)}</h3>{chart.svg}"
        + "".join(f"<figcaption>{html.escape(w)}</figcaption>" for w in chart.words)
        + "</figure>\n"
        for chart in box_charts(report)
    )
    class_names = report.dataset.class_names
    samples = [_figure(r, class_names) for r in _samples(report.dataset)]
    return (
        f'<h2>Boxes</h2><div class="charts">{figures}</div>'
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
    scale = min(_SIDE / max(image.shape[:2]), 1.0)
    size = [max(1, round(side * scale)) for side in image.shape[:2]]
    image = np.asarray(Image.fromarray(image).resize(size[::-1]))
    left, top, width, height = record.boxes_xywh.T * scale
    boxes = np.stack([top, left, top + height, left + width], axis=1)
    # A small image is enlarged as often as fits: names need room.
    longer = max(size)
    drawn = visualize.draw_boxes(
        image,
        boxes,
        record.labels,
        class_names=class_names,
        min_side=_SIDE // longer * longer,
    )
    file = io.BytesIO()
    Image.fromarray(drawn).save(file, "JPEG", quality=85)
    data = base64.b64encode(file.getvalue()).decode()
    name = html.escape(record.name)
    height, width = drawn.shape[:2]
    return (
        f'<figure><img alt="{name}" width="{width}" height="{height}" '
        f'src="data:image/jpeg;base64,{data}">'
        f"<figcaption><code>{name}</code> {html.escape(detail)}</figcaption></figure>\n"
    )


def _decode(record):
    if isinstance(record.image, np.ndarray):
        return record.image
    return read_image(record.image, size=record.image_size)


_STYLE = """
:root { color-scheme: light dark; --text: #1c2430; --soft: #5b6675; --page: #f6f7f9;
  --card: #ffffff; --line: #dde1e7; --first: #2f6fde; --second: #d8372a;
  --mark: #1c2430; --error: #c62828; --warning: #a15c00; --note: #2e6b3a; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ee; --soft: #9aa5b4;
  --page: #14181e; --card: #1d232b; --line: #333c47; --first: #6fa3ff;
  --second: #ff7a6b; --mark: #e6e9ee; --error: #ff8a80; --warning: #ffc166;
  --note: #86d39a; } }
body { max-width: 1080px; margin: 2rem auto; padding: 0 1rem; color: var(--text);
  background: var(--page); font: 15px/1.5 system-ui, sans-serif; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.2rem; } h3 { margin: 0 0 .6rem;
  font-size: 1rem; } p { margin: .3rem 0; }
.verdict { margin-top: 1rem; padding: .7rem 1rem; border-left: 5px solid;
  background: var(--card); font-weight: 600; }
.error { color: var(--error); } .warning { color: var(--warning); }
.note { color: var(--note); }
.badge { display: inline-block; min-width: 4.4em; font-size: .8rem; }
.kind { background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: .5rem .9rem; margin: .5rem 0; }
.kind summary { cursor: pointer; } .kind span { color: var(--soft); }
.kind ul { max-height: 24rem; overflow: auto; margin: .5rem 0 0; }
code { font-size: .88em; overflow-wrap: anywhere; }
figure { margin: 0; padding: .9rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 6px; }
figcaption { color: var(--soft); font-size: .85rem; overflow-wrap: anywhere; }
.charts { display: grid; gap: .9rem;
  grid-template-columns: repeat(auto-fill, minmax(min(420px, 100%), 1fr)); }
.images { display: grid; gap: .7rem; margin: .5rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(336px, 100%), 1fr)); }
.images figure { padding: .4rem; }
img { display: block; max-width: 100%; height: auto; border-radius: 3px; }
svg { width: 100%; height: auto; display: block; font-size: 11px; }
svg text { fill: var(--soft); } svg .grid { stroke: var(--line); fill: none; }
svg .first { fill: var(--first); } svg .second { fill: var(--second); }
svg .dots { fill-opacity: .55; } svg .mark { stroke: var(--mark); stroke-width: 1.2; }
"""
