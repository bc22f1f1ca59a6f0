"""Evaluates models and files of detections on a dataset, and writes a report."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

from effdet_keras._internal.local_paths import local_path
from effdet_keras._internal.whole_files import replacing
from effdet_keras.commands.dataset_source import EVALUATION_SPLITS, DatasetSource
from effdet_keras.commands.detection_sources import (
    DetectionSource,
    FileSource,
    ModelSource,
)
from effdet_keras.commands.outputs import check_outputs
from effdet_keras.commands.threshold_store import ThresholdStore
from effdet_keras.data.image_columns import read_image_columns
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluation.comparison import Comparison, compare_evaluations
from effdet_keras.evaluation.evaluation import Evaluation, analyze_results
from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.results_to_coco import detections_to_coco
from effdet_keras.inference.evaluate import losses_text
from effdet_keras.report.evaluation_report import EvaluationReport
from effdet_keras.runs.environment import describe_environment, environment_facts


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
        models: paths or names of models, as `open_any_model` takes them.
        data: `DatasetSource`; without a split, the first of `EVALUATION_SPLITS`.
        detections: paths of files in COCO's result format. Together with `models`
            there must be one or two; models come first.
        batch_size: int, images at once.
        threads: int, of the runtime of exported models; None for its own choice.
        out: folder for `numbers.json` and `report.html`, made if need be; None for
            none.
        json_path: file for the detections in COCO's result format; None for none.
        overwrite: bool, whether files that are there may be replaced.
        store_thresholds: bool, whether to store thresholds and temperature in the
            model's `.keras` file, whose weights stay as they are.
        losses: bool, whether to compute the losses of models as well, from the same
            forward pass.
        slices: path of a CSV file, as `read_image_columns` takes it, whose columns the
            AP is sliced by; None for none.

    Returns:
        List of `Evaluated`, one or two.

    Raises:
        ValueError: If there are no detectors or more than two, `json_path` is given
            with two, the model can store no thresholds, the classes of a model are
            not those of the dataset, or a file is not what it should be.
        FileExistsError: If a file to be written is there, and `overwrite` is False.
        OSError: If a file to be read is not there.
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
