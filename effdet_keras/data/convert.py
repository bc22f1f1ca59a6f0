"""From one format of a dataset to another, with all its splits."""

from __future__ import annotations

import os

from effdet_keras.data.formats.folder_writing import refuse_existing
from effdet_keras.data.formats.registry import FORMATS
from effdet_keras.data.load import load, load_splits
from effdet_keras.errors import InvalidValueError


def convert(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    to: str,
    *,
    split: str | None = None,
    format: str | None = None,
    num_shards: int | None = None,
    csv_format: str | None = None,
    on_error: str = "raise",
) -> None:
    """Writes a dataset that is on disk in another format, images included.

    Prints what was found and what was written.

    Args:
        data: path of a file or folder, as `load` takes it.
        out: folder to make. It appears once it is complete.
        to: "coco", "voc", "yolo", "csv", "tfrecord" or "tfds".
        split: the split to convert, such as "train". None converts all.
        format: the format to read, where `data` holds several. None finds it out.
        num_shards: files per split, for "tfrecord" only. None chooses.
        csv_format: "tfod" or "automl", for "csv" only. None is "tfod".
        on_error: "raise" raises one error that names everything that is wrong in the
            data; "skip" leaves it out with a warning.

    Returns:
        `None`.

    Raises:
        FileExistsError: If `out` is there.
        FileNotFoundError: If `data` is not there.
        ValueError: If `to` is unknown, an option does not belong to it, or as
            `load` and the writer do.

    Example:
        >>> import tempfile
        >>> from effdet_keras.data import write_shapes
        >>> folder = tempfile.mkdtemp()
        >>> _ = write_shapes(f"{folder}/coco", num_train=3, num_valid=2)
        >>> convert(f"{folder}/coco", f"{folder}/yolo", "yolo")
        '/.../coco' is COCO json: splits train, valid
        '/.../yolo' is written
          train: DetectionDataset(3 images, ... circle, square, triangle)
          valid: DetectionDataset(2 images, ... circle, square, triangle)
    """
    if to not in FORMATS:
        raise InvalidValueError(
            f"`to` must be one of {list(FORMATS)}. Received: to={to!r}"
        )
    if (num_shards is not None and to != "tfrecord") or (csv_format and to != "csv"):
        raise InvalidValueError(
            "`num_shards` is an option of 'tfrecord', `csv_format` one of 'csv'. "
            f"Received: to={to!r}, num_shards={num_shards!r}, csv_format={csv_format!r}"
        )
    options = {"num_shards": num_shards} if to == "tfrecord" else {}
    options = {"format": csv_format} if csv_format else options
    refuse_existing(out)  # before the reading, which may take long
    if split is None:
        datasets = load_splits(data, format=format, on_error=on_error)
    else:
        datasets = {split: load(data, split, format=format, on_error=on_error)}
    FORMATS[to].write(datasets, out, **options)
    print(f"{str(out)!r} is written")
    for name, dataset in datasets.items():
        print(f"  {name}: {dataset}")
