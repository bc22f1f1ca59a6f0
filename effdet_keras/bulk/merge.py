"""The parts of all shards as one file, with each image once."""

import contextlib
import heapq
import itertools
import json
import operator
import pathlib
from collections.abc import Iterable, Iterator

from effdet_keras._internal.remote_path import exists, path_of, replacing_at
from effdet_keras.bulk.parts import SETTINGS, Parts
from effdet_keras.bulk.row_files import FORMATS, write_rows
from effdet_keras.errors import InvalidStateError, InvalidValueError

_ENDINGS = (".json", *(f".{name}" for name in FORMATS))
_NAME = operator.itemgetter("file_name")


def merge_parts(folder, out, *, overwrite: bool = False) -> tuple[int, list[str]]:
    """Writes what all shards found into one file, in the order of the images' names.

    An image that several parts have, such as after a shard ran twice, is there once.
    Of each shard one part is in memory at a time.

    Args:
        folder: path or address of the parts.
        out: path or address: `.json` for a COCO file with scores, `.jsonl` for a line
            per image, `.parquet` for a row per image.
        overwrite: bool, whether a file at `out` may be replaced.

    Returns:
        `(images, names)`: how many images there are, and the names of those that could
        not be read: the COCO file leaves them out, the others give the reason.

    Raises:
        FileNotFoundError: If there are no parts.
        RuntimeError: If a shard is not through, or a part is missing.
        ValueError: If the ending of `out` is none of these, or a part is damaged.
        FileExistsError: If there is a file at `out`, and `overwrite` is False.
    """
    out, parts = path_of(out), Parts(folder)
    if out.suffix not in _ENDINGS:
        raise InvalidValueError(
            f"The ending of the output is one of {', '.join(_ENDINGS)}. "
            f"Received: '{out}'"
        )
    if exists(out) and not overwrite:
        raise FileExistsError(
            f"'{out}' is there already, and nothing is overwritten: give another path, "
            "or add --overwrite."
        )
    settings = parts.settings()
    if settings is None:
        raise FileNotFoundError(
            f"'{parts.folder}' has no {SETTINGS}: it is no folder of "
            "`effdet-keras predict --parts`"
        )
    runs = list(_sorted_runs(parts))
    _check_complete(parts, settings["shards"], runs)
    merged = _Merged(parts, [files for _, _, files in runs])
    with replacing_at(out) as partial:
        if out.suffix == ".json":
            _write_coco(partial, merged, settings["categories"])
        else:
            write_rows(partial, merged)
    count, bad = 0, []
    for row in merged:
        count += 1
        if row["error"] is not None:
            bad.append(row["file_name"])
    return count, bad
