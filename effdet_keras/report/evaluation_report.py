"""`EvaluationReport`: an evaluation as one HTML file for people."""

from __future__ import annotations

import dataclasses
import html
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image

from effdet_keras._internal.whole_files import replacing
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.record import load_example, load_image
from effdet_keras.evaluate.compare import Comparison
from effdet_keras.evaluate.curves import COCO_RECALLS
from effdet_keras.evaluate.error_kinds import ERROR_MEANINGS
from effdet_keras.evaluate.evaluation import (
    Evaluation,
    class_table,
    counts_of,
    number,
    number_rows,
    slice_table,
)
from effdet_keras.evaluate.image_result import NONE, ImageResult, match_detections
from effdet_keras.report import charts
from effdet_keras.report.charts import (
    MAX_LINES,
    Chart,
    chart_figures,
    curves,
    even_ticks,
    heat_map,
    unit_ticks,
)
from effdet_keras.report.pages import (
    figure,
    fitted,
    gallery,
    html_page,
    image_tag,
    pair,
)
from effdet_keras.visualize import (
    ASIDE,
    BAD,
    GOOD,
    draw_class_map,
    draw_marked,
    history_panels,
)


@dataclasses.dataclass(frozen=True, eq=False)
class EvaluationReport:
    """An evaluation as one HTML file, which needs no network and no scripts.

    It has the numbers, curves, the confusion matrix, calibration, the kinds of errors,
    slices, the worst images and suspicious annotations with their boxes drawn, and what
    else is given. It is made for screens, phones and paper.

    Args:
        title: string.
        evaluation: `Evaluation`.
        results: the `ImageResult`s that it was made of.
        dataset: `DetectionDataset` whose images are drawn; None draws none.
        facts: mapping from name to text: model, dataset, timing.
        history: mapping from name to one number per epoch, as `fit` returns it, to
            draw the curves of the training; None draws none.
        configuration: string, shown as it is, such as a YAML text.
        comparison: `Comparison` with another detector; None for none.
        segmentation: mapping from name to number, as of `MeanIoU.result`; None for
            none.
        class_maps: mapping from image id to the class map that was found, `[H, W]`, of
            images of the dataset that are shown beside their masks.

    Example:
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> from effdet_keras.evaluate.evaluation import analyze_results
        >>> image = np.full((32, 48, 3), 99, "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
        >>> results = [ImageResult(
        ...     1, [[4, 8, 20, 40]], [0], [[4, 8, 20, 20]], [0.9], [0], size=(32, 48))]
        >>> evaluation = analyze_results(results, dataset.class_names)
        >>> report = EvaluationReport("Cats", evaluation, results, dataset)
        >>> page = report.html()
        >>> "<h1>Cats</h1>" in page, "http" in page, page.count("<img")
        (True, False, 2)
    """

    title: str
    evaluation: Evaluation
    results: Sequence[ImageResult]
    dataset: DetectionDataset | None = None
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    history: Mapping[str, Sequence[float]] | None = None
    configuration: str = ""
    comparison: Comparison | None = None
    segmentation: Mapping[str, float] | None = None
    class_maps: Mapping[int, np.ndarray] = dataclasses.field(default_factory=dict)

    def html(self) -> str:
        """Returns the page. Everything that comes out of the data is escaped."""
        sections = [
            f"<h1>{html.escape(self.title)}</h1>",
            _summary(self.evaluation),
            *self._comparison(),
            *self._numbers(),
            *self._segmentation(),
            *self._images(),
            *self._training(),
            *self._facts(),
        ]
        return html_page(self.title, "\n".join(sections))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page, whole or not at all.

        Args:
            path: path of an `.html` file; a file that is there is replaced.

        Raises:
            OSError: If the file cannot be written.
        """
        text = self.html()
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8")

    def _numbers(self):
        if not self.evaluation.num_objects:
            return
        yield f"<h2>Numbers</h2>{_words_table(number_rows(self.evaluation))}"
        classes = _stacked(class_table(self.evaluation), last_is_all=True)
        yield f"<h2>Classes</h2>{classes}"
        for column, slices in self.evaluation.by_column.items():
            title = html.escape(column)
            yield f"<h2>By {title}</h2>{_stacked(slice_table(column, slices))}"
        yield f"<h2>Charts</h2>{chart_figures(evaluation_charts(self.evaluation))}"

    def _segmentation(self):
        if self.segmentation is None:
            return
        names = (
            "mean of the classes" if name == "mIoU" else name.removeprefix("IoU/")
            for name in self.segmentation
        )
        rows = zip(names, (number(value, 4) for value in self.segmentation.values()))
        yield (
            "<h2>Classes of pixels</h2><p>IoU: pixels of a class in truth and as "
            f"found, divided by those in either.</p>{_words_table(rows)}"
        )
        if self.dataset is not None and self.class_maps:
            yield gallery(_class_map_figures(self.dataset, self.class_maps))

    def _comparison(self):
        if self.comparison is None:
            return
        first, second = map(html.escape, self.comparison.names)
        words = "".join(f"<li>{x}</li>" for x in self.comparison.conclusions)
        yield (
            f"<h2>Compared with another detector</h2><p>First: <code>{first}</code>. "
            f"Second, of which this report is: <code>{second}</code>.</p>"
            f'<ul class="findings">{words}</ul>{_stacked(self.comparison.table())}'
        )

    def _images(self):
        if self.dataset is None or not self.evaluation.num_objects:
            return
        pictures = _Pictures(self.evaluation, self.results, self.dataset)
        if worst := pictures.worst():
            words = (
                f"Detections from score {self.evaluation.shown_score:.2f} on. Green is "
                "right; red is missed (in the ground truth) or wrong (in the "
                "detections); crowd regions are blue."
            )
            yield f"<h2>The worst images</h2><p>{words}</p>{worst}"
        if suspects := pictures.suspects():
            judges = self.evaluation.can_judge_annotations
            title = "Annotations that may be wrong" if judges else "Boxes to look at"
            yield (
                f"<h2>{title}</h2><p>Blue is the annotation, red "
                "the detection. On images that the detector was trained on, this says "
                f"little.</p>{suspects}"
            )

    def _training(self):
        charts = training_charts(self.history) if self.history else []
        if charts:
            yield f"<h2>Training</h2>{chart_figures(charts)}"

    def _facts(self):
        if self.facts:
            yield f"<h2>Model, data, timing</h2>{_words_table(self.facts.items())}"
        if self.configuration:
            text = html.escape(self.configuration)
            yield f"<h2>Configuration</h2><pre>{text}</pre>"


def _summary(evaluation):
    counts = counts_of(evaluation)
    if not evaluation.num_objects:
        return f"<p>{counts}. There are no objects to be found.</p>"
    numbers = evaluation.coco
    items = "".join(f"<li>{html.escape(words)}</li>\n" for words in evaluation.findings)
    return (
        f"<p>{counts}</p>"
        f'<p class="verdict">AP {numbers["AP"]:.3f}, AP50 {numbers["AP50"]:.3f}</p>'
        f'<h2>What matters most</h2><ul class="findings">{items}</ul>'
    )


# --- Tables of a report, which become lists where the page is narrow.


def _words_table(rows):
    """Rows of a name, perhaps a number, and words."""
    cells = "".join(
        f"<tr><td>{'</td><td>'.join(html.escape(str(cell)) for cell in first)}</td>"
        f'<td class="words">{html.escape(str(words))}</td></tr>\n'
        for *first, words in rows
    )
    return f"<table>{cells}</table>"


def _stacked(table, last_is_all=False):
    columns, *rows = table
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = []
    for place, cells in enumerate(rows):
        of_all = last_is_all and place == len(rows) - 1
        first, *rest = map(html.escape, cells)
        named = zip(columns[1:], rest)
        others = "".join(f'<td data-name="{name}">{cell}</td>' for name, cell in named)
        tag = '<tr class="all">' if of_all else "<tr>"
        body.append(f"{tag}<td>{first}</td>{others}</tr>\n")
    return (
        f'<table class="stacked"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table>"
    )


# --- The charts of an evaluation: curves, confusion, calibration, errors, slices.

_CELLS = 9  # classes of the confusion matrix: more cannot be read on a phone


def evaluation_charts(evaluation):
    """Draws the charts of an evaluation."""
    slices = [
        ("size of object", evaluation.by_object_size),
        ("size of image", evaluation.by_image_size),
        *evaluation.by_column.items(),
    ]
    drawn = [
        _precision_recall(evaluation),
        _confusion(evaluation),
        _errors(evaluation),
        _calibration(evaluation),
        *(_slices(f"AP by {name}", rows) for name, rows in slices),
    ]
    return [chart for chart in drawn if chart is not None]


def _precision_recall(evaluation):
    measured = [curve for curve in evaluation.curves if curve.num_objects]
    most = sorted(measured, key=lambda curve: -curve.num_objects)[: MAX_LINES - 1]
    shown = [curve for curve in measured if curve in most]
    words = ["Best precision at each recall or a higher one, at IoU 0.5."]
    if len(shown) < len(measured):
        words.append(
            f"The {len(shown)} classes with most objects, of {len(measured)}; "
            "numbers.json has all."
        )
    shown.append(evaluation.class_agnostic_curve)
    reached = [COCO_RECALLS[x.recall.max(initial=-1.0) >= COCO_RECALLS] for x in shown]
    lines = [(r, curve.best_precision_at(r)) for r, curve in zip(reached, shown)]
    svg = curves(lines, unit_ticks(), unit_ticks(), ("recall", "precision"))
    names = [f"{curve.name} {curve.average_precision:.3f}" for curve in shown]
    names[-1] = f"all as one class {shown[-1].average_precision:.3f}"
    return Chart("Precision and recall", svg, tuple(words), tuple(names))


def _confusion(evaluation):
    counts = evaluation.confusion
    background = len(counts) - 1
    wrong = counts.sum(axis=0) + counts.sum(axis=1) - 2 * np.diag(counts)
    most = np.argsort(-wrong[:background], kind="stable")[:_CELLS]
    labels = [*sorted(most.tolist()), background]
    names = [*evaluation.class_names, "background"]
    shown = [names[label] for label in labels]
    svg = heat_map(shown, shown, counts[np.ix_(labels, labels)], ("found as", "is"))
    words = [
        f"Detections from score {evaluation.shown_score:.2f} on, at IoU 0.5, whatever "
        "class they say. The last column counts missed objects, the last row "
        "detections of nothing."
    ]
    if len(most) < background:
        words.append(
            f"The {len(most)} classes with most errors, of {background}; numbers.json "
            "has all."
        )
    return Chart("Which class is taken for which", svg, tuple(words))


def _errors(evaluation):
    gains, counts = evaluation.errors.gains, evaluation.shown_errors.counts
    kinds = sorted(ERROR_MEANINGS, key=lambda kind: -gains[kind])
    texts = [f"{gains[kind]:.3f} ({counts[kind]:,})" for kind in kinds]
    svg = charts.bars(kinds, [gains[kind] for kind in kinds], texts)
    meanings = "; ".join(f"{kind}: {ERROR_MEANINGS[kind]}" for kind in kinds)
    words = (
        "What AP50 would gain if the errors of one kind were put right, and in "
        "brackets their number among detections from score "
        f"{evaluation.shown_score:.2f} on.",
        f"{meanings[0].upper()}{meanings[1:]}.",
    )
    return Chart("What the errors cost", svg, words)


def _calibration(evaluation):
    found = evaluation.calibration
    if not found.counts.sum():
        return None
    known = found.counts > 0
    points = found.mean_scores[known], found.precisions[known]
    svg = curves(
        [points], unit_ticks(), unit_ticks(), ("score", "share right"), diagonal=True
    )
    words = [
        "On the dashed line, of the detections with a score of 0.8 four in five are "
        f"right. Expected calibration error {found.expected_error:.3f}, over "
        f"{int(found.counts.sum()):,} detections from score 0.05 on."
    ]
    if evaluation.temperature is not None:
        words.append(f"The temperature that fits best is {evaluation.temperature:.2f}.")
    return Chart("Whether scores can be trusted", svg, tuple(words))


def _slices(title, slices):
    measured = [one for one in slices if one.num_objects]
    if len(measured) < 2:  # one is the number of all
        return None
    texts = [f"{one.ap:.3f} ({one.num_objects:,})" for one in measured]
    svg = charts.bars([x.name for x in measured], [x.ap for x in measured], texts)
    return Chart(title, svg, ("In brackets the number of objects.",))


# --- The curves of a training, as charts of a page.


def training_charts(history):
    """Draws the curves of a training.

    Args:
        history: mapping from name to one number per epoch; NaN where an epoch has
            none.

    Example:
        >>> history = {"loss": [3.0, 2.0], "AP": [0.1, float("nan")]}
        >>> for chart in training_charts(history):
        ...     print(chart.title, chart.legend)
        Loss ('loss',)
        Average precision ('AP (best 0.100)',)
    """
    lines = {name: np.asarray(values, float) for name, values in history.items()}
    lines = {name: x for name, x in lines.items() if np.isfinite(x).any()}
    return [
        _panel(title, {name: lines[name] for name in names[:MAX_LINES]})
        for title, names in history_panels(lines).items()
    ]


def _panel(title, lines):
    known = np.concatenate([values[np.isfinite(values)] for values in lines.values()])
    is_log = title.startswith("Loss") and known.min() > 0
    low, high = float(known.min()), float(known.max())
    if is_log:  # losses fall by factors
        y_ticks = _log_ticks(low, high)
        lines = {name: np.log10(values) for name, values in lines.items()}
    else:
        y_ticks = even_ticks(0.0, high)
    epochs = max(map(len, lines.values()))
    x_ticks = _epoch_ticks(epochs)
    svg = curves(
        [(np.arange(1, len(values) + 1), values) for values in lines.values()],
        x_ticks,
        y_ticks,
        ("epoch", "logarithmic" if is_log else ""),
    )
    legend = list(lines)
    if title == "Average precision":
        legend = [f"{n} (best {np.nanmax(v):.3f})" for n, v in lines.items()]
    return Chart(title, svg, (), tuple(legend))


def _epoch_ticks(epochs):
    """Whole numbers from 0, at most eight."""
    step = max(1, math.ceil(epochs / 6))
    last = max(1, math.ceil(epochs / step))
    return [(k * step, f"{k * step}") for k in range(last + 1)]


def _log_ticks(low, high):
    """1, 2 and 5 times powers of ten, around two values, at their logarithms."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    steps = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    first = max(k for k, value in enumerate(steps) if value <= low)
    last = min((k for k, value in enumerate(steps) if value >= high), default=first + 1)
    chosen = steps[first : max(last, first + 1) + 1]
    every = math.ceil(len(chosen) / 8)
    thin = chosen[::every]
    if thin[-1] < high:
        thin.append(chosen[-1])
    return [(math.log10(value), f"{value:g}") for value in thin]


