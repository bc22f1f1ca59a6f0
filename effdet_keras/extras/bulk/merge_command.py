"""`effdet-keras merge`: merges the parts of `predict --parts` into one file."""

from __future__ import annotations

import argparse
import warnings

from effdet_keras.cli.arguments import add_overwrite

SUMMARY = "merge the files of `predict --parts` into one file"
DESCRIPTION = (
    "Writes the detections of all shards to one file, which has each image once, in "
    "the order of the images' names."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    parser.add_argument(
        "parts",
        metavar="FOLDER",
        help="folder or address that was given to `predict --parts`",
    )
    parser.add_argument(
        "out",
        metavar="FILE",
        help=(
            "file or address to write to; its ending determines the format: .json for "
            "COCO with scores, .jsonl for one line per image, .parquet for one row per "
            "image (needs the extra `parquet`)"
        ),
    )
    add_overwrite(parser)


def run(parts: str, out: str, *, overwrite: bool = False) -> None:
    """Writes the detections of all shards into one file."""
    from effdet_keras.data.dataset import count_of
    from effdet_keras.extras.bulk.merge import merge_parts

    count, failed = merge_parts(parts, out, overwrite=overwrite)
    if failed:
        names = ", ".join(map(repr, failed[:10])) + (", ..." if failed[10:] else "")
        warnings.warn(
            f"{count_of(len(failed), 'image')} could not be read: {names}", stacklevel=2
        )
    print(f"Wrote '{out}': {count_of(count, 'image')}")
