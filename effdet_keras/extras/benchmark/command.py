"""`effdet-keras benchmark`: times a model, or measures all its exported files."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from effdet_keras._internal.optional_imports import keras
from effdet_keras._internal.whole_files import write_text
from effdet_keras.cli.arguments import (
    add_batch_size,
    add_data,
    add_format,
    add_model,
    add_on_error,
    add_overwrite,
    add_precision,
    add_reader_options,
    add_runtime,
    add_threads,
    add_unlabelled,
)
from effdet_keras.errors import InvalidValueError, require

SUMMARY = "measure how long a model takes per image, or compare exported files of it"
DESCRIPTION = (
    "Measures how long detection takes, and how long each of its stages takes: reading "
    "the files, letterbox, network and postprocess. With DATA and --targets, the "
    "command exports the model to each target, and measures for each exported file the "
    "AP, the loss of AP against the model, milliseconds, megabytes and memory. The "
    "options --images, --batch-size, --trace, --runtime and --precision work only "
    "without DATA."
)

_CALIBRATION_SPLITS = ("train", "trainval")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    add_model(parser)
    add_data(parser, nargs="?")
    files = parser.add_argument_group("measuring each exported file, with DATA")
    files.add_argument(
        "--targets",
        metavar="NAMES",
        help=(
            "what to export and measure: all, or names separated by commas: formats, "
            "with a precision if they have several, such as litert-int8, and targets, "
            "such as coral"
        ),
    )
    files.add_argument(
        "--out",
        metavar="FOLDER",
        help="folder for the files, benchmark.json, benchmark.md and benchmark.html",
    )
    files.add_argument(
        "--split",
        metavar="NAME",
        help=(
            "the split to evaluate on (default: test, or else valid, validation or "
            "val, or else the images that the run held out)"
        ),
    )
    add_format(files)
    add_unlabelled(files)
    add_on_error(files)
    add_reader_options(files)
    parser.add_argument(
        "--images",
        metavar="FOLDER",
        help=(
            "folder of images to detect in (default: generated images of 640 x 480 "
            "pixels)"
        ),
    )
    add_batch_size(parser, default=1)
    parser.add_argument(
        "--runs",
        type=int,
        default=30,
        metavar="N",
        help=(
            "number of batches to measure, after 3 batches to warm up (default: "
            "%(default)s)"
        ),
    )
    parser.add_argument(
        "--json", metavar="FILE", help="JSON file to write the numbers to"
    )
    parser.add_argument(
        "--trace",
        metavar="FOLDER",
        help="folder for a TensorFlow profile of the runs, which slows them down",
    )
    add_threads(parser)
    add_runtime(parser)
    add_precision(parser)
    add_overwrite(parser)


def run(
    model: str,
    data: str | None = None,
    *,
    targets: str | None = None,
    out: str | None = None,
    split: str | None = None,
    format: str | None = None,
    unlabelled: str | None = None,
    on_error: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
    images: str | None = None,
    batch_size: int = 1,
    runs: int = 30,
    json: str | None = None,
    trace: str | None = None,
    threads: int | None = None,
    runtime: str | None = None,
    precision: str = "float32",
    overwrite: bool = False,
) -> None:
    """Measures the time of a model per image, or all of its exported files."""
    from effdet_keras.cli.files import (
        DatasetSource,
        check_outputs,
        open_any_model,
        open_live_model,
    )

    rule = (
        "DATA and --targets can only be given together: `benchmark MODEL DATA "
        "--targets all`"
    )
    require((data is None) == (targets is None), rule, data=data, targets=targets)
    if targets is None:
        from effdet_keras.extras.benchmark.benchmark_model import benchmark

        rule = (
            "--out, --split, --format, --unlabelled, --on-error and --reader-option "
            "work only with DATA and --targets: add these, or leave the options out"
        )
        given = {"out": out, "split": split, "format": format, "unlabelled": unlabelled}
        given |= {"on_error": on_error, "reader_options": reader_options}
        require(not any(given.values()), rule, **given)
        check_outputs([json], models=[model], overwrite=overwrite)
        predictor = open_any_model(model, threads, runtime=runtime, precision=precision)
        sizes = {"batch_size": batch_size, "runs": runs}
        report = benchmark(predictor, images, trace=trace, **sizes)
        print(report)
        if json is not None:
            report.save(json)
        return

    rule = (
        "--images, --batch-size, --trace, --runtime and --precision work only "
        "without DATA and --targets: exported files are timed on images of DATA, one "
        "at a time, each in its own runtime and precision. Leave these options out, "
        "or leave DATA and --targets out"
    )
    given = {"images": images, "trace": trace, "runtime": runtime}
    is_usual = batch_size == 1 and precision == "float32" and not any(given.values())
    given |= {"batch_size": batch_size, "precision": precision}
    require(is_usual, rule, **given)
    folder = None if out is None else pathlib.Path(out)
    check_outputs([json, out], [data], models=[model], overwrite=overwrite)
    how = {"on_error": on_error, "reader_options": reader_options}
    source = DatasetSource("DATA", data, split, format, unlabelled, **how)
    keras.require("`effdet-keras benchmark`")
    from effdet_keras.cli.evaluation_images import evaluation_images, read_as_trained

    source = read_as_trained(source, [model])
    chosen, valid, _, calibration = evaluation_images(source, [model])
    if calibration is None:
        calibration = _calibration(source, chosen)
    live = open_live_model(model)
    from effdet_keras.extras.benchmark.benchmark_files import benchmark_files

    table = benchmark_files(
        live,
        valid,
        targets,
        calibration=calibration,
        folder=folder,
        runs=runs,
        threads=threads,
    )
    print(f"\n{table}")
    if json is not None:
        table.save(json)
    if folder is not None:
        _write(table, folder)


def _calibration(source, evaluated):
    """Returns the training split of DATA; None if that is the split to evaluate on."""
    others = dataclasses.replace(source, split=None)
    try:
        split = others.chosen_split(_CALIBRATION_SPLITS)
    except InvalidValueError:
        return None
    return others.load((split,)) if split != evaluated else None


def _write(table, folder):
    """Writes the report as JSON, Markdown and HTML."""
    folder.mkdir(parents=True, exist_ok=True)
    table.save(folder / "benchmark.json")
    write_text(folder / "benchmark.md", table.markdown())
    write_text(folder / "benchmark.html", table.html())
    print(f"\nWrote '{folder / 'benchmark.html'}'")
