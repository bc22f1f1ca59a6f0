"""`effdet-keras eval`: evaluates a detector on a dataset, and analyzes its errors."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from effdet_keras._internal.optional_imports import keras
from effdet_keras.cli.arguments import (
    add_batch_size,
    add_data,
    add_format,
    add_on_error,
    add_overwrite,
    add_reader_options,
    add_threads,
    add_unlabelled,
)
from effdet_keras.errors import InvalidValueError

SUMMARY = "evaluate a model on a dataset, or compare two models"
DESCRIPTION = (
    "Prints the metrics of COCO and of Pascal VOC, the AP of each class, the kinds of "
    "errors, and the findings that matter most. --out writes a report with curves and "
    "images. With two models, compares them and prints a confidence interval for the "
    "difference of their AP."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help=(
            "the model: a .keras file, a folder that CheckpointArchive wrote, the "
            "folder of a run of `train`, the name of a published model such as "
            "efficientdet-d0, or an exported file or folder; give two models to "
            "compare them"
        ),
    )
    add_data(parser)
    parser.add_argument(
        "--split",
        metavar="NAME",
        help=(
            "the split to evaluate on (default: test, or else valid, validation or "
            "val, or else the images that the run held out)"
        ),
    )
    add_format(parser)
    add_unlabelled(parser)
    add_on_error(parser)
    add_reader_options(parser)
    add_batch_size(parser, default=8)
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help=(
            "folder for numbers.json and report.html; with two models, the report "
            "describes the second one"
        ),
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="file to write the detections to, in COCO's result format",
    )
    parser.add_argument(
        "--detections",
        action="append",
        default=[],
        metavar="FILE",
        help=(
            "a file of detections in COCO's result format, which any system may have "
            "written, to evaluate instead of a model or to compare with a model"
        ),
    )
    parser.add_argument(
        "--slices",
        metavar="FILE.csv",
        help=(
            "a CSV file with one row per image: a column 'file_name' or 'image_id', "
            "and further columns, such as camera or weather; the command prints the AP "
            "for each of their values"
        ),
    )
    parser.add_argument(
        "--losses",
        action="store_true",
        help=(
            "also compute the losses, in the same forward pass; MODEL must be the run "
            "or the .keras file of a training, not an exported file"
        ),
    )
    parser.add_argument(
        "--store-thresholds",
        action="store_true",
        help=(
            "store two things in the model's .keras file: for each class the score "
            "threshold with the best F1, for `predict --score-threshold best`, and the "
            "temperature that calibrates scores, for `predict --calibrated`. The "
            "weights do not change. Use another split than the one whose metrics you "
            "report, such as --split valid"
        ),
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help=(
            "evaluate each new checkpoint of a run that another process trains, until "
            "the run is complete; MODEL is the folder of the run"
        ),
    )
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        help=(
            "with --follow: how long to wait for a new checkpoint, such as 90s, 20m or "
            "1.5h (default: 20m)"
        ),
    )
    add_threads(parser)
    add_overwrite(parser)


def run(
    models: list[str],
    data: str,
    *,
    split: str | None = None,
    format: str | None = None,
    unlabelled: str | None = None,
    on_error: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
    batch_size: int = 8,
    out: str | None = None,
    json: str | None = None,
    detections: Sequence[str] = (),
    slices: str | None = None,
    losses: bool = False,
    store_thresholds: bool = False,
    follow: bool = False,
    timeout: str | None = None,
    threads: int | None = None,
    overwrite: bool = False,
) -> None:
    """Evaluates one model, compares two, or follows a run."""
    keras.require("`effdet-keras eval`")
    from effdet_keras.cli.files import DatasetSource

    how = {"on_error": on_error, "reader_options": reader_options}
    source = DatasetSource("DATA", data, split, format, unlabelled, **how)
    of_one_evaluation = {
        "json": json,
        "detections": detections,
        "threads": threads,
        "overwrite": overwrite,
        "slices": slices,
        "losses": losses,
        "store_thresholds": store_thresholds,
    }
    if not follow:
        if timeout is not None:
            raise InvalidValueError(
                "--timeout works only with --follow: add --follow, or leave "
                "--timeout out."
            )
        from effdet_keras.cli.evaluate_files import evaluate_files

        options = {"batch_size": batch_size, "out": out, **of_one_evaluation}
        evaluate_files(models, source, **options)
        return
    if len(models) != 1 or any(of_one_evaluation.values()):
        raise InvalidValueError(
            "--follow takes the folder of one run, and only the options --out, "
            "--split, --format, --unlabelled, --on-error, --reader-option, "
            "--batch-size and --timeout: `effdet-keras eval RUN DATA --follow`."
        )
    from effdet_keras.extras.follow import follow_run

    options = {"batch_size": batch_size, "out": out}
    follow_run(models[0], source, timeout=timeout or "20m", **options)
