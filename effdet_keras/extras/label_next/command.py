"""`effdet-keras label-next`: writes the images to label next, with boxes to correct."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from effdet_keras._internal.number_ranges import check_whole_number
from effdet_keras._internal.optional_imports import keras
from effdet_keras.cli.arguments import (
    add_batch_size,
    add_format,
    add_reader_options,
    add_unlabelled,
)

SUMMARY = "choose the images to label next, with boxes to correct in a labelling tool"
DESCRIPTION = (
    "Ranks unlabelled images by how much a detector is expected to learn from their "
    "labels. First come images in which the detector is unsure of its scores, in whose "
    "mirror images it finds other boxes, or which differ most from the labelled "
    "images; near-duplicates come last. Writes the first images, with the detector's "
    "boxes as pre-annotations to correct in a labelling tool."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    parser.add_argument(
        "model",
        metavar="RUN",
        help="the folder of a run of `train`, or any model that `predict` takes",
    )
    parser.add_argument(
        "images",
        metavar="IMAGES",
        help="folder of images that are not labelled; its subfolders are searched too",
    )
    parser.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="new folder for the images, the boxes and ranking.csv",
    )
    parser.add_argument(
        "--to",
        required=True,
        choices=("labelstudio", "cvat", "labelme", "coco"),
        help="the labelling tool, or the format, to write the boxes for",
    )
    parser.add_argument(
        "--count",
        type=int,
        default=100,
        metavar="N",
        help="number of images to write; 0 writes all (default: %(default)s)",
    )
    parser.add_argument(
        "--labelled",
        metavar="DATA",
        help="the dataset that is labelled already (default: the data of RUN)",
    )
    add_format(parser, "--labelled DATA")
    add_unlabelled(parser)
    add_reader_options(parser)
    parser.add_argument(
        "--score-threshold",
        type=_score,
        default=0.3,
        metavar="S",
        help=(
            "lowest score of the boxes to write, or 'best' for the threshold of each "
            "class that `eval --store-thresholds` stored in the model (default: "
            "%(default)s)"
        ),
    )
    add_batch_size(parser, default=8)
    parser.add_argument(
        "--address",
        metavar="TEXT",
        help=(
            "prefix of the image names in the tasks of Label Studio, such as "
            "s3://bucket/ (default: the prefix for its local files)"
        ),
    )


def _score(text):
    try:
        return text if text == "best" else float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected a number from 0 to 1, or best. Received: {text!r}"
        ) from error


def run(
    model: str,
    images: str,
    *,
    out: str,
    to: str,
    count: int = 100,
    labelled: str | None = None,
    format: str | None = None,
    unlabelled: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
    score_threshold: float | str = 0.3,
    batch_size: int = 8,
    address: str | None = None,
) -> None:
    """Writes the images to label next."""
    keras.require("`effdet-keras label-next`")
    from effdet_keras.extras.label_next.label_next import label_next

    check_whole_number("count", count, "[0, inf)")
    label_next(
        model,
        images,
        out,
        to,
        count=count or None,
        labelled=labelled,
        format=format,
        unlabelled=unlabelled,
        reader_options=reader_options,
        score_threshold=score_threshold,
        batch_size=batch_size,
        address=address,
    )