# --- Masks of a report beside the class maps that were found.


def _class_map_figures(dataset, class_maps):
    """Images twice: with their mask, and with what was found."""
    records = {record.image_id: record for record in dataset.records}
    for image_id, class_map in class_maps.items():
        try:
            example = load_example(records[image_id])
        except (ValueError, OSError, KeyError):
            continue
        image, _ = fitted(example["image"])
        drawn = {}
        for title, values in (("Mask", example["mask"]), ("Found", class_map)):
            resized = Image.fromarray(np.asarray(values, np.uint8)).resize(
                image.shape[1::-1], Image.Resampling.NEAREST
            )
            drawn[title] = draw_class_map(
                image, np.asarray(resized), dataset.seg_class_names
            )
        name = records[image_id].name
        yield figure(pair(drawn, name), name)


# --- Images of a report: the worst ones, and annotations that may be wrong.

_WORST = 12  # images shown
_SUSPECTS = 4  # shown of each kind
_SUSPECT_KINDS = {
    "missing": "A sure detection where nothing is annotated.",
    "unfound": "An annotation where the detector sees nothing.",
    "wrong class": "A sure detection of another class than annotated.",
    "loose box": "A sure detection whose box differs from the annotated one.",
}
_AROUND = 2.5  # sides of a crop, in sides of the box that it is about
_LEAST_CROP = 64  # pixels: less shows nothing of what is around


