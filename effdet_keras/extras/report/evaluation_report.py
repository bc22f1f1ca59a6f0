"""`EvaluationReport`: an evaluation as one HTML file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

import numpy as np

from effdet_keras._internal.whole_files import write_text
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.record import load_example, load_image
from effdet_keras.evaluate.evaluation import (
    Evaluation,
    class_table,
    counts_of,
    number,
    number_rows,
    slice_table,
)
from effdet_keras.evaluate.image_result import NONE, ImageResult, match_detections
from effdet_keras.extras.analysis import ERROR_MEANINGS
from effdet_keras.extras.analysis.compare import Comparison
from effdet_keras.extras.analysis.curves import COCO_RECALLS
from effdet_keras.extras.report import charts, pages
from effdet_keras.extras.report.charts import UNIT_TICKS, Chart
from effdet_keras.extras.report.pages import concat_markup, element
from effdet_keras.visualize import COLORS, draw_marked, history_panels


@dataclasses.dataclass(frozen=True, eq=False)
class EvaluationReport:
    """An evaluation as one HTML file, which needs neither a network nor scripts.

    Args:
        title: string, the title of the page.
        evaluation: `Evaluation` to show.
        results: sequence of the `ImageResult`s from which it was computed.
        dataset: `DetectionDataset` whose images are drawn; None draws no images.
        facts: mapping from name to text, such as model, dataset and time.
        history: mapping from name to one number per epoch, as in the history of `fit`.
        configuration: string, shown unchanged, such as a YAML text.
        comparison: `Comparison` with another detector.
        segmentation: mapping from name to number, as of `MeanIoU.result`.
        class_maps: mapping from image id to the detected class map, `[H, W]`, which is
            shown beside the mask.

    Example:
        >>> from effdet_keras.evaluate.evaluation import analyze_results
        >>> results = [ImageResult(
        ...     1, [[4, 8, 20, 40]], [0], [[4, 8, 20, 20]], [0.9], [0], size=(32, 48))]
        >>> evaluation = analyze_results(results, ["cat"])
        >>> page = EvaluationReport("Cats", evaluation, results).html()
        >>> "<h1>Cats</h1>" in page, "http" in page
        (True, False)
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
        """Returns the page. All text from the data is escaped."""
        has_objects = self.evaluation.num_objects > 0
        values = {
            "title": self.title,
            "configuration": self.configuration,
            "facts": self.facts and pages.words_table(self.facts.items()),
            "training": charts.chart_figures(training_charts(self.history or {})),
            "nothing": "" if has_objects else counts_of(self.evaluation),
        }
        if has_objects:
            values |= self._numbers()
        if self.comparison is not None:
            values |= self._comparison(self.comparison)
        if self.segmentation is not None:
            values |= self._segmentation()
        if self.dataset is not None and has_objects:
            values |= self._images()
        body = pages.render("evaluation_report.html", **values)
        return pages.html_page(self.title, body)

    def _numbers(self):
        evaluation, coco = self.evaluation, self.evaluation.coco
        columns = []
        for name, slices in evaluation.by_column.items():
            table = pages.stacked_table(slice_table(name, slices))
            columns += [element("h2", f"By {name}"), table]
        return {
            "counts": counts_of(evaluation),
            "verdict": f"AP {coco['AP']:.3f}, AP50 {coco['AP50']:.3f}",
            "findings": pages.items(evaluation.findings),
            "numbers": pages.words_table(number_rows(evaluation)),
            "classes": pages.stacked_table(class_table(evaluation), last_is_all=True),
            "columns": concat_markup(*columns),
            "charts": charts.chart_figures(evaluation_charts(evaluation)),
        }

    def _comparison(self, comparison):
        return {
            "first": comparison.names[0],
            "second": comparison.names[1],
            "conclusions": pages.items(comparison.conclusions),
            "comparison": pages.stacked_table(comparison.table()),
        }

    def _segmentation(self):
        _, *classes = self.segmentation  # `mIoU` comes first
        names = ["mean of the classes", *(x.removeprefix("IoU/") for x in classes)]
        rows = zip(names, (number(value, 4) for value in self.segmentation.values()))
        is_shown = self.dataset is not None and self.class_maps
        shown = _class_map_figures(self.dataset, self.class_maps) if is_shown else ()
        return {"pixels": pages.words_table(rows), "class_maps": pages.gallery(shown)}

    def _images(self):
        pictures = _PictureRenderer(self.evaluation, self.results, self.dataset)
        can_judge = self.evaluation.can_judge_annotations
        return {
            "shown_score": f"{self.evaluation.shown_score:.2f}",
            "worst": pictures.worst(),
            "doubts": (
                "Annotations that may be wrong" if can_judge else "Boxes to look at"
            ),
            "suspects": pictures.suspects(),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to an `.html` file, completely or not at all."""
        write_text(path, self.html())


# --- The charts of an evaluation: curves, confusion, calibration, errors, slices.

_CELLS = 9  # classes in the confusion matrix: a phone has no room for more


def evaluation_charts(evaluation):
    slices = [
        ("size of object", evaluation.by_object_size),
        *evaluation.by_column.items(),
    ]
    charts_of = (_precision_recall, _confusion, _errors, _calibration)
    drawn = [chart_of(evaluation) for chart_of in charts_of]
    drawn += [_slices(f"AP by {name}", rows) for name, rows in slices]
    return [chart for chart in drawn if chart is not None]


def _precision_recall(evaluation):
    measured = [curve for curve in evaluation.curves if curve.num_objects]
    most = sorted(measured, key=lambda curve: -curve.num_objects)
    shown = [curve for curve in measured if curve in most[: charts.MAX_LINES]]
    words = (
        "The best precision at each recall or a higher one, at IoU 0.5. If there are "
        "many classes, those with the most objects are shown; numbers.json has all.",
    )
    reached = [COCO_RECALLS[x.recall.max(initial=-1.0) >= COCO_RECALLS] for x in shown]
    lines = [(r, curve.best_precision_at(r)) for r, curve in zip(reached, shown)]
    svg = charts.curves(lines, UNIT_TICKS, UNIT_TICKS, ("recall", "precision"))
    legend = tuple(f"{one.name} {one.average_precision:.3f}" for one in shown)
    return Chart("Precision and recall", svg, words, legend)


def _confusion(evaluation):
    counts = evaluation.confusion
    background = len(counts) - 1
    wrong = counts.sum(axis=0) + counts.sum(axis=1) - 2 * np.diag(counts)
    most = np.argsort(-wrong[:background], kind="stable")[:_CELLS]
    labels = [*sorted(most.tolist()), background]
    names = [*evaluation.class_names, "background"]
    names, cells = [names[label] for label in labels], counts[np.ix_(labels, labels)]
    svg = charts.heat_map(names, names, cells, ("detected class", "true class"))
    words = (
        f"Detections from score {evaluation.shown_score:.2f} on, matched at IoU 0.5 "
        "whatever their class. The last column counts missed objects, the last row "
        "detections without an object. If there are many classes, those with the "
        "most errors are shown.",
    )
    return Chart("Confusion matrix", svg, words)


def _errors(evaluation):
    gains, counts = evaluation.errors.gains, evaluation.shown_errors.counts
    kinds = sorted(ERROR_MEANINGS, key=lambda kind: -gains[kind])
    texts = [f"{gains[kind]:.3f} ({counts[kind]:,})" for kind in kinds]
    svg = charts.bars(kinds, [gains[kind] for kind in kinds], texts)
    meanings = "; ".join(f"{kind}: {ERROR_MEANINGS[kind]}" for kind in kinds)
    words = (
        "How much AP50 would gain if all errors of one kind were corrected. The "
        f"number of errors among detections from score {evaluation.shown_score:.2f} "
        "on is in brackets.",
        f"{meanings[0].upper()}{meanings[1:]}.",
    )
    return Chart("Kinds of errors, and the AP50 that each costs", svg, words)


def _calibration(evaluation):
    """Returns a reliability diagram of the scores; None without detections."""
    found = evaluation.calibration
    if not found.counts.sum():
        return None
    known = found.counts > 0
    points = found.mean_scores[known], found.precisions[known]
    svg = charts.curves(
        [points], UNIT_TICKS, UNIT_TICKS, ("score", "precision"), diagonal=True
    )
    words = [
        "On the dashed line, four in five of the detections with a score of 0.8 are "
        f"correct. Expected calibration error {found.expected_error:.3f}, over "
        f"{int(found.counts.sum()):,} detections from score 0.05 on."
    ]
    if evaluation.temperature is not None:
        words.append(f"The temperature that fits best is {evaluation.temperature:.2f}.")
    return Chart("Reliability diagram of the scores", svg, tuple(words))


def _slices(title, slices):
    measured = [one for one in slices if one.num_objects]
    if len(measured) < 2:  # a single slice only repeats the AP of all
        return None
    texts = [f"{one.ap:.3f} ({one.num_objects:,})" for one in measured]
    svg = charts.bars([x.name for x in measured], [x.ap for x in measured], texts)
    return Chart(title, svg, ("The number of objects is in brackets.",))


# --- Curves of a training.


def training_charts(history):
    """Draws the curves of a training; NaN stands for an epoch without a number."""
    lines = {name: np.asarray(values, float) for name, values in history.items()}
    lines = {name: x for name, x in lines.items() if np.isfinite(x).any()}
    return [
        _panel(title, {name: lines[name] for name in names[: charts.MAX_LINES]})
        for title, names in history_panels(lines).items()
    ]


def _panel(title, lines):
    known = np.concatenate([values[np.isfinite(values)] for values in lines.values()])
    drawn = list(lines.values())
    svg = charts.curves(
        [(np.arange(1, len(values) + 1), values) for values in drawn],
        charts.even_ticks(0, max(map(len, drawn)), least_step=1),
        charts.even_ticks(0.0, float(known.max())),
        ("epoch", ""),
    )
    legend = list(lines)
    if title == "Average precision":
        legend = [f"{n} (best {np.nanmax(v):.3f})" for n, v in lines.items()]
    return Chart(title, svg, (), tuple(legend))


# --- Masks beside the detected class maps.


def _class_map_figures(dataset, class_maps):
    """Yields figures of images: one with the mask, one with the detected classes."""
    records = {record.image_id: record for record in dataset.records}
    for image_id, class_map in class_maps.items():
        try:
            example = load_example(records[image_id])
        except (ValueError, OSError, KeyError):
            continue
        image, _ = pages.fitted(example["image"])
        drawn = {
            title: pages.colored(image, of_pixels, dataset.seg_class_names)
            for title, of_pixels in (("Mask", example["mask"]), ("Found", class_map))
        }
        name = records[image_id].name
        yield pages.figure(pages.pair(drawn, name), name)


# --- Images of a report: the worst ones, and annotations that may be wrong.

_WORST = 12  # number of images
_SUSPECTS = 4  # number of suspects of each kind
_SUSPECT_KINDS = {
    "missing": "A confident detection where nothing is annotated.",
    "unfound": "An annotation where the detector finds nothing.",
    "wrong class": "A confident detection of a class other than the annotated one.",
    "loose box": "A confident detection whose box differs from the annotated one.",
}
_BAD, _GOOD, _ASIDE = range(3)
_COLORS = BAD, GOOD, ASIDE = COLORS[0], COLORS[2], COLORS[1]
_AROUND = 2.5  # side of a crop as a multiple of the side of its box
_LEAST_CROP = 64  # pixels: a smaller crop would not show the surroundings


class _PictureRenderer:
    """Draws ground truth and detections; images that cannot be read are left out."""

    def __init__(self, evaluation, results, dataset):
        self._evaluation = evaluation
        self._results = {result.image_id: result for result in results}
        self._records = {record.image_id: record for record in dataset.records}

    def worst(self):
        """Returns the worst images as HTML; empty text if nothing is wrong."""
        wrong = [x for x in self._evaluation.worst_images if x.badness > 0][:_WORST]
        return pages.gallery(map(self._worst_figure, wrong))

    def suspects(self):
        """Returns the most suspicious annotations as HTML, by kind."""
        parts = []
        for kind, meaning in _SUSPECT_KINDS.items():
            found = [x for x in self._evaluation.suspects if x.kind == kind]
            if shown := pages.gallery(map(self._suspect_figure, found[:_SUSPECTS])):
                title = element("h3", f"{kind.capitalize()}: {len(found):,}")
                parts += [title, element("p", meaning), shown]
        return concat_markup(*parts)

    def _worst_figure(self, errors):
        """Returns an image's ground truth beside its detections, as an HTML figure."""
        pixels = self._pixels(errors.image_id)
        if pixels is None:
            return ""
        image, scale = pages.fitted(pixels)
        shown = self._results[errors.image_id].above(self._evaluation.shown_score)
        matches = match_detections(shown)
        of_truth = np.where(matches.detection == NONE, _BAD, _GOOD)
        of_truth[shown.truth_is_crowd] = _ASIDE
        of_found = np.where(matches.is_true, _GOOD, _ASIDE)
        of_found[matches.is_false] = _BAD
        truth = shown.truth_boxes * scale, shown.truth_labels, of_truth
        found = shown.boxes * scale, shown.labels, of_found, shown.scores
        drawn = {
            "Ground truth": self._drawn(image, *truth),
            "Detections": self._drawn(image, *found),
        }
        name = errors.name or f"image {errors.image_id}"
        counts = errors.num_found, errors.num_missed, errors.num_false
        words = "{} found, {} missed, {} wrong".format(*counts)
        return pages.figure(pages.pair(drawn, name), name, words)

    def _drawn(self, image, boxes, labels, colors, scores=None):
        """Draws boxes; wrong ones are on top, and only these have names."""
        scores = [None] * len(boxes) if scores is None else scores
        marks = [
            (color, box, self._name(label, score) if color == _BAD else "")
            for box, label, color, score in zip(boxes, labels, colors, scores)
        ]
        marks.sort(key=lambda mark: mark[0])
        return draw_marked(image, [(box, name, _COLORS[c]) for c, box, name in marks])

    def _suspect_figure(self, suspect):
        """Returns a crop around a suspicious annotation, as an HTML figure."""
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
        image, scale = pages.fitted(pixels[top:bottom, left:right])
        boxes = (boxes - [top, left, top, left]) * scale
        drawn = draw_marked(image, [(x, *y) for x, (_, *y) in zip(boxes, marks)])
        name = suspect.name or f"image {suspect.image_id}"
        y_min, x_min, y_max, x_max = suspect.box
        words = (
            f"y {y_min:.0f} to {y_max:.0f}, x {x_min:.0f} to {x_max:.0f}; suspicion "
            f"{suspect.suspicion:.2f}"
        )
        return pages.figure(pages.image_tag(drawn, name), name, words)

    def _pixels(self, image_id):
        """Returns the pixels of an image; None if it is missing or cannot be read."""
        try:
            return load_image(self._records[image_id])
        except (ValueError, OSError, KeyError):
            return None

    def _name(self, label, score=None):
        name = self._evaluation.class_names[label]
        return name if score is None else f"{name} {score:.2f}"


def crop_around(boxes, image_size):
    """Returns the part of an image, `yxyx`, that shows boxes and their surroundings."""
    low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
    middle = (low + high) / 2
    side = max(_AROUND * (high - low).max(), _LEAST_CROP)
    limit = np.array(image_size)
    start = np.clip(np.floor(middle - side / 2), 0, np.maximum(limit - 1, 0))
    end = np.clip(np.ceil(middle + side / 2), start + 1, limit)
    return (*start.astype(int).tolist(), *end.astype(int).tolist())
