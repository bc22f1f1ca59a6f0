"""The folder of parts: what shards wrote, and what shards and the merge read."""

import hashlib
import json
import re

from effdet_keras._internal.remote_path import exists, path_of, replacing_at
from effdet_keras.bulk.row_files import read_rows, write_rows
from effdet_keras.errors import InvalidStateError, InvalidValueError

SETTINGS = "settings.json"
_PART = re.compile(r"part-(\d+)-of-(\d+)-(\d+)-[0-9a-f]{8}\.(jsonl|parquet)")


class Parts:
    """A folder of parts, here or at an address.

    A part is a file of rows that is there whole or not at all. Its name has the
    shard, a number that counts up, and a digest of the images in it: of two processes
    that work on one shard, none replaces what another found in other images.

    Args:
        folder: path or address.
    """

    def __init__(self, folder):
        self.folder = path_of(folder)

    def settings(self):
        """What all shards have in common, or None if nothing was begun."""
        path = self._fresh() / SETTINGS
        if not exists(path):
            return None
        try:
            return json.loads(path.read_bytes())
        except ValueError as error:
            raise InvalidValueError(f"'{path}' is damaged ({error})") from error

    def agree(self, settings):
        """Writes the settings, or compares them with those that are there.

        Raises:
            RuntimeError: If the parts are of another model, or of other options.
        """
        there = self.settings()
        if there is None:
            self._write(SETTINGS, settings)
            return
        others = [key for key in settings if there.get(key) != settings[key]]
        if others:
            names = ", ".join(f"'{name}'" for name in others)
            raise InvalidStateError(
                f"The parts in '{self.folder}' were begun with another {names}: "
                f"{_shown(there, others)} there, {_shown(settings, others)} here. "
                "Give the same, or another folder."
            )

    def part_files(self, shard=None):
        """Paths of the parts, of one shard or of all, in the order of their names."""
        folder = self._fresh()
        if not folder.is_dir():
            return []
        found = {path.name: path for path in folder.iterdir()}
        matches = filter(None, map(_PART.fullmatch, sorted(found)))
        return [found[m[0]] for m in matches if shard in (None, int(m[1]))]

    def read(self, path):
        """Iterator of the rows of a part."""
        return read_rows(path.read_bytes(), path.name)

    def write(self, shard, count, number, rows, ending):
        """Writes a part: whole, or not at all."""
        names = "\0".join(row["file_name"] for row in rows)
        digest = hashlib.sha256(names.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = f"part-{shard:05}-of-{count:05}-{number:06}-{digest}.{ending}"
        with replacing_at(self.folder / name) as partial:
            write_rows(partial, rows)

    def next_number(self, shard):
        """The number of the shard's next part."""
        numbers = [int(_PART.fullmatch(p.name)[3]) for p in self.part_files(shard)]
        return max(numbers, default=0) + 1

    def finish(self, shard, count, num_images):
        """Notes that a shard is through, and how many images its parts have."""
        self._write(_finished(shard, count), {"images": num_images})

    def num_finished(self, shard, count):
        """How many images a shard has that is through; None while it is not."""
        path = self._fresh() / _finished(shard, count)
        return json.loads(path.read_bytes())["images"] if exists(path) else None

    def _fresh(self):
        """The folder as it is now: a `RemotePath` keeps what it once listed."""
        return path_of(str(self.folder))

    def _write(self, name, content):
        with replacing_at(self.folder / name) as partial:
            partial.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _finished(shard, count):
    return f"finished-{shard:05}-of-{count:05}.json"


def _shown(settings, names):
    return ", ".join(json.dumps(settings.get(name))[:60] for name in names)