class _Pictures:
    """Draws images of a dataset with what is true and what was found.

    An image that cannot be read is left out.
    """

    def __init__(self, evaluation, results, dataset):
        self._evaluation = evaluation
        self._results = {result.image_id: result for result in results}
        self._records = {record.image_id: record for record in dataset.records}

    def worst(self):
        """Returns the worst images as HTML; an empty text if there is nothing wrong."""
        wrong = [x for x in self._evaluation.worst_images if x.badness > 0][:_WORST]
        return gallery(map(self._worst_figure, wrong))

    def suspects(self):
        """Returns the most suspicious annotations as HTML, kind by kind."""
        parts = []
        for kind, meaning in _SUSPECT_KINDS.items():
            found = [x for x in self._evaluation.suspects if x.kind == kind]
            if shown := gallery(map(self._suspect_figure, found[:_SUSPECTS])):
                title = f"<h3>{kind.capitalize()}: {len(found):,}</h3>"
                parts.append(f"{title}<p>{meaning}</p>{shown}")
        return "".join(parts)

    def _worst_figure(self, errors):
        result, pixels = self._results[errors.image_id], self._pixels(errors.image_id)
        if pixels is None:
            return ""
        image, scale = fitted(pixels)
        shown = result.above(self._evaluation.shown_score)
        matches = match_detections(shown)
        drawn = {
            "Ground truth": draw_marked(image, self._truth(shown, matches, scale)),
            "Detections": draw_marked(image, self._found(shown, matches, scale)),
        }
        name = errors.name or f"image {errors.image_id}"
        words = (
            f"{errors.num_found} found, {errors.num_missed} missed, {errors.num_false} "
            "wrong"
        )
        return figure(pair(drawn, name), name, words)

    def _truth(self, result, matches, scale):
        """Boxes, words and colors of the objects: missed ones first, with names."""
        missed, found, crowds = [], [], []
        for index, box in enumerate(result.truth_boxes * scale):
            if result.truth_is_crowd[index]:
                crowds.append((box, "", ASIDE))
            elif matches.detection[index] == NONE:
                missed.append((box, self._name(result.truth_labels[index]), BAD))
            else:
                found.append((box, "", GOOD))
        return missed + found + crowds

    def _found(self, result, matches, scale):
        """The same of the detections: wrong ones first, with names and scores."""
        wrong, others = [], []
        for index, box in enumerate(result.boxes * scale):
            if matches.is_false[index]:
                name = self._name(result.labels[index], result.scores[index])
                wrong.append((box, name, BAD))
            else:
                others.append((box, "", GOOD if matches.is_true[index] else ASIDE))
        return wrong + others

    def _suspect_figure(self, suspect):
        pixels = self._pixels(suspect.image_id)
        if pixels is None:
            return ""
        marks = []
        if suspect.label is not None:
            marks.append((suspect.box, self._name(suspect.label), ASIDE))
        if suspect.found_box is not None:
            name = self._name(suspect.found_label, suspect.score)
            marks.append((suspect.found_box, name, BAD))
        boxes = np.array([box for box, *_ in marks])
        top, left, bottom, right = crop_around(boxes, pixels.shape[:2])
        image, scale = fitted(pixels[top:bottom, left:right])
        boxes = (boxes - [top, left, top, left]) * scale
        drawn = draw_marked(image, [(x, *y) for x, (_, *y) in zip(boxes, marks)])
        name = suspect.name or f"image {suspect.image_id}"
        y_min, x_min, y_max, x_max = suspect.box
        words = (
            f"y {y_min:.0f} to {y_max:.0f}, x {x_min:.0f} to {x_max:.0f}; suspicion "
            f"{suspect.suspicion:.2f}"
        )
        return figure(image_tag(drawn, name), name, words)

    def _pixels(self, image_id):
        """The image, or None where it is not there or cannot be read."""
        try:
            return load_image(self._records[image_id])
        except (ValueError, OSError, KeyError):
            return None

    def _name(self, label, score=None):
        name = self._evaluation.class_names[label]
        return name if score is None else f"{name} {score:.2f}"


def crop_around(boxes, image_size):
    """The part of an image to show for some boxes: with what is around them."""
    low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
    middle = (low + high) / 2
    side = max(_AROUND * (high - low).max(), _LEAST_CROP)
    limit = np.array(image_size)
    start = np.clip(np.floor(middle - side / 2), 0, np.maximum(limit - 1, 0))
    end = np.clip(np.ceil(middle + side / 2), start + 1, limit)
    return (*start.astype(int).tolist(), *end.astype(int).tolist())
