"""Detects in images, folders, videos and cameras; writes drawings, COCO and CSV."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import itertools
import json
import os
import pathlib
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from PIL import Image

from effdet_keras._internal.remote_path import path_of
from effdet_keras._internal.whole_files import (
    atomic_write,
    is_remote,
    local_path,
    shown_address,
    write_text,
)
from effdet_keras.cli.files import check_outputs
from effdet_keras.detect.detect import (
    ScoreRule,
    ScoreThreshold,
    check_batch_size,
    prefetch_map,
)
from effdet_keras.detect.detections import Detections
from effdet_keras.errors import printable, require
from effdet_keras.export.runtime import ExportedDetector
from effdet_keras.images import IMAGE_SUFFIXES, list_images, read_image
from effdet_keras.labels import category_ids_or_default
from effdet_keras.predictor import Predictor

# Number of images from which a conversion pays: it takes 8 to 15 s, and then saves 5 to
# 17 ms per image.
_MANY = 2_000


def predict_files(
    predictor: Predictor,
    inputs: Sequence[str | os.PathLike],
    out: str | os.PathLike | None = None,
    *,
    json_path: str | os.PathLike | None = None,
    csv_path: str | os.PathLike | None = None,
    crops: str | os.PathLike | None = None,
    track: bool = False,
    batch_size: int = 1,
    overwrite: bool = False,
    score_threshold: ScoreThreshold = 0.3,
    calibrated: bool = False,
    classes: Sequence[str | int] | None = None,
    **options: Any,
) -> int:
    """Detects in files, prints a line per image or frame, and writes the outputs.

    An image that cannot be read is skipped with a warning. If an error or Ctrl-C ends
    the work, the COCO file and the CSV file have the detections found until then.

    Args:
        predictor: `Predictor`, the model.
        inputs: images, folders of images, videos, numbers of cameras, or addresses.
        out: folder for images and videos with the boxes drawn; None for none.
        json_path: COCO file to write, with scores; None for none.
        csv_path: CSV file to write, one row per box; None for none.
        crops: folder for the part of the image in each box; None for none.
        track: bool, whether to track objects from frame to frame in videos.
        batch_size: int, images per batch.
        overwrite: bool, whether existing files may be replaced.
        score_threshold, calibrated, classes: as in `Predictor.detect`.
        **options: other arguments of `Predictor.detect` and `detect_video`.

    Returns:
        Int, the number of images that could not be read.
    """
    paths = {"out": out, "json_path": json_path, "csv_path": csv_path, "crops": crops}
    out, json_path, csv_path, crops = (
        None if path is None else local_path(path, f"`{name}`")
        for name, path in paths.items()
    )
    # Raises an error for wrong arguments before any work.
    check_batch_size(batch_size)
    ScoreRule(predictor, score_threshold, calibrated, classes)
    sources = _find_sources(inputs)
    names = names_of(sources)
    outputs = [out, json_path, csv_path, crops]
    if any(path is not None for path in outputs):
        rule = (
            "Two inputs would have the same name in the output: run the command once "
            "for each"
        )
        require(not _has_twins(names), rule, inputs=list(map(str, sources)))
    targets = {}
    if out is not None:
        targets = {source: out / _drawn_name(source, names[source]) for source in names}
    files = [source for source in sources if isinstance(source, pathlib.Path)]
    outputs = [*targets.values(), json_path, csv_path, crops]
    check_outputs(outputs, files, overwrite=overwrite)
    if crops is not None:
        _check_crops(crops, files)
    options |= {
        "score_threshold": score_threshold,
        "calibrated": calibrated,
        "classes": classes,
    }
    work = _Work(predictor, targets, names, options, track, crops)
    failed, is_complete = 0, False
    try:
        for batch, found in work.batches(_batched(sources, batch_size)):
            failed += work.video(batch[0]) if found is None else work.images(found)
        is_complete = True
    finally:  # keeps what was found before an error or Ctrl-C
        if is_complete or work.coco_file.images:
            work.write(json_path, csv_path)
    return failed


class _Work:
    """The state that all inputs of one call share."""

    def __init__(self, predictor, targets, names, options, track=False, crops=None):
        self.predictor, self.options, self.track = predictor, options, track
        self.targets, self.names, self.crops = targets, names, crops
        self.coco_file = _COCOFile(predictor)
        stems = {source: _without_suffix(name) for source, name in names.items()}
        self.crop_names = names if _has_twins(stems) else stems

    def batches(self, batches):
        """Applies `detect_batch` to each batch; with a Keras model to two at once.

        A Keras model leaves CPU cores idle. An exported model uses all cores, and other
        threads would slow it down.
        """
        if isinstance(self.predictor.detector, ExportedDetector):
            return map(self.detect_batch, batches)
        return prefetch_map(self.detect_batch, batches, 1)

    def detect_batch(self, paths):
        """Returns the paths, and their detections or errors; None for a video."""
        if is_video(paths[0]):
            return paths, None
        images, found = {}, {}
        for path in paths:
            try:
                images[path] = read_image(path)
            except (ValueError, OSError) as error:
                found[path] = error
        size = {"batch_size": len(paths), "verbose": 0}
        detect = self.predictor.detect
        detections = detect(list(images.values()), **size, **self.options)
        return paths, found | dict(zip(images, detections))

    def images(self, found):
        """Prints and keeps detections; returns how many images could not be read."""
        failed = 0
        for path, detections in found.items():
            if isinstance(detections, Exception):
                warnings.warn(f"'{path}' is left out: {detections}", stacklevel=3)
                failed += 1
                continue
            print(printable(f"{path}: {_counted(detections)}"), flush=True)
            self._keep(detections, self.names[path], self.crop_names[path])
            if path in self.targets:
                detections.save(self.targets[path])
        return failed

    def video(self, source):
        """Detects in a video; returns 0, since an unreadable video raises an error."""
        target = self.targets.get(source)
        video = source.name if isinstance(source, pathlib.Path) else str(source)
        # `predict_files` has already checked that the file may be replaced.
        options = {**self.options, "overwrite": True, "track": self.track}
        for detections in self.predictor.detect_video(source, target, **options):
            number = detections.image_id
            line = f"{source} frame {number}: {_counted(detections)}"
            print(printable(line), flush=True)
            name = f"{self.names[source]}{_FRAME}{number:06d}.jpg"
            crop_name = _without_suffix(name)
            self._keep(detections, name, crop_name, video=video, frame=number)
        return 0

    def write(self, json_path, csv_path):
        """Writes the COCO file and the CSV file, each also if the other cannot be."""

        def write_and_print(write, path):
            write(path)
            print(printable(f"Wrote '{os.fspath(path)}'"), flush=True)

        with contextlib.ExitStack() as writes:  # the last callback is called first
            if csv_path is not None:
                writes.callback(write_and_print, self.coco_file.write_csv, csv_path)
            if json_path is not None:
                writes.callback(write_and_print, self.coco_file.write, json_path)

    def _keep(self, detections, name, crop_name, **more):
        """Keeps the detections of one image or frame for the COCO file and crops."""
        self.coco_file.add(detections, name, **more)
        if self.crops is not None:
            _write_crops(detections, self.crops, crop_name)


_NO_FILE_NAME = re.compile(r'[\x00-\x1f\\/:*?"<>|]|^\.|[. ]$')


def _check_crops(folder, files):
    """Raises an error if crops could replace input images in the same folder."""
    start = os.path.join(os.path.realpath(folder), "")
    inside = [file for file in files if os.path.realpath(file).startswith(start)]
    rule = (
        "The folder `crops` contains input images, which crops could replace: give "
        "another folder (--crops)"
    )
    require(not inside, rule, crops=str(folder), images=list(map(str, inside[:3])))


def _write_crops(detections, folder, name):
    """Writes the part of the image in each box as a PNG file, in a folder per class."""
    objects = zip(detections.names, detections.crops())
    for number, (class_name, crop) in enumerate(objects, start=1):
        if crop.size:
            kind = _NO_FILE_NAME.sub("_", class_name)
            path = folder / kind / f"{name}-{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as partial:
                Image.fromarray(crop).save(partial, format="PNG")


def _counted(detections):
    """Returns the first line of `repr`, such as "2 detections: 1 dog, 1 cat"."""
    return repr(detections).splitlines()[0]


# --- The inputs of `effdet-keras predict`, and the names of its outputs.

_FRAME = "-frame-"  # between the name of a video and the number of a frame
_VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg")

# The path or address of a file, the number of a camera, or the address of a stream.
Source = pathlib.Path | int | str


def is_worth_converting(inputs: Iterable[str | os.PathLike]) -> bool:
    """Returns whether there are enough inputs for a conversion to save time."""
    try:
        sources = _find_sources(inputs)
    except (OSError, ValueError):  # `predict_files` raises the error again
        return False
    return len(sources) >= _MANY


def _find_sources(inputs: Iterable[str | os.PathLike]) -> list[Source]:
    """Lists each single source once; a folder stands for its images."""
    sources = []
    for given in inputs:
        path = pathlib.Path(given)
        if path.is_dir():
            sources += list_images(path)
        elif str(given).isdigit() and not path.exists():
            sources.append(int(given))
        elif is_remote(given) and path_of(given).suffix.lower() in IMAGE_SUFFIXES:
            sources.append(path_of(given))
        elif "://" in str(given):
            sources += _at_address(str(given))
        elif path.is_file():
            sources.append(path)
        else:
            raise FileNotFoundError(f"There is no image, folder or video '{given}'")
    return list(dict.fromkeys(sources))


# URL schemes that videos are streamed from. Other schemes belong to cloud storage.
_STREAMS = """
    http https hls ftp icecast mms mmsh mmst rtmp rtmpe rtmps rtmpt rtp srtp rtsp rtsps
    rist sctp srt tcp udp udplite unix gst file
