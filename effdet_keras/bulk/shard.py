"""One shard of a large run: its images, without those that are done, part by part."""

import time
import warnings
from collections.abc import Mapping

from effdet_keras.bulk.batch_detector import BatchDetector
from effdet_keras.bulk.parts import Parts
from effdet_keras.bulk.sources import Shard, stamp_of
from effdet_keras.errors import InvalidValueError

_TOLD = 10  # images that cannot be read, by name


def detect_shard(
    detector: BatchDetector,
    sources: Mapping[str, str],
    parts: Parts,
    shard: Shard,
    *,
    part_images: int,
) -> int:
    """Detects in the images of a shard that no part has yet.

    An image that was replaced since its row was written is looked at again. Those
    whose row is an error are tried once more, at the end. What was found until an
    error or Ctrl-C is kept.

    Args:
        detector: `BatchDetector`.
        sources: mapping of name to path or address, see `sources_of`.
        parts: `Parts`, whose settings agree.
        shard: `Shard`.
        part_images: int, images of a part: what a kill can lose.

    Returns:
        int, how many images of the shard could not be read.

    Raises:
        ValueError: If `part_images` is below 1.
    """
    if part_images < 1:
        raise InvalidValueError(
            f"A part has 1 image or more. Received: part_images={part_images}"
        )
    progress = _Progress(shard, sources)
    for _, path in parts.files(shard.number):
        progress.note(parts.read(path))
    progress.warn_of_gone()
    progress.show()
    errors = progress.errors
    new = [name for name in sources if not progress.has(name)]
    again = [name for name in sources if name in errors]
    if new or again:
        parts.set_finished(shard, None)

    stamps = {}  # of images that are being looked at, taken before they are read

    def write(rows):
        for row in rows:
            progress.mark(row, stamps.pop(row["file_name"]))
        # An error that is known needs no second row.
        fresh = [r for r in rows if r["error"] is None or not progress.knows(r)]
        if fresh:
            parts.write(shard, fresh)
        progress.note(rows)
        progress.show(len(rows))

    def stamped(names):
        for name in names:
            stamps[name] = stamp_of(sources[name])
            yield name, sources[name]

    for names in (new, again):
        rows = detector.stream(stamped(names))
        _in_chunks(rows, part_images, write)
    parts.set_finished(shard, len(progress))
    failed = [name for name in sources if name in errors]
    for name in failed[:_TOLD]:
        warnings.warn(f"'{name}' is left out: {errors[name]}", stacklevel=2)
    if len(failed) > _TOLD:
        warnings.warn(f"... and {len(failed) - _TOLD:,} more", stacklevel=2)
    return len(failed)


def _in_chunks(rows, size, write):
    """Writes rows in lists; the last one also where the rows end by an error."""
    chunk = []
    try:
        for row in rows:
            chunk.append(row)
            if len(chunk) == size:
                write(chunk)
                chunk = []
    finally:
        if chunk:
            write(chunk)


class _Progress:
    """Which images of a shard are done, and which were tried in vain, and why."""

    def __init__(self, shard, sources):
        self._shard, self._sources = shard, sources
        self._done, self.errors = {}, {}  # generation; reason
        self._replaced = {}  # generation of images that are others now
        self._gone = 0  # rows of images that are not among the inputs any more
        self._start, self._seen = time.monotonic(), 0

    def __len__(self):
        return len({**self._done, **self.errors, **self._replaced})

    def has(self, name):
        return name in self._done or name in self.errors

    def knows(self, row):
        return self.errors.get(row["file_name"]) == row["error"]

    def mark(self, row, stamp):
        """Gives a new row what tells it from older ones of the same name."""
        row["stamp"] = stamp
        row["generation"] = self._replaced.get(row["file_name"], -1) + 1

    def note(self, rows):
        for row in rows:
            name, generation = row["file_name"], row["generation"]
            if generation < max(self._done.get(name, 0), self._replaced.get(name, 0)):
                continue
            source = self._sources.get(name)
            if source is not None and row["stamp"] != stamp_of(source):
                self._replaced[name] = generation
                self._done.pop(name, None)
                self.errors.pop(name, None)
            elif row["error"] is None:
                self._done[name] = generation
                self.errors.pop(name, None)
            elif name not in self._done:
                self.errors[name] = row["error"]

    def warn_of_gone(self):
        """Rows of images that were removed are not taken back."""
        known = {*self._done, *self.errors}
        self._gone = len(known.difference(self._sources))
        if self._gone:
            warnings.warn(
                f"{self._gone:,} images of the parts are not among the inputs any "
                "more: their rows stay",
                stacklevel=3,
            )

    def show(self, count=0):
        self._seen += count
        of_all = f"{len(self) - self._gone:,} of {len(self._sources):,} images"
        text = f"shard {self._shard}: {of_all}"
        if count:
            speed = self._seen / max(time.monotonic() - self._start, 1e-6)
            text += f", {speed:.1f} images per second"
        print(text, flush=True)
