"""`effdet-keras choose`: finds the best model, size and precision within limits."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from effdet_keras._internal.optional_imports import keras
from effdet_keras.cli.arguments import add_data, add_overwrite, add_training_fields

SUMMARY = "find and train the best model within limits on milliseconds and megabytes"
DESCRIPTION = (
    "Measures how fast the exported files of several models, image sizes and "
    "precisions are, before any training. Then trains the candidates within the "
    "limits, the better ones longer, and writes the file with the highest AP on the "
    "validation split."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    add_data(parser)
    parser.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help=(
            "folder to write to: best/ with the file, choose.json, choose.html and the "
            "runs"
        ),
    )
    parser.add_argument(
        "--target",
        default="litert",
        metavar="NAME",
        help=(
            "what the file is for: a format such as litert, onnx or openvino, or a "
            "target of `export` that runs on this machine (default: %(default)s)"
        ),
    )
    parser.add_argument(
        "--max-ms",
        type=float,
        metavar="MS",
        help=(
            "the most milliseconds per image, from reading its file to its boxes "
            "(default: no limit)"
        ),
    )
    parser.add_argument(
        "--max-mb",
        type=float,
        metavar="MB",
        help="the most megabytes that the exported file may have (default: no limit)",
    )
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="NAME",
        help=(
            "presets to compare (default: efficientdet-lite0, -lite1, -lite2 and -d0)"
        ),
    )
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=_size,
        metavar="PIXELS",
        help=(
            "input sizes to compare: the longest side of an input that has the shape "
            "of the images, or height and width, such as 192x256 (default: 192 256 320 "
            "384)"
        ),
    )
    parser.add_argument(
        "--precisions",
        nargs="+",
        metavar="NAME",
        help=(
            "precisions of the format to compare, such as float32 int8 (default: all)"
        ),
    )
    parser.add_argument(
        "--eta",
        type=int,
        default=3,
        metavar="N",
        help=(
            "after each stage, the best one in N candidates is kept, and trained N "
            "times as long (default: %(default)s)"
        ),
    )
    parser.add_argument(
        "--rungs",
        type=int,
        metavar="N",
        help=(
            "number of stages of the training, after each of which candidates are left "
            "out; 1 trains all of them to the end (default: as many as leave one "
            "candidate, at most 3)"
        ),
    )
    parser.add_argument(
        "--timed-images",
        type=int,
        default=30,
        metavar="N",
        help="number of images to time each file with (default: %(default)s)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="number of threads that the runtime may use",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the search in FOLDER, and keep what was measured and trained",
    )
    add_overwrite(parser)
    add_training_fields(parser, "number of steps of a whole training (default: 1,400)")


def _size(text):
    """Parses a number of pixels, or the two numbers of "192x256"."""
    try:
        numbers = tuple(map(int, text.split("x")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            "expected a number of pixels, or height and width such as 192x256. "
            f"Received: {text!r}"
        ) from error
    return numbers[0] if len(numbers) == 1 else numbers


def run(
    data: str,
    *,
    out: str,
    target: str = "litert",
    max_ms: float | None = None,
    max_mb: float | None = None,
    models: Sequence[str] | None = None,
    sizes: Sequence[int | tuple[int, int]] | None = None,
    precisions: Sequence[str] | None = None,
    eta: int = 3,
    rungs: int | None = None,
    timed_images: int = 30,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    settings: Sequence[str] = (),
    **fields: Any,
) -> None:
    """Runs a search, and prints its result and the path of the file."""
    keras.require("`effdet-keras choose`")
    from effdet_keras.extras.choose.choose import MODELS, SIZES, choose
    from effdet_keras.runs.configuration import parse_settings

    found = choose(
        data,
        out,
        target=target,
        max_ms=max_ms,
        max_mb=max_mb,
        models=MODELS if models is None else models,
        sizes=SIZES if sizes is None else sizes,
        precisions=precisions,
        eta=eta,
        rungs=rungs,
        timed_images=timed_images,
        threads=threads,
        resume=resume,
        overwrite=overwrite,
        **parse_settings(settings, fields),
    )
    print(f"\n{found}\nThe file: {found.path}\nFrontier: {out}/choose.html")
