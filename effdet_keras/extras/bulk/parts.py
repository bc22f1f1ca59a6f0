"""The folder of parts, which shards write, and which shards and the merge read."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import warnings

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras._internal.remote_path import atomic_write_at, exists, path_of
from effdet_keras._internal.whole_files import is_remote
from effdet_keras.errors import InvalidStateError, InvalidValueError, first_line
from effdet_keras.labels import category_ids_or_default
from effdet_keras.letterbox import has_area

pyarrow = OptionalModule("pyarrow", install="effdet-keras[parquet]")
SETTINGS = "settings.json"
MOST_SHARDS = 99_999  # file names have five digits
_PART = re.compile(r"rows-(\d+)-of-\d+-([0-9a-f]{16})\.jsonl")
# The files of a folder of parts, and names that may become such files: parts, or notes
# of shards, of any number.
_OWN_FILE = re.compile(rf"{re.escape(SETTINGS)}|rows-.*\.jsonl|shard-.*\.json", re.I)


class Parts:
    """A folder of parts, here or at an address.

    A part is a file with one JSON row per image, in the order of their names. Its name
    contains a digest of its content. So a truncated file does not count, and of two
    processes that work on the same shard, neither replaces the other's results.
    """

    def __init__(self, folder):
        self.folder = path_of(folder)

    def settings(self):
        """Returns the settings that all shards share; None if no shard has begun."""
        return self._read(
            SETTINGS,
            _are_settings,
            "It was written by another program, or changed: run the shards again, into "
            "a new folder",
        )

    def is_own_file(self, path):
        """Returns whether a path is, or could be, a file of this folder of parts."""
        if is_remote(path) or is_remote(self.folder):
            is_inside = str(path_of(path).parent) == str(self.folder)
            return is_inside and _OWN_FILE.fullmatch(path_of(path).name) is not None
        path, folder = (pathlib.Path(os.path.realpath(p)) for p in (path, self.folder))
        return path.parent == folder and _OWN_FILE.fullmatch(path.name) is not None

    def agree(self, settings):
        """Writes the settings; raises `InvalidStateError` if others exist already."""
        if self.settings() is None:
            self._write(SETTINGS, settings)
        there = self.settings()
        others = [key for key in settings if there.get(key) != settings[key]]
        if others:
            names = ", ".join(f"'{name}'" for name in others)
            raise InvalidStateError(
                f"The parts in '{self.folder}' were begun with other settings "
                f"({names}): {_shown(there, others)} then, {_shown(settings, others)} "
                "now. Give the settings from before, or another folder."
            )

    def files(self, shard=None):
        """Returns `(number of the shard, path)` for the parts of one or all shards."""
        folder = self._fresh()
        if not folder.is_dir():
            return []
        found = sorted((path.name, path) for path in folder.iterdir())
        matches = [(_PART.fullmatch(name), path) for name, path in found]
        parts = [(int(match[1]), path) for match, path in matches if match]
        return [part for part in parts if shard in (None, part[0])]

    def read(self, path):
        """Yields the rows of a part, with `stamp` and `generation`; none if damaged."""
        data = path.read_bytes()
        if _digest(data) != _PART.fullmatch(path.name)[2]:
            warnings.warn(
                f"'{path}' is damaged and ignored: run its shard again",
                stacklevel=2,
            )
            return
        for number, line in enumerate(data.splitlines(), 1):
            where = f"Line {number} of '{path}'"
            yield _parsed(line, lambda row: row.keys() >= _ROW, where, _AGAIN)

    def write(self, shard, rows):
        """Writes a part, completely or not at all."""
        rows = sorted(rows, key=lambda row: row["file_name"])
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        name = f"rows-{shard.number:05}-of-{shard.count:05}-{_digest(data)}.jsonl"
        with atomic_write_at(self.folder / name) as partial:
            partial.write_bytes(data)

    def set_finished(self, shard, num_images):
        """Records how many images the parts of a shard have; None while it runs."""
        name = f"shard-{shard.number:05}-of-{shard.count:05}.json"
        self._write(name, {"images": num_images})

    def num_finished(self, number, count):
        """Returns the number of images of a finished shard; None if it is not."""
        found = self._read(
            f"shard-{number:05}-of-{count:05}.json",
            lambda found: found["images"] is None or found["images"] >= 0,
            _AGAIN,
        )
        return None if found is None else found["images"]

    def _fresh(self):
        """Returns the folder without cached listings, which a `RemotePath` keeps."""
        return path_of(str(self.folder))

    def _read(self, name, is_right, cure):
        path = self._fresh() / name
        if not exists(path):
            return None
        return _parsed(path.read_bytes(), is_right, f"'{path}'", cure)

    def _write(self, name, content):
        with atomic_write_at(self.folder / name) as partial:
            partial.write_text(json.dumps(content, indent=1), encoding="utf-8")


_AGAIN = "Remove the file and run its shard again: the results in other files are kept"


def _parsed(text, is_right, where, cure):
    """Parses JSON text; raises ValueError unless `is_right` accepts the content."""
    try:
        found = json.loads(text)
        if is_right(found):
            return found
        reason = "a value in it cannot be right"
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        reason = first_line(error)
    raise InvalidValueError(
        f"{where} is damaged ({reason}): it is not what `effdet-keras predict --parts` "
        f"writes. {cure}."
    )


def rank(row):
    """Returns a key that is lowest for the newest row that has no error."""
    return -row["generation"], row["error"] is not None


def _are_settings(found):
    return 1 <= found["shards"] <= MOST_SHARDS and isinstance(found["categories"], list)


def _digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def _shown(settings, names):
    return ", ".join(json.dumps(settings.get(name))[:60] for name in names)


# --- The detections in one image, as a row of a table.

IMAGE_COLUMNS = ("file_name", "width", "height")
# Columns with one value per annotation; in the row of an image they are lists.
_ANNOTATION_COLUMNS = ("category_id", "label", "bbox", "score")
_ROW = {*IMAGE_COLUMNS, *_ANNOTATION_COLUMNS, "error", "stamp", "generation"}


def categories_of(predictor):
    """Returns the classes of a predictor as in a COCO file: `id` and `name`."""
    count = predictor.config.num_classes
    ids = category_ids_or_default(predictor.category_ids, count)
    names = predictor.class_names or map(str, range(count))
    return [{"id": id_, "name": name} for id_, name in zip(ids, names)]


def row_of(name, image_size, found, categories):
    """Returns the row of an image `(height, width)`, without boxes in its padding."""
    found = found[has_area(found.boxes)]
    classes = [categories[label] for label in found.labels.tolist()]
    boxes = [(x, y, x1 - x, y1 - y) for y, x, y1, x1 in found.boxes.tolist()]
    height, width = map(int, image_size)
    return {
        **dict(zip(IMAGE_COLUMNS, (name, width, height))),
        "category_id": [category["id"] for category in classes],
        "label": [category["name"] for category in classes],
        "bbox": [[round(number, 2) for number in box] for box in boxes],
        "score": [round(score, 6) for score in found.scores.tolist()],
        "error": None,
    }


def row_of_error(name, error):
    lists = {key: [] for key in _ANNOTATION_COLUMNS}
    return {**dict(zip(IMAGE_COLUMNS, (name, 0, 0))), **lists, "error": str(error)}


def line_of(row):
    """Returns a row for a JSON line: a COCO image with its `annotations`."""
    if row["error"] is not None:
        return {"file_name": row["file_name"], "error": row["error"]}
    columns = zip(*(row[key] for key in _ANNOTATION_COLUMNS))
    annotations = [dict(zip(_ANNOTATION_COLUMNS, found)) for found in columns]
    return {**{key: row[key] for key in IMAGE_COLUMNS}, "annotations": annotations}


def schema():
    """Returns the columns of a Parquet file, or of a table in memory."""
    pa = pyarrow.require("Parquet")
    return pa.schema(
        [
            ("file_name", pa.string()),
            ("width", pa.int32()),
            ("height", pa.int32()),
            ("category_id", pa.list_(pa.int64())),
            ("label", pa.list_(pa.string())),
            ("bbox", pa.list_(pa.list_(pa.float32()))),
            ("score", pa.list_(pa.float32())),
            ("error", pa.string()),
        ]
    )


def table_of(rows):
    return pyarrow.require("Parquet").Table.from_pylist(rows, schema=schema())
