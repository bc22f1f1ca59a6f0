"""Evaluates models and files of detections on a dataset, and writes a report."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from json import dumps
from typing import ClassVar

from effdet_keras._internal.folder_lock import FolderLock
from effdet_keras._internal.whole_files import local_path, write_text
from effdet_keras.cli.evaluation_images import evaluation_images
from effdet_keras.cli.files import (
    EVALUATION_SPLITS,
    DatasetSource,
    check_outputs,
    image_files,
    open_any_model,
)
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.detect.evaluate import (
    analyzed_images,
    category_ids_in_dataset,
    in_one_line,
)
from effdet_keras.errors import InvalidStateError, InvalidValueError, printable
from effdet_keras.evaluate.coco import (
    detections_to_coco,
    read_detections,
    results_of_coco,
)
from effdet_keras.evaluate.evaluation import analyze_results
from effdet_keras.export.runtime import ExportedDetector
from effdet_keras.runs.run_folder import describe_environment, environment_facts
from effdet_keras.weights.archive import (
    digest_of_weights,
    file_for_score_settings,
    store_score_settings,
)


def evaluate_files(
    models: Sequence[str],
    data: DatasetSource,
    *,
    detections: Sequence[str] = (),
    batch_size: int = 8,
    threads: int | None = None,
    out: str | None = None,
    json: str | None = None,
    overwrite: bool = False,
    store_thresholds: bool = False,
    losses: bool = False,
    slices: str | None = None,
) -> None:
    """Evaluates one or two detectors, prints their metrics, and writes files."""
    out, json_path = (
        None if path is None else local_path(path, f"`{flag}`")
        for path, flag in ((out, "--out"), (json, "--json"))
    )
    number = len(models) + len(detections)
    is_for_one = json is not None or store_thresholds
    if number not in ((1,) if is_for_one else (1, 2)):
        raise InvalidValueError(
            "`eval` takes one model, or two to compare; each may be replaced by a "
            "file of --detections. --json and --store-thresholds work with one only. "
            f"Received: {number} of them. The dataset comes last, as in `effdet-keras "
            "eval MODEL DATA`."
        )
    if losses and not models:
        raise InvalidValueError(
            "--losses needs a model: the losses cannot be computed from a file of "
            "--detections. Leave --losses out, or give the model."
        )
    written = [] if out is None else [out / "numbers.json", out / "report.html"]
    read = [*detections, data.path, *([] if slices is None else [slices])]
    outputs = [*written, json_path]
    check_outputs(outputs, read, models=models, overwrite=overwrite)
    # This comes before the model is opened, so that errors are found before any work.
    store = _ThresholdStore([*models, *read][0]) if store_thresholds else None
    data.chosen_split(EVALUATION_SPLITS)
    sources = [_Model(model, batch_size, threads, losses) for model in models]
    sources += map(_File, detections)
    split, dataset, caution, _ = evaluation_images(data, models)
    check_outputs(outputs, image_files(dataset), overwrite=True)
    columns = {}
    if slices is not None:
        from effdet_keras.extras.image_columns import read_image_columns

        columns = read_image_columns(slices, dataset)
    for source in sources:
        on = f"on the {len(dataset):,} images of '{split}'"
        print(printable(f"\n'{source.name}' {on}:"), flush=True)
        source.evaluate(dataset, columns)
        if caution is not None:
            why = " ".join(filter(None, (caution, source.evaluation.diagnosis)))
            source.evaluation = dataclasses.replace(source.evaluation, diagnosis=why)
        print(f"\n{source.evaluation}", flush=True)
    comparison = _comparison(*sources) if len(sources) == 2 else None
    # All of it is written, the last callback first, also if one raises an error.
    with contextlib.ExitStack() as writes:
        if store is not None:
            writes.callback(store.store, *sources, dataset)
        if out is not None:
            about = {"data": os.fspath(data.path), "split": split}
            about |= {} if caution is None else {"caution": caution}
            writes.callback(_write, out, sources, comparison, about, dataset)
        if json_path is not None:
            writes.callback(_write_detections, *sources, dataset, json_path)


def _comparison(first, second):
    """Compares two detectors; returns None if the ground truth has no objects."""
    if not first.evaluation.num_objects:
        print("\nThe detectors are not compared: the ground truth has no objects.")
        return None
    from effdet_keras.extras.analysis.compare import compare_evaluations

    comparison = compare_evaluations(
        (first.name, second.name),
        (first.evaluation, second.evaluation),
        (first.results, second.results),
    )
    print(f"\n{comparison}", flush=True)
    return comparison


def _write(out, sources, comparison, about, dataset):
    """Writes `numbers.json` for all detectors, and `report.html` for the last one."""
    parts = [
        {"detector": source.name, **source.facts, **source.evaluation.to_dict()}
        for source in sources
    ]
    environment = describe_environment()
    content = {**about, "environment": environment}
    if len(sources) == 1:
        content |= parts[0]
    else:
        differences = {} if comparison is None else comparison.to_dict()
        content |= {"detectors": parts, "differences": differences}
    last = sources[-1]
    facts = {"detector": last.name, **last.facts, **about}
    if "losses" in facts:
        facts["losses"] = in_one_line(facts["losses"], 4)
    from effdet_keras.extras.report.evaluation_report import EvaluationReport

    report = EvaluationReport(
        f"{last.name} on {about['data']}, {about['split']}",
        last.evaluation,
        last.results,
        dataset,
        facts={**facts, **environment_facts(environment)},
        comparison=comparison,
    )
    report.save(out / "report.html")
    _write_json(content, out / "numbers.json", indent=1)
    print(f"\nReport: {out / 'report.html'}\nNumbers: {out / 'numbers.json'}")


def _write_detections(source, dataset, path):
    """Writes the detections of `eval --json`, in COCO's result format."""
    records = detections_to_coco(source.results, dataset.category_ids)
    _write_json(records, path, indent=None)
    print(f"\nWrote '{path}'")


