"""One shard of a large run: its images, without those that are done, part by part."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from effdet_keras._internal.remote_path import path_of
from effdet_keras._internal.whole_files import is_remote
from effdet_keras.detect.detect import ScoreThreshold
from effdet_keras.detect.predictor import Predictor
from effdet_keras.errors import InvalidValueError, check_argument
from effdet_keras.export.runtime import ExportedDetector
from effdet_keras.extras.bulk.batch_detector import BatchDetector
from effdet_keras.extras.bulk.parts import Parts
from effdet_keras.images import IMAGE_SUFFIXES

_TOLD = 10  # images that cannot be read, by name


def predict_shard(
    open_model: Callable[[], Predictor],
    inputs: Sequence[str],
    folder: str,
    score: ScoreThreshold,
    *,
    shard: str,
    part_images: int,
    **options: Any,
) -> int:
    """`effdet-keras predict --parts`: detects in a shard, and writes its parts."""
    shard = Shard.parse(shard)
    sources = sources_of(inputs, shard)  # before the model is opened
    detector = BatchDetector(open_model(), score, **options)
    parts = Parts(folder)
    parts.agree(settings_of(detector, shard))
    return detect_shard(detector, sources, parts, shard, part_images=part_images)


def detect_shard(
    detector: BatchDetector,
    sources: Mapping[str, str],
    parts: Parts,
    shard: Shard,
    *,
    part_images: int,
) -> int:
    """Detects in the images that no part has; again in those with errors, last."""
    check_argument(part_images >= 1, "part_images", part_images, "1 or more")
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


# --- The images of a shard: their names, which never change, and where they are.


@dataclasses.dataclass(frozen=True)
class Shard:
    """Shard `number` of `count`, counted from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Reads "2/16"."""
        number, _, count = text.partition("/")
        is_number = number.isdecimal() and count.isdecimal()
        if is_number and 1 <= int(number) <= int(count) <= 99_999:
            return cls(int(number), int(count))
        raise InvalidValueError(
            "A shard is I/N, with I from 1 to N, such as 1/16 to 16/16. "
            f"Received: {text!r}"
        )

    def has(self, name: str) -> bool:
        """Whether an image is of this shard: by its name alone."""
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8]) % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def sources_of(inputs: Iterable[str | os.PathLike], shard: Shard) -> dict[str, str]:
    """The images of a shard, by their paths from the folder that was given."""
    found = {}
    for given in inputs:
        for name, path in _images_of(path_of(given)):
            if not shard.has(name):
                continue
            if found.setdefault(name, path) != path:
                raise InvalidValueError(
                    f"'{found[name]}' and '{path}' would both be '{name}' in the "
                    "output. Give the folder that holds both."
                )
    return dict(sorted(found.items()))


def stamp_of(source: str) -> str:
    """What changes with an image: its bytes and time, or a storage's version."""
    path = path_of(source)
    if is_remote(path):
        return path.version()
    try:
        status = path.stat()
    except OSError:  # its row tells why
        return ""
    return f"{status.st_size}-{status.st_mtime_ns}"


def _images_of(path) -> Iterator[tuple[str, str]]:
    if path.is_dir():
        remote = is_remote(path)
        yield from _below_address(path) if remote else _below(os.fspath(path))
    elif not path.is_file():
        raise FileNotFoundError(f"There is no image or folder '{path}'")
    elif not _is_image(path.name):
        raise InvalidValueError(
            f"'{path}' is no image by its ending ({', '.join(IMAGE_SUFFIXES)}): shards "
            "are of images and of folders of images"
        )
    else:
        yield path.name, str(path)


def _below(root):
    seen = set()  # links to folders are followed, also in circles: each folder once
    for folder, folders, files in os.walk(root, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(
            (name for name in folders if not name.startswith(".")),
            key=lambda name: (os.path.islink(os.path.join(folder, name)), name),
        )
        inner = os.path.relpath(folder, root).replace(os.sep, "/")
        start = "" if inner == "." else f"{inner}/"
        for name in sorted(filter(_is_image, files)):
            yield f"{start}{name}", os.path.join(folder, name)


def _below_address(folder, start=""):
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _below_address(path, f"{start}{path.name}/")
        elif _is_image(path.name):
            yield f"{start}{path.name}", str(path)


def _is_image(name):
    is_hidden = name.startswith(".")
    return not is_hidden and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


# --- What the shards of one run must have in common.


def settings_of(detector: BatchDetector, shard: Shard) -> dict[str, Any]:
    """Returns a dict for JSON, by which one run is told from another."""
    return {
        "shards": shard.count,
        "model": model_digest(detector.predictor),
        **detector.options,
        "categories": detector.categories,
    }


def model_digest(predictor: Predictor) -> str:
    """A digest of the weights, or of the exported file: wherever the model lies."""
    digest, detector = hashlib.sha256(), predictor.detector
    if isinstance(detector, ExportedDetector):
        path = pathlib.Path(detector.runtime.path)
        # OpenVINO has a `.bin` beside the `.xml`; a SavedModel is a folder.
        is_file = path.is_file()
        files = path.parent.glob(f"{path.stem}.*") if is_file else path.rglob("*")
        for file in sorted(filter(pathlib.Path.is_file, files)):
            if not is_file or file.suffix in (path.suffix, ".bin"):
                digest.update(file.read_bytes())
    else:
        for weight in detector.weights:
            digest.update(np.ascontiguousarray(weight).tobytes())
    return digest.hexdigest()[:16]
