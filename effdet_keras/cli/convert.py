"""`effdet-keras convert`."""

from __future__ import annotations

from typing import Literal

from effdet_keras.cli.arguments import DatasetFormat


def run(
    data: str,
    out: str,
    *,
    to: Literal["coco", "voc", "yolo", "csv", "tfrecord"],
    format: DatasetFormat | None = None,
    split: str | None = None,
    num_shards: int | None = None,
    skip_errors: bool = False,
) -> None:
    """write a dataset in another format

    Reads a dataset in any known format and writes it to a new folder in another format:
    annotations and images, one split or all of them.

    Args:
        out (OUT): folder to make; must not exist
        to: the format to write
        split (NAME): convert only this split, such as train
        num_shards (N): of tfrecord: how many files to write per split
        skip_errors: leave out what is wrong in DATA instead of stopping
    """
    from effdet_keras.data import convert

    on_error = "skip" if skip_errors else "raise"
    options = {"split": split, "format": format, "num_shards": num_shards}
    convert(data, out, to, on_error=on_error, **options)
