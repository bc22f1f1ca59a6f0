"""The folder of parts: what shards write, and what shards and the merge read."""

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
MOST_SHARDS = 99_999  # five digits in the names of files
_PART = re.compile(r"rows-(\d+)-of-\d+-([0-9a-f]{16})\.jsonl")
# What a folder of parts has of its own, and what may become that: a part, or the note
# of a shard, of any number.
_OWN_FILE = re.compile(rf"{re.escape(SETTINGS)}|rows-.*\.jsonl|shard-.*\.json", re.I)


class Parts:
    """A folder of parts, here or at an address.

    A part is a file with a row in JSON for each image, in the order of their names.
    Its name has a digest of its content: what was cut off does not count, and of two
    processes that work on one shard none replaces what another found.
    """

    def __init__(self, folder):
        self.folder = path_of(folder)

    def settings(self):
        """What all shards have in common, or None if nothing was begun."""
        return self._read(
            SETTINGS,
            _are_settings,
            "It was written by another program, or changed: run the shards again, into "
            "a new folder",
        )

    def is_own_file(self, path):
        """Whether a path is a file of this folder that is read, or could be."""
        if is_remote(path) or is_remote(self.folder):
            is_inside = str(path_of(path).parent) == str(self.folder)
            return is_inside and _OWN_FILE.fullmatch(path_of(path).name) is not None
        path, folder = (pathlib.Path(os.path.realpath(p)) for p in (path, self.folder))
        return path.parent == folder and _OWN_FILE.fullmatch(path.name) is not None

    def agree(self, settings):
        """Writes the settings, or compares them with those that are there."""
        if self.settings() is None:
            self._write(SETTINGS, settings)
        there = self.settings()
        others = [key for key in settings if there.get(key) != settings[key]]
        if others:
            names = ", ".join(f"'{name}'" for name in others)
            raise InvalidStateError(
                f"The parts in '{self.folder}' were begun with another {names}: "
                f"{_shown(there, others)} there, {_shown(settings, others)} here. "
                "Give the same, or another folder."
            )

    def files(self, shard=None):
        """`(number of the shard, path)` of the parts of one shard, or of all."""
        folder = self._fresh()
        if not folder.is_dir():
            return []
        found = sorted((path.name, path) for path in folder.iterdir())
        matches = [(_PART.fullmatch(name), path) for name, path in found]
        parts = [(int(match[1]), path) for match, path in matches if match]
        return [part for part in parts if shard in (None, part[0])]

    def read(self, path):
        """The rows of a part, with `stamp` and `generation`; none of a damaged one."""
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
        """Writes a part: whole, or not at all."""
        rows = sorted(rows, key=lambda row: row["file_name"])
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        name = f"rows-{shard.number:05}-of-{shard.count:05}-{_digest(data)}.jsonl"
        with atomic_write_at(self.folder / name) as partial:
            partial.write_bytes(data)

    def set_finished(self, shard, num_images):
        """Notes how many images the parts of a shard have; None while it works."""
        name = f"shard-{shard.number:05}-of-{shard.count:05}.json"
        self._write(name, {"images": num_images})

    def num_finished(self, number, count):
        """How many images a shard has that is through; None while it is not."""
        found = self._read(
            f"shard-{number:05}-of-{count:05}.json",
            lambda found: found["images"] is None or found["images"] >= 0,
            _AGAIN,
        )
        return None if found is None else found["images"]

    def _fresh(self):
        """The folder as it is now: a `RemotePath` keeps what it once listed."""
        return path_of(str(self.folder))

    def _read(self, name, is_right, cure):
        path = self._fresh() / name
        if not exists(path):
            return None
        return _parsed(path.read_bytes(), is_right, f"'{path}'", cure)

    def _write(self, name, content):
        with atomic_write_at(self.folder / name) as partial:
            partial.write_text(json.dumps(content, indent=1), encoding="utf-8")


_AGAIN = "Remove the file and run its shard again: what other files have is kept"


def _parsed(text, is_right, where, cure):
    """The JSON of a text, which must be as `is_right` says."""
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
    """Low for the row that counts: of the newest image, and one that was read."""
    return -row["generation"], row["error"] is not None


def _are_settings(found):
    return 1 <= found["shards"] <= MOST_SHARDS and isinstance(found["categories"], list)


def _digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def _shown(settings, names):
    return ", ".join(json.dumps(settings.get(name))[:60] for name in names)


# --- What was found in one image, as a row of a table.

IMAGE_COLUMNS = ("file_name", "width", "height")
# Of each annotation one number or name; those of an image are lists in its row.
_ANNOTATION_COLUMNS = ("category_id", "label", "bbox", "score")
_ROW = {*IMAGE_COLUMNS, *_ANNOTATION_COLUMNS, "error", "stamp", "generation"}


def categories_of(predictor):
    """The classes of a predictor, as a COCO file has them: `id` and `name`."""
    count = predictor.config.num_classes
    ids = category_ids_or_default(predictor.category_ids, count)
    names = predictor.class_names or map(str, range(count))
    return [{"id": id_, "name": name} for id_, name in zip(ids, names)]


def row_of(name, image_size, found, categories):
    """The row of an image of `(height, width)`, without boxes in its padding."""
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
    """A row as a line of JSON has it: a COCO image with its `annotations`."""
    if row["error"] is not None:
        return {"file_name": row["file_name"], "error": row["error"]}
    columns = zip(*(row[key] for key in _ANNOTATION_COLUMNS))
    annotations = [dict(zip(_ANNOTATION_COLUMNS, found)) for found in columns]
    return {**{key: row[key] for key in IMAGE_COLUMNS}, "annotations": annotations}


def schema():
    """The columns of a Parquet file, or of a table in memory."""
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
