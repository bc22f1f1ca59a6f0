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

SUMMARY = "evaluate a model on a dataset, or compare two"
DESCRIPTION = (
    "Prints the metrics of COCO and of Pascal VOC, the AP of each class, the kinds "
    "of errors and what matters most. --out writes a report with curves and images. "
    "Two models are compared, with an interval for the difference of their AP."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help=(
            "a .keras file, a folder of CheckpointArchive, the folder of a run of "
            "`train`, an exported file or folder, or the name of a published model "
            "such as efficientdet-d0; two of them to compare"
        ),
    )
    add_data(parser)
    parser.add_argument(
        "--split",
        metavar="NAME",
        help="the split to evaluate on (test, or else valid, validation or val)",
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
            "folder for numbers.json and report.html; with two models, the report is "
            "about the second"
        ),
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help=("file to write the detections to, in COCO's result format"),
    )
    parser.add_argument(
        "--detections",
        action="append",
        default=[],
        metavar="FILE",
        help=(
            "a file of detections in COCO's result format, written by any system, to "
            "evaluate instead of a model or to compare with one"
        ),
    )
    parser.add_argument(
        "--slices",
        metavar="FILE.csv",
        help=(
            "a CSV file with a row for each image: a column 'file_name' or "
            "'image_id', and further columns, such as camera or weather, for whose "
            "values AP is listed"
        ),
    )
    parser.add_argument(
        "--losses",
        action="store_true",
        help=(
            "also compute the losses, from the same forward pass; needs a .keras "
            "file of a training"
        ),
    )
    parser.add_argument(
        "--store-thresholds",
        action="store_true",
        help=(
            "store the score threshold with the best F1 of each class, and the "
            "temperature that calibrates scores, in the model's .keras file, for "
            "`predict --score-threshold best` and `--calibrated`; its weights stay "
            "as they are. Tune them on another split than the one whose metrics you "
            "report: --split valid"
        ),
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help=(
            "MODEL is the folder of a run that another process trains: evaluate each "
            "new checkpoint until the run is complete"
        ),
    )
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        help=(
            "with --follow, how long to wait for a new checkpoint, such as 90s, 20m "
            "or 1.5h (20m)"
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