""".split()


def _at_address(address):
    """Returns the address of a stream, or the images of a folder in cloud storage."""
    if address.partition("://")[0].lower() in _STREAMS:
        return [address]
    folder = path_of(address)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"There is no image or folder '{shown_address(address)}'. Videos of a "
            "storage must be copied to this machine."
        )
    return list_images(folder)


def is_video(source: Source) -> bool:
    """Returns whether a source gives frames: a video, a camera or a stream."""
    if isinstance(source, os.PathLike):
        return source.suffix.lower() in _VIDEO_SUFFIXES
    return True


# Drawings keep the format of the image if it is one of these; others become PNG files.
_DRAWN_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def _drawn_name(source, name):
    """Returns the name of the file for the drawing of a source."""
    if not is_video(source):
        is_known = source.suffix.lower() in _DRAWN_SUFFIXES
        return name if is_known else f"{name}.png"
    is_avi = isinstance(source, os.PathLike) and source.suffix.lower() == ".avi"
    return f"{name}.avi" if is_avi else f"{name}.mp4"


def names_of(sources: Sequence[Source]) -> dict[Source, str]:
    """Returns the output name of each source, with folders if names would clash."""
    names = {source: _name(source) for source in sources}
    files = [source for source in sources if isinstance(source, pathlib.Path)]
    if files and _has_twins(names):
        folders = [os.path.dirname(os.path.abspath(file)) for file in files]
        root = os.path.commonpath(folders)
        for file, folder in zip(files, folders):
            inner = pathlib.Path(os.path.relpath(folder, root))
            names[file] = (inner / names[file]).as_posix()
    for file in filter(is_video, files):
        if any(name.startswith(f"{names[file]}{_FRAME}") for name in names.values()):
            # Otherwise an image would have the name of one of the video's frames.
            names[file] += file.suffix
    return names


def _without_suffix(name):
    return pathlib.PurePath(name).with_suffix("").as_posix()


def _has_twins(names):
    return len({name.casefold() for name in names.values()}) < len(names)


def _name(source):
    if isinstance(source, int):
        return f"camera-{source}"
    if not isinstance(source, os.PathLike):
        return "stream"
    return source.stem if is_video(source) else source.name


def _batched(sources: Iterable[Source], batch_size: int) -> Iterator[list]:
    """Yields lists of up to `batch_size` images; each video is a list of its own."""
    for are_videos, group in itertools.groupby(sources, is_video):
        some, size = list(group), 1 if are_videos else batch_size
        yield from (some[i : i + size] for i in range(0, len(some), size))


# --- The detections in images and frames, as a COCO file that can be loaded again.


class _COCOFile:
    """Collects detections, and writes them as one COCO JSON file with scores."""

    def __init__(self, predictor: Predictor) -> None:
        count = predictor.config.num_classes
        self._category_ids = category_ids_or_default(predictor.category_ids, count)
        names = zip(self._category_ids, predictor.class_names or map(str, range(count)))
        self._categories = [{"id": number, "name": name} for number, name in names]
        self.images, self._annotations = [], []

    def add(self, detections: Detections, file_name: str, **more) -> None:
        """Adds an image and its detections, except for boxes without area."""
        image_id = len(self.images) + 1
        height, width = detections.image.shape[:2]
        size = {"width": width, "height": height}
        self.images.append({"id": image_id, "file_name": file_name, **more, **size})
        detections = dataclasses.replace(
            detections, image_id=image_id, category_ids=self._category_ids
        )
        for record in detections.to_coco():
            width, height = record["bbox"][2:]
            if width <= 0 or height <= 0:  # the box is in the padding beside the image
                continue
            number = len(self._annotations) + 1
            fields = {"id": number, "area": width * height, "iscrowd": 0}
            self._annotations.append({**record, **fields})

    def write_csv(self, path: str | os.PathLike) -> None:
        """Writes a table with one row per box; corners are in pixels."""
        names = {category["id"]: category["name"] for category in self._categories}
        images = {image["id"]: image for image in self.images}
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        columns = ["image", "video", "frame", "track_id", "class", "score"]
        table.writerow([*columns, "left", "top", "right", "bottom"])
        for row in self._annotations:
            image, (left, top, width, height) = images[row["image_id"]], row["bbox"]
            where = image["file_name"], image.get("video", ""), image.get("frame", "")
            box = left, top, left + width, top + height
            track_id = row.get("track_id", "")
            what = track_id, names[row["category_id"]], f"{row['score']:.4f}"
            table.writerow([*where, *what, *(f"{value:.2f}" for value in box)])
        write_text(path, text.getvalue())

    def write(self, path: str | os.PathLike) -> None:
        content = {"images": self.images, "annotations": self._annotations}
        content["categories"] = self._categories
        write_text(path, json.dumps(content, indent=1))
