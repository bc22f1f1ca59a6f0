"""`effdet-keras convert`: writes a dataset in another format."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from effdet_keras.cli.arguments import (
    add_data,
    add_format,
    add_on_error,
    add_reader_options,
    add_unlabelled,
)

SUMMARY = "write a dataset in another format"
DESCRIPTION = (
    "Reads a dataset in any known format, and writes its annotations and images to a "
    "new folder in another format: all splits, or the one of --split."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    add_data(parser)
    parser.add_argument(
        "out", metavar="OUT", help=("folder to write, which must not exist yet")
    )
    parser.add_argument(
        "--to",
        choices=("coco", "voc", "yolo", "csv", "tfrecord"),
        required=True,
        help="the format to write",
    )
    add_format(parser)
    add_unlabelled(parser)
    parser.add_argument(
        "--split", metavar="NAME", help="convert only this split, such as train"
    )
    parser.add_argument(
        "--num-shards",
        type=int,
        metavar="N",
        help="number of files to write per split (format tfrecord only)",
    )
    add_reader_options(parser)
    add_on_error(parser)


def run(
    data: str,
    out: str,
    *,
    to: str,
    format: str | None = None,
    split: str | None = None,
    num_shards: int | None = None,
    unlabelled: str | None = None,
    on_error: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
) -> None:
    """Writes a dataset in another format."""
    from effdet_keras.data import convert

    options = {
        "split": split,
        "format": format,
        "num_shards": num_shards,
        "unlabelled": unlabelled,
        "on_error": on_error or "raise",
        "reader_options": reader_options,
    }
    convert(data, out, to, **options)