def _write_json(content, path, indent):
    write_text(path, dumps(content, indent=indent, ensure_ascii=False) + "\n")


# --- What can be evaluated: a model, or a file of detections of any system. `evaluate`
# sets `results`, an `ImageResult` per image, their `evaluation`, and `facts` for the
# report.


class _Model:
    """A model, opened on construction so that errors are found before any work."""

    def __init__(self, model, batch_size, threads, with_losses):
        self.name, self._with_losses = model, with_losses
        self._batch_size = batch_size
        self.predictor = open_any_model(model, threads)
        detector = self.predictor.detector
        self.kind = "Keras"
        if isinstance(detector, ExportedDetector):
            description = detector.runtime.description
            self.kind = f"{description.precision} file '{detector.runtime.path}'"

    def evaluate(self, dataset, columns):
        """Detects in all images; sets `results`, `evaluation` and `facts`."""
        start = time.perf_counter()
        aligned = dataset
        names = self.predictor.class_names
        # Otherwise category ids may still agree. If not, `image_results` raises.
        is_same = names is None or tuple(names) == dataset.class_names
        if not is_same and set(dataset.class_names) <= set(names):
            aligned = dataset.with_classes(names)
        # The progress bar counts images. It uses carriage returns and needs a terminal.
        options = {"batch_size": self._batch_size, "verbose": sys.stdout.isatty()}
        self.results, found = analyzed_images(
            self.predictor, aligned, losses=self._with_losses, **options
        )
        if self._with_losses:
            print(f"\n{in_one_line(found.losses, 4)}", flush=True)
        seconds = time.perf_counter() - start
        if aligned is not dataset:
            records = detections_to_coco(self.results, aligned.category_ids)
            self.results = results_of_coco(dataset.to_coco(), records)
        self.evaluation = analyze_results(
            self.results, dataset.class_names, columns=columns
        )
        height, width = self.predictor.config.image_size
        self.facts = {
            **({"losses": found.losses} if found.losses else {}),
            "model": self.predictor.config.name,
            "kind": self.kind,
            "network's input": f"{height} x {width}",
            "images at once": self._batch_size,
            "seconds of detection": round(seconds, 1),
            "images per second": round(len(dataset) / seconds, 2),
        }


class _File:
    """A file in COCO's result format, read on construction."""

    facts: ClassVar[dict] = {"kind": "detections in COCO's result format"}

    def __init__(self, path):
        self.name, self._detections = path, read_detections(path)

    def evaluate(self, dataset, columns):
        try:
            self.results = results_of_coco(dataset.to_coco(), self._detections)
        except InvalidValueError as error:
            raise InvalidValueError(f"In '{self.name}': {error}") from error
        self.evaluation = analyze_results(
            self.results, dataset.class_names, columns=columns
        )


# --- `eval --store-thresholds`: stores thresholds in the archive that was evaluated.


class _ThresholdStore:
    """The archive to store thresholds in.

    It is created before the model is opened, which takes minutes. Thresholds belong to
    the weights that were evaluated. So the archive's weights must not have changed when
    the thresholds are stored, and no training may write to its folder.
    """

    def __init__(self, model: str) -> None:
        self.path = file_for_score_settings(model)
        self._lock = FolderLock(self.path.parent)
        if self._lock.is_held_by_another():
            raise InvalidStateError(
                f"A training is writing to '{self.path.parent}' and would replace the "
                "file in which the thresholds are stored. Store them when the "
                f"training has ended, or copy '{self.path.name}' and evaluate the "
                "copy."
            )
        self._digest = digest_of_weights(self.path)

    def store(self, source: _Model, dataset: DetectionDataset) -> None:
        """Stores a model's best thresholds and its temperature, and prints this."""
        names = source.predictor.class_names
        if names is None or not set(dataset.class_names) <= set(names):
            # A model without class names is matched by its category ids.
            name_of = dict(zip(dataset.category_ids, dataset.class_names))
            ids = category_ids_in_dataset(source.predictor, dataset).tolist()
            names = tuple(name_of.get(category_id, "") for category_id in ids)
        settings = source.evaluation.score_settings(names)
        self._lock.acquire("Storing thresholds")
        try:
            store_score_settings(self.path, settings, weights_digest=self._digest)
        finally:
            self._lock.release()
        print(
            f"\nStored in '{self.path}': a threshold for each of "
            f"{len(settings.thresholds)} classes, and the temperature "
            f"{settings.temperature}. `effdet-keras predict --score-threshold best` "
            "uses them. The thresholds were tuned on this split; its metrics are "
            "optimistic."
        )
