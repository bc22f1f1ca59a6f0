"""`EvaluationReport`: an evaluation as one HTML file for people."""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Mapping, Sequence

import numpy as np

from effdet_keras._internal.whole_files import replacing
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.evaluation.comparison import Comparison
from effdet_keras.evaluation.evaluation import Evaluation
from effdet_keras.evaluation.evaluation_text import number
from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.pages.chart import chart_figures
from effdet_keras.pages.page import html_page
from effdet_keras.report.class_maps import class_map_gallery
from effdet_keras.report.evaluation_charts import evaluation_charts
from effdet_keras.report.pictures import Pictures
from effdet_keras.report.tables import (
    classes_table,
    comparison_table,
    facts_table,
    numbers_table,
    slices_table,
)
from effdet_keras.report.training_charts import training_charts


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
        >>> from effdet_keras.data import from_arrays
        >>> from effdet_keras.evaluation.evaluation import analyze_results
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
        yield f"<h2>Numbers</h2>{numbers_table(self.evaluation)}"
        yield f"<h2>Classes</h2>{classes_table(self.evaluation)}"
        for column, slices in self.evaluation.by_column.items():
            title = html.escape(column)
            yield f"<h2>By {title}</h2>{slices_table(column, slices)}"
        yield f"<h2>Charts</h2>{chart_figures(evaluation_charts(self.evaluation))}"

    def _segmentation(self):
        if self.segmentation is None:
            return
        rows = {
            "mean of the classes" if name == "mIoU" else name.removeprefix("IoU/"): (
                number(value, 4)
            )
            for name, value in self.segmentation.items()
        }
        yield (
            "<h2>Classes of pixels</h2><p>IoU: pixels of a class in truth and as "
            f"found, divided by those in either.</p>{facts_table(rows)}"
        )
        if self.dataset is not None and self.class_maps:
            yield class_map_gallery(self.dataset, self.class_maps)

    def _comparison(self):
        if self.comparison is None:
            return
        first, second = map(html.escape, self.comparison.names)
        words = "".join(f"<li>{x}</li>" for x in self.comparison.conclusions)
        yield (
            f"<h2>Compared with another detector</h2><p>First: <code>{first}</code>. "
            f"Second, of which this report is: <code>{second}</code>.</p>"
            f'<ul class="findings">{words}</ul>{comparison_table(self.comparison)}'
        )

    def _images(self):
        if self.dataset is None or not self.evaluation.num_objects:
            return
        pictures = Pictures(self.evaluation, self.results, self.dataset)
        if worst := pictures.worst():
            yield f"<h2>The worst images</h2>{worst}"
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
            yield f"<h2>Model, data, timing</h2>{facts_table(self.facts)}"
        if self.configuration:
            text = html.escape(self.configuration)
            yield f"<h2>Configuration</h2><pre>{text}</pre>"


def _summary(evaluation):
    counts = (
        f"{evaluation.num_images:,} images, {evaluation.num_objects:,} objects, "
        f"{len(evaluation.class_names):,} classes, {evaluation.num_detections:,} "
        "detections"
    )
    if not evaluation.num_objects:
        return f"<p>{counts}. There are no objects to be found.</p>"
    numbers = evaluation.coco
    items = "".join(f"<li>{html.escape(words)}</li>\n" for words in evaluation.findings)
    return (
        f"<p>{counts}</p>"
        f'<p class="verdict">AP {numbers["AP"]:.3f}, AP50 {numbers["AP50"]:.3f}</p>'
        f'<h2>What matters most</h2><ul class="findings">{items}</ul>'
    )
