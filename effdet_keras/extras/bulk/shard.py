"""One shard of a large job: detects in its images that are not done yet, in parts."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
import pathlib
import time
import warnings

from effdet_keras._internal.number_ranges import check_whole_number
from effdet_keras._internal.remote_path import path_of
from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.dataset import count_of
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.runtime import ExportedDetector
from effdet_keras.extras.bulk.batch_detector import BatchDetector
from effdet_keras.extras.bulk.parts import MOST_SHARDS, Parts, rank
from effdet_keras.images import IMAGE_SUFFIXES
from effdet_keras.predictor import digest_of_arrays

_TOLD = 10  # number of unreadable images that are reported by name


def predict_shard(open_model, inputs, folder, score, *, shard, part_images, **options):
    """Runs `effdet-keras predict --parts`: detects in a shard, and writes its parts."""
    shard = Shard.parse(shard)
    sources = sources_of(inputs, shard)  # raises errors before the model is opened
    detector = BatchDetector(open_model(), score, **options)
    parts = Parts(folder)
    parts.agree(settings_of(detector, shard))
    return detect_shard(detector, sources, parts, shard, part_images=part_images)


def detect_shard(detector, sources, parts, shard, *, part_images):
    """Detects in images that no part has, and at the end again in those with errors.

    Args:
        detector: `BatchDetector`.
        sources: dict from names of images to their paths.
        parts: `Parts` to write to.
        shard: `Shard` that these images form.
        part_images: int, number of images per part.

    Returns:
        Int, the number of images that could not be read.
    """
    check_whole_number("part_images", part_images, "[1, inf)")
    known = _newest_rows(parts, shard)
    stamps = {}  # of images in progress, taken before they are read
    new, again = [], []
    for name, source in sources.items():
        row = known.get(name)
        if row is None or row["stamp"] != stamp_of(source):
            new.append(name)
        elif row["error"] is not None:
            again.append(name)
    if gone := len(known.keys() - sources.keys()):
        warnings.warn(
            f"{count_of(gone, 'image of the parts is', 'images of the parts are')} no "
            "longer among the inputs; the detections that were written before are kept",
            stacklevel=2,
        )
    num_left, num_seen, start = len(new) + len(again), 0, time.monotonic()
    if num_left:
        parts.set_finished(shard, None)

    def write(rows):
        nonlocal num_seen
        for row in rows:
            name = row["file_name"]
            before = known[name]["generation"] if name in known else -1
            row |= {"stamp": stamps.pop(name), "generation": before + 1}
            known[name] = _in_short(row)
        parts.write(shard, rows)
        num_seen += len(rows)
        speed = num_seen / max(time.monotonic() - start, 1e-6)
        print(
            f"shard {shard}: {len(sources) - num_left + num_seen:,} of "
            f"{count_of(len(sources), 'image')}, {speed:.1f} images per second",
            flush=True,
        )

    def stamped(names):
        for name in names:
            stamps[name] = stamp_of(sources[name])
            yield name, sources[name]

    for names in (new, again):
        _in_chunks(detector.stream(stamped(names)), part_images, write)
    parts.set_finished(shard, len(known))
    failed = [name for name in sources if known[name]["error"] is not None]
    for name in failed[:_TOLD]:
        warnings.warn(f"'{name}' is left out: {known[name]['error']}", stacklevel=2)
    if len(failed) > _TOLD:
        warnings.warn(f"... and {len(failed) - _TOLD:,} more", stacklevel=2)
    return len(failed)


def _newest_rows(parts, shard):
    """Returns the newest row of each image in the parts of a shard, shortened."""
    known = {}
    for _, path in parts.files(shard.number):
        for row in parts.read(path):
            name = row["file_name"]
            if name not in known or rank(row) < rank(known[name]):
                known[name] = _in_short(row)
    return known


def _in_short(row):
    return {key: row[key] for key in ("stamp", "generation", "error")}


def _in_chunks(rows, size, write):
    """Writes rows in lists of `size`; after an error, writes the rest."""
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


# --- The images of a shard: their names, which must stay the same, and their paths.


@dataclasses.dataclass(frozen=True)
class Shard:
    """Shard `number` of `count`; numbers start at 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parses text such as "2/16"."""
        number, _, count = text.partition("/")
        is_number = number.isdecimal() and count.isdecimal()
        if is_number and 1 <= int(number) <= int(count) <= MOST_SHARDS:
            return cls(int(number), int(count))
        raise InvalidValueError(
            "A shard is I/N, with I from 1 to N, such as 1/16 to 16/16. "
            f"Received: {text!r}"
        )

    def has(self, name: str) -> bool:
        """Returns whether an image belongs to this shard, by its name only."""
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8]) % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def sources_of(inputs, shard):
    """Returns the images of a shard by name, the path relative to the given folder.

    At an address, the paths share one listing of their folder, from which `stamp_of`
    takes the version of each image.
    """
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


def stamp_of(source):
    """Returns text that changes with an image: size and time, or its version."""
    path = path_of(source)
    if is_remote(path):
        return path.version()
    try:
        status = path.stat()
    except OSError:  # the image's row will have the error
        return ""
    return f"{status.st_size}-{status.st_mtime_ns}"


def _images_of(path):
    if path.is_dir():
        yield from _at_address(path) if is_remote(path) else _below(path)
    elif not path.is_file():
        raise FileNotFoundError(f"There is no image or folder '{path}'")
    elif not _is_image(path.name):
        raise InvalidValueError(
            f"'{path}' does not end like an image ({', '.join(IMAGE_SUFFIXES)}): "
            "--parts takes images and folders of images"
        )
    else:
        yield path.name, path if is_remote(path) else str(path)


def _at_address(folder, start=""):
    for path in folder.iterdir():
        if _is_image(path.name):
            yield f"{start}{path.name}", path
        elif not path.name.startswith(".") and path.is_dir():
            yield from _at_address(path, f"{start}{path.name}/")


def _below(root):
    """Yields names and paths of all images below a folder, each folder only once.

    Links to folders are followed last, in the order of their names. So an image has the
    same name in every process. A link to a folder that was already visited, such as a
    parent folder, is skipped: it would show the same images again, and two such links
    would never end.
    """
    waiting, links, seen = collections.deque([("", root)]), [], set()
    while waiting or links:
        if not waiting:
            links.sort(reverse=True)
            waiting.append(links.pop())
        start, folder = waiting.popleft()
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for path in folder.iterdir():
            name = f"{start}{path.name}"
            if _is_image(path.name):
                yield name, str(path)
            elif not path.name.startswith(".") and path.is_dir():
                group = links if path.is_symlink() else waiting
                group.append((f"{name}/", path))


def _is_image(name):
    is_hidden = name.startswith(".")
    return not is_hidden and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


# --- The settings that all shards of a job must share.


def settings_of(detector, shard):
    """Returns a dict for JSON that identifies a job."""
    runtime = getattr(detector.predictor.detector, "runtime", None)
    return {
        "shards": shard.count,
        "model": model_digest(detector.predictor),
        "precision": getattr(runtime, "precision", None),
        **detector.options,
        "categories": detector.categories,
    }


def model_digest(predictor):
    """Returns a digest of weights or exported file, independent of the location."""
    detector = predictor.detector
    if not isinstance(detector, ExportedDetector):
        return digest_of_arrays(detector.weights)
    if detector.weights_digest is not None:
        return detector.weights_digest
    path, others = pathlib.Path(detector.runtime.path), detector.runtime.other_files
    # A SavedModel is a folder, of which all files count.
    files = sorted(filter(pathlib.Path.is_file, path.rglob("*")))
    digest = hashlib.sha256()
    for file in files if path.is_dir() else (path, *others):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
