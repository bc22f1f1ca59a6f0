"""Merges the parts of all shards into one file, with each image once."""

import collections
import contextlib
import heapq
import itertools
import json
import operator

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras._internal.remote_path import atomic_write_at, exists, path_of
from effdet_keras.errors import InvalidStateError, InvalidValueError, require
from effdet_keras.extras.bulk.parts import (
    IMAGE_COLUMNS,
    SETTINGS,
    Parts,
    line_of,
    rank,
    schema,
    table_of,
)

_parquet = OptionalModule("pyarrow.parquet", install="effdet-keras[parquet]")
_AT_ONCE = 4096  # rows of a Parquet file that are held in memory
_NAME = operator.itemgetter("file_name")


def merge_parts(folder, out, *, overwrite=False):
    """Writes the detections of all shards to one file, ordered by image name.

    Args:
        folder: path or address of the folder of parts.
        out: path or address of the file; ".json", ".jsonl" or ".parquet".
        overwrite: bool, whether an existing file may be replaced.

    Returns:
        The number of images, and the names of those that could not be read.

    Raises:
        ValueError: If `out` has another ending, or is a file of the folder of parts.
        FileExistsError: If `out` exists and `overwrite` is False.
        FileNotFoundError: If `folder` is not a folder of parts.
        RuntimeError: If a shard is not finished, or lacks a part.
    """
    out, parts = path_of(out), Parts(folder)
    rule = f"The output must end in {', '.join(_WRITERS)}"
    require(out.suffix in _WRITERS, rule, out=str(out))
    if parts.is_own_file(out):
        raise InvalidValueError(
            f"'{out}' is one of the files in the folder of parts, which are the "
            "input, and would be overwritten. Give another path."
        )
    if exists(out) and not overwrite:
        raise FileExistsError(
            f"'{out}' already exists, and is not overwritten: give another path, or "
            "add --overwrite."
        )
    if out.suffix == ".parquet":
        _parquet.require("Writing Parquet")
    settings = parts.settings()
    if settings is None:
        raise FileNotFoundError(
            f"'{parts.folder}' has no {SETTINGS}: it is not a folder of "
            "`effdet-keras predict --parts`"
        )
    merged = _Merged(parts, settings["shards"])
    with atomic_write_at(out) as partial:
        _WRITERS[out.suffix](partial, merged, settings["categories"])
    return merged.count, merged.failed


class _Merged:
    """The rows of all parts, each image once, by name; may be iterated repeatedly."""

    def __init__(self, parts, num_shards):
        numbers = range(1, num_shards + 1)
        finished = {n: parts.num_finished(n, num_shards) for n in numbers}
        if open_ := [f"{n}/{num_shards}" for n in numbers if finished[n] is None]:
            more = f" and {len(open_) - 10} more" if len(open_) > 10 else ""
            raise InvalidStateError(
                f"These shards in '{parts.folder}' are not finished: "
                f"{', '.join(open_[:10])}{more}. Run these shards (again): images "
                "that are finished are skipped."
            )
        self._parts, self._finished, self._files = parts, finished, []
        for shard, path in parts.files():
            first = next(iter(parts.read(path)), None)
            if first is not None:
                self._files.append((_NAME(first), shard, path))
        self._files.sort(key=operator.itemgetter(0))

    def __iter__(self):
        self.count, self.failed = 0, []
        counts = collections.Counter()
        in_order = self._in_order()
        for name, group in itertools.groupby(in_order, lambda pair: _NAME(pair[1])):
            rows = list(group)
            shard, row = min(rows, key=lambda pair: rank(pair[1]))
            counts[shard] += 1
            self.count += 1
            if row["error"] is not None:
                self.failed.append(name)
            yield row
        for shard, expected in self._finished.items():
            if counts[shard] < expected:
                raise InvalidStateError(
                    f"Shard {shard}/{len(self._finished)} found {expected:,} images, "
                    f"but its parts contain {counts[shard]:,}: a part was removed or "
                    "damaged. Run the shard again."
                )

    def _in_order(self):
        """Yields `(shard, row)` by name; opens a part when its first row is due."""
        waiting, opened = collections.deque(self._files), []
        while waiting or opened:
            if waiting and (not opened or waiting[0][0] <= opened[0][0]):
                _, shard, path = waiting.popleft()
                rows = self._parts.read(path)
            else:
                _, path, shard, row, rows = heapq.heappop(opened)
                yield shard, row
            if (row := next(rows, None)) is not None:
                heapq.heappush(opened, (_NAME(row), path, shard, row, rows))


def _write_coco(path, rows, categories):
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{{"categories": {json.dumps(categories)},\n"images": [')
        _write_list(file, _coco_images(rows))
        file.write('],\n"annotations": [')
        _write_list(file, _coco_annotations(rows))
        file.write("]}\n")


def _write_list(file, records):
    for index, record in enumerate(records):
        file.write(",\n" if index else "\n")
        file.write(json.dumps(record))


def _coco_images(rows):
    for image_id, row in enumerate(_readable(rows), 1):
        yield {"id": image_id, **{key: row[key] for key in IMAGE_COLUMNS}}


def _coco_annotations(rows):
    number = itertools.count(1)
    for image_id, row in enumerate(_readable(rows), 1):
        for found in line_of(row)["annotations"]:
            del found["label"]  # COCO's category has the name
            area = found["bbox"][2] * found["bbox"][3]
            of_image = {"id": next(number), "image_id": image_id}
            yield {**of_image, **found, "area": area, "iscrowd": 0}


def _readable(rows):
    return (row for row in rows if row["error"] is None)


def _write_json_lines(path, rows, _):
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(line_of(row)) + "\n")


def _write_parquet(path, rows, _):
    package = _parquet.require("Writing Parquet")
    rows = iter(rows)
    with contextlib.closing(
        package.ParquetWriter(path, schema(), compression="zstd")
    ) as writer:
        while some := list(itertools.islice(rows, _AT_ONCE)):
            writer.write_table(table_of(some))


_WRITERS = {
    ".json": _write_coco,
    ".jsonl": _write_json_lines,
    ".parquet": _write_parquet,
}
