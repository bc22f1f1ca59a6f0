"""Evaluates models and files of detections on a dataset, and writes a report."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol

from effdet_keras._internal.whole_files import local_path, replacing
from effdet_keras.cli.dataset_source import EVALUATION_SPLITS, DatasetSource
from effdet_keras.cli.open_model import is_published, open_any_model
from effdet_keras.cli.outputs import check_outputs
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.csv import read_image_columns
from effdet_keras.detect.evaluate import (
    analyzed_images,
    category_ids_in_dataset,
    losses_text,
)
from effdet_keras.detect.predictor import Predictor
from effdet_keras.errors import InvalidStateError, InvalidValueError
from effdet_keras.evaluate.coco import (
    detections_to_coco,
    read_detections,
    results_of_coco,
)
from effdet_keras.evaluate.compare import Comparison, compare_evaluations
from effdet_keras.evaluate.evaluation import Evaluation, analyze_results
from effdet_keras.evaluate.image_result import ImageResult
from effdet_keras.export.description import weights_digest
from effdet_keras.export.runtime import ExportedDetector
from effdet_keras.report.evaluation_report import EvaluationReport
from effdet_keras.runs.run_log import describe_environment, environment_facts
from effdet_keras.weights.archive import file_for_score_settings, store_score_settings


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluated:
    """What one model, or one file of detections, came to.

    Attributes:
        name: string, what the user called it.
        results: list of `ImageResult`.
        evaluation: `Evaluation` of these.
        facts: dict from name to number or text, what else is known of it.
    """

    name: str
    results: list[ImageResult]
    evaluation: Evaluation
    facts: dict[str, Any]


def evaluate_files(
    models: Sequence[str],
    data: DatasetSource,
    *,
    detections: Sequence[str] = (),
    batch_size: int = 8,
    threads: int | None = None,
    out: str | os.PathLike | None = None,
    json_path: str | os.PathLike | None = None,
    overwrite: bool = False,
    store_thresholds: bool = False,
    losses: bool = False,
    slices: str | os.PathLike | None = None,
) -> list[Evaluated]:
    """Evaluates one or two detectors, prints what they came to, and writes files.

    Args:
        detections: paths of files in COCO's result format. Together with `models`
            there must be one or two; models come first.
        out: folder for `numbers.json` and `report.html`, made if need be; None for
            none.
        store_thresholds: bool, whether to store thresholds and temperature in the
            model's `.keras` file, whose weights stay as they are.
        losses: bool, whether to compute the losses of models as well, from the same
            forward pass.
        slices: path of a CSV file, as `read_image_columns` takes it, whose columns the
            AP is sliced by; None for none.
    """
    out, json_path = (
        None if path is None else local_path(path, f"`{flag}`")
        for path, flag in ((out, "--out"), (json_path, "--json"))
    )
    _check(len(models) + len(detections), json_path, batch_size)
    written = [] if out is None else [out / "numbers.json", out / "report.html"]
    read = [*models, *detections, data.path, *([] if slices is None else [slices])]
    check_outputs([*written, json_path], read, overwrite=overwrite)
    store = _store_of(models, detections) if store_thresholds else None
    split = data.chosen_split(EVALUATION_SPLITS)
    opened = [ModelSource(model, batch_size, threads, losses) for model in models]
    sources: list[DetectionSource] = [*opened, *map(FileSource, detections)]
    dataset = data.load((split,))
    _check_objects(dataset, len(sources))
    columns = {} if slices is None else read_image_columns(slices, dataset)
    evaluated = [
        _evaluated(source, dataset, split, json_path, columns) for source in sources
    ]
    comparison = None
    if len(evaluated) == 2:
        weights = {source.weights for source in sources}
        is_one_model = len(weights) == 1 and None not in weights
        comparison = _compared(*evaluated, same_weights=is_one_model)
    if out is not None:
        about = {"data": os.fspath(data.path), "split": split}
        _write(out, evaluated, comparison, about, dataset)
    if store is not None:
        store.store(evaluated[0].evaluation, opened[0].predictor, dataset)
    return evaluated


def _check(number, json_path, batch_size):
    if number not in (1, 2):
        raise InvalidValueError(
            "`eval` takes one model, or two to compare, or files of --detections in "
            f"their places. Received: {number} of them. As in `effdet-keras eval MODEL "
            "DATA`, the dataset comes last."
        )
    if number == 2 and json_path is not None:
        raise InvalidValueError(
            "--json writes the detections of one model. Received: two. Evaluate them "
            "one by one."
        )
    if batch_size < 1:
        raise InvalidValueError(
            f"`--batch-size` must be 1 or more. Received: {batch_size}"
        )


def _store_of(models, detections):
    """The archive for the thresholds of the one model that is evaluated."""
    if detections or len(models) != 1:
        raise InvalidValueError(
            "--store-thresholds needs one model, in whose file they are stored. "
            f"Received: {len(models)} models and {len(detections)} files of detections."
        )
    return ThresholdStore(models[0])


def _check_objects(dataset, number):
    if number == 2 and all(record.is_crowd.all() for record in dataset.records):
        raise InvalidValueError(
            "Two models can be compared on a dataset with objects. Received: "
            f"{len(dataset)} images without any."
        )


def _evaluated(source, dataset, split, json_path, columns):
    """Detects, writes the detections if they are wanted, analyzes, and says so."""
    print(f"\n'{source.name}' on the {len(dataset):,} images of '{split}':", flush=True)
    results = source.results(dataset)
    if json_path is not None:
        records = detections_to_coco(results, dataset.category_ids)
        _write_json(records, json_path, indent=None)
        print(f"Wrote '{json_path}'")
    evaluation = analyze_results(results, dataset.class_names, columns=columns)
    print(f"\n{evaluation}", flush=True)
    return Evaluated(source.name, results, evaluation, source.facts())


def _compared(first, second, *, same_weights) -> Comparison:
    comparison = compare_evaluations(
        (first.name, second.name),
        (first.evaluation, second.evaluation),
        (first.results, second.results),
        same_weights=same_weights,
    )
    print(f"\n{comparison}", flush=True)
    return comparison


def _write(out, evaluated, comparison, about, dataset):
    """`numbers.json` of all detectors, and `report.html` of the last."""
    parts = [
        {"detector": one.name, **one.facts, **one.evaluation.to_dict()}
        for one in evaluated
    ]
    environment = describe_environment()
    if comparison is None:
        content = {**about, "environment": environment, **parts[0]}
    else:
        content = {**about, "environment": environment, "detectors": parts}
        content["differences"] = comparison.to_dict()
    last = evaluated[-1]
    report = EvaluationReport(
        f"{last.name} on {about['data']}, {about['split']}",
        last.evaluation,
        last.results,
        dataset,
        facts={
            "detector": last.name,
            **_as_text(last.facts),
            **about,
            **environment_facts(environment),
        },
        comparison=comparison,
    )
    report.save(out / "report.html")
    _write_json(content, out / "numbers.json", indent=1)
    print(f"\nReport: {out / 'report.html'}\nNumbers: {out / 'numbers.json'}")


def _as_text(facts):
    """The facts for people: losses are a line."""
    return {
        name: losses_text(value) if isinstance(value, dict) else value
        for name, value in facts.items()
    }


def _write_json(content, path, indent):
    with replacing(path) as partial:
        text = json.dumps(content, indent=indent, ensure_ascii=False)
        partial.write_text(f"{text}\n", encoding="utf-8")


# --- Where the detections of an evaluation come from: a model, or a file of any system.


class DetectionSource(Protocol):
    """A detector whose results on a dataset are to be known.

    Attributes:
        name: string, what the user called it.
        weights: string, the `weights_digest` of its model, or None.
    """

    name: str
    weights: str | None

    def results(self, dataset: DetectionDataset) -> list[ImageResult]:
        """An `ImageResult` per image, with the labels of the dataset."""

    def facts(self) -> dict[str, Any]:
        """What to tell of it beside its numbers, after `results`."""


class ModelSource:
    """A model, opened at once: what is wrong with it is told before any work.

    Attributes:
        predictor: `Predictor`.
    """

    def __init__(
        self,
        model: str,
        batch_size: int,
        threads: int | None,
        with_losses: bool = False,
    ) -> None:
        self.name = model
        self._with_losses, self._losses = with_losses, {}
        self._batch_size = batch_size
        self.predictor = open_any_model(model, threads)
        detector = self.predictor.detector
        if isinstance(detector, ExportedDetector):
            self.weights = detector.runtime.description.weights
        else:
            self.weights = weights_digest(detector)
        self._seconds, self._num_images = 0.0, 0

    def results(self, dataset: DetectionDataset) -> list[ImageResult]:
        start = time.perf_counter()
        aligned = _with_classes_of(self.predictor, dataset)
        # A bar counts the images, on terminals alone: it is made of carriage returns.
        options = {"batch_size": self._batch_size, "verbose": sys.stdout.isatty()}
        results, found = analyzed_images(
            self.predictor, aligned, losses=self._with_losses, **options
        )
        self._losses = found.losses
        if self._with_losses:
            print(f"\n{losses_text(self._losses)}", flush=True)
        self._seconds = time.perf_counter() - start
        self._num_images = len(dataset)
        if aligned is dataset:
            return results
        found = detections_to_coco(results, aligned.category_ids)
        return results_of_coco(dataset.to_coco(), found)

    def facts(self) -> dict[str, Any]:
        height, width = self.predictor.config.image_size
        losses = {"losses": self._losses} if self._losses else {}
        return {
            **losses,
            "model": self.predictor.config.name,
            "kind": _kind(self.predictor),
            "network's input": f"{height} x {width}",
            "images at once": self._batch_size,
            "seconds of detection": round(self._seconds, 1),
            "images per second": round(self._num_images / self._seconds, 2),
        }


class FileSource:
    """A file in COCO's result format, read at once."""

    def __init__(self, path: str) -> None:
        self.name, self.weights = path, None
        self._detections = read_detections(path)

    def results(self, dataset: DetectionDataset) -> list[ImageResult]:
        return results_of_coco(dataset.to_coco(), self._detections)

    def facts(self) -> dict[str, Any]:
        return {"kind": "detections in COCO's result format"}


