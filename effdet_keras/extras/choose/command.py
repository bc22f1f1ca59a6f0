"""`effdet-keras choose`: finds the best model, size and precision within limits."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from effdet_keras._internal.optional_imports import keras
from effdet_keras.cli.arguments import add_data, add_overwrite, add_training_fields

SUMMARY = "train the best model within limits of milliseconds and megabytes"
DESCRIPTION = (
    "Times the exported files of several models, image sizes and precisions before "
    "any training. Trains the candidates within the limits, the better ones longer, "
    "and returns the file with the highest AP on the validation split."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    add_data(parser)
    parser.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help=(
            "folder to write: best/ with the file, choose.json, choose.html and the "
            "runs"
        ),
    )
    parser.add_argument(
        "--target",
        default="litert",
        metavar="NAME",
        help=(
            "what the file is for: a format such as litert, onnx or openvino, or a "
            "target of `export` that runs on this machine (%(default)s)"
        ),
    )
    parser.add_argument(
        "--max-ms",
        type=float,
        metavar="MS",
        help="most milliseconds per image, from its file to its boxes (any)",
    )
    parser.add_argument(
        "--max-mb",
        type=float,
        metavar="MB",
        help=("most megabytes of the exported file (any)"),
    )
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="NAME",
        help="presets to compare (efficientdet-lite0, -lite1, -lite2 and -d0)",
    )
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=_size,
        metavar="PIXELS",
        help=(
            "longest sides of the input, whose shape follows that of the images; or "
            "height and width, such as 192x256 (192 256 320 384)"
        ),
    )
    parser.add_argument(
        "--precisions",
        nargs="+",
        metavar="NAME",
        help="precisions of the format to compare, such as float32 int8 (all)",
    )
    parser.add_argument(
        "--eta",
        type=int,
        default=3,
        metavar="N",
        help="one of N candidates is trained N times as long (%(default)s)",
    )
    parser.add_argument(
        "--rungs",
        type=int,
        metavar="N",
        help=(
            "number of stages of training, between which candidates are left out; 1 "
            "trains all to the end (3)"
        ),
    )
    parser.add_argument(
        "--timed-images",
        type=int,
        default=30,
        metavar="N",
        help="images to time each file with (%(default)s)",
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="threads that the runtime may use"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the search in FOLDER: what was measured and trained is kept",
    )
    add_overwrite(parser)
    add_training_fields(parser, "steps of a whole training (1,400)")


def _size(text):
    """Parses a number of pixels, or the two numbers of "192x256"."""
    numbers = tuple(map(int, text.split("x")))
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
