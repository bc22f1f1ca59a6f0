"""`effdet-keras benchmark`."""

from __future__ import annotations

import argparse

from effdet_keras._internal.optional_imports import keras
from effdet_keras.cli.arguments import (
    add_batch_size,
    add_model,
    add_overwrite,
    add_precision,
    add_runtime,
    add_threads,
)

SUMMARY = "measure how long a model takes per image"
DESCRIPTION = (
    "Measures how long detection takes, and how long each of its stages: reading the "
    "files, letterbox, network, postprocess."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    add_model(parser)
    parser.add_argument(
        "--images",
        metavar="FOLDER",
        help="folder of images (by default, generated images of 640 x 480)",
    )
    add_batch_size(parser, default=1)
    parser.add_argument(
        "--runs",
        type=int,
        default=30,
        metavar="N",
        help="batches to measure, after 3 to warm up (%(default)s)",
    )
    parser.add_argument("--json", metavar="FILE", help="file for the numbers")
    parser.add_argument(
        "--trace",
        metavar="FOLDER",
        help="folder for a TensorFlow profile of the runs, which it slows down",
    )
    add_threads(parser)
    add_runtime(parser)
    add_precision(parser)
    add_overwrite(parser)


def run(
    model: str,
    *,
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
    """Measures how long a model takes per image."""
    keras.require("`effdet-keras benchmark`")
    from effdet_keras.cli.files import check_outputs, open_any_model
    from effdet_keras.extras.benchmark.benchmark_model import benchmark

    check_outputs([json], [model], overwrite=overwrite)
    predictor = open_any_model(model, threads, runtime=runtime, precision=precision)
    sizes = {"batch_size": batch_size, "runs": runs}
    report = benchmark(predictor, images, trace=trace, **sizes)
    print(report)
    if json is not None:
        report.save(json)