def _with_classes_of(predictor: Predictor, dataset: DetectionDataset):
    """The dataset in the order of the model's classes, where that has all of them."""
    names = predictor.class_names
    if names is None or tuple(names) == dataset.class_names:
        return dataset
    if not set(dataset.class_names) <= set(names):
        return dataset  # ids may still agree; if not, `image_results` says so
    return dataset.with_classes(names)


def _kind(predictor):
    detector = predictor.detector
    if not isinstance(detector, ExportedDetector):
        return "Keras"
    return f"{detector.runtime.description.precision} file '{detector.runtime.path}'"


# --- What `eval --store-thresholds` writes into the archive that it evaluated.


class ThresholdStore:
    """The archive of a model: found before the model is opened, changed at the end.

    Args:
        model: path of a `.keras` file, of a folder of `CheckpointArchive`, or of the
            folder of a run.
    """

    def __init__(self, model: str) -> None:
        if is_published(model):
            raise InvalidValueError(
                f"--store-thresholds needs a file. Received: '{model}', whose weights "
                "are published. Save the model first, as in "
                f'`ek.EfficientDet.from_preset("{model}", weights="coco")'
                '.save("mine.keras")`.'
            )
        self.path = file_for_score_settings(model)
        self._state = self._now()

    def store(
        self, evaluation: Evaluation, predictor: Predictor, dataset: DetectionDataset
    ) -> None:
        """Stores what was found best, and says so."""
        settings = evaluation.score_settings(_names_of_labels(predictor, dataset))
        if self._now() != self._state:
            raise InvalidStateError(
                f"'{self.path}' was replaced while it was evaluated, perhaps by a "
                "training that goes on. Its thresholds are not those of this "
                "evaluation, and were not stored. Evaluate again when the training is "
                "done."
            )
        store_score_settings(self.path, settings)
        temperature = settings.temperature
        words = (
            "no temperature: scores do not tell right from wrong"
            if temperature is None
            else f"a temperature of {temperature:.2f}"
        )
        classes = len(settings.thresholds)
        print(
            f"\nStored in '{self.path}': a threshold for each of {classes} classes, "
            f"and {words}. `effdet-keras predict --score best` uses them. Numbers on "
            "these images are now too good: they chose the thresholds."
        )

    def _now(self):
        status = os.stat(self.path)
        return status.st_ino, status.st_mtime_ns, status.st_size


def _names_of_labels(predictor, dataset):
    """For each label of a model the name of that class in a dataset.

    A model without names is told by its ids, as `category_ids_in_dataset` does.
    """
    names = predictor.class_names
    if names is not None and set(dataset.class_names) <= set(names):
        return names
    name_of = dict(zip(dataset.category_ids, dataset.class_names))
    ids = category_ids_in_dataset(predictor, dataset).tolist()
    return tuple(name_of.get(category_id, "") for category_id in ids)
