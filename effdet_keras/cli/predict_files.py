"""Detects in images, folders, videos and cameras; draws, and writes a COCO file."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import pathlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from PIL import Image

from effdet_keras._internal.remote_path import path_of
from effdet_keras._internal.whole_files import is_remote, local_path, replacing
from effdet_keras.category_ids import category_ids_or_default
from effdet_keras.cli.outputs import check_outputs, refuse_existing
from effdet_keras.detect.detect import ScoreRule, ScoreThreshold
from effdet_keras.detect.detections import Detections
from effdet_keras.detect.predictor import Predictor
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import IMAGE_SUFFIXES, list_images, read_image

_JPEG_QUALITY = 95  # of frames, which may become training data


def predict_files(
    predictor: Predictor,
    inputs: Sequence[str | os.PathLike],
    out: str | os.PathLike | None = None,
    *,
    score_threshold: ScoreThreshold = 0.3,
    calibrated: bool = False,
    json_path: str | os.PathLike | None = None,
    frames: str | os.PathLike | None = None,
    batch_size: int = 1,
    tiles: Any = None,
    augment: Any = None,
    overwrite: bool = False,
) -> int:
    """Detects in files, prints a line for each, and writes what is asked for.

    An image that cannot be read is left out with a warning; the others go on.

    Args:
        inputs: paths of images, of folders of images and of videos, numbers of
            cameras (as text, such as "0") and addresses of streams.
        out: folder for drawn images and videos, made if need be; None for none.
            They have the names of what was read; where two have one name, they are in
            folders as what was read is.
        score_threshold, calibrated, batch_size, tiles, augment: see
            `Predictor.detect`.
        json_path: file to write, or None: all detections, and those until an error
            or Ctrl-C, as a COCO json file, in
            which each annotation has a `score`. Each frame of a video is an image of
            its own, with the number of the frame as `frame` and the name of the video
            as `video`. `effdet_keras.data.from_coco` reads the file together with the
            folder of the images, or with `frames`.
        frames: folder for the frames of videos as JPEG images, made if need be; None
            for none.
        overwrite: bool, whether files that are there may be replaced, but for those
            that are read.
    """
    out, frames, json_path = (
        None if path is None else local_path(path, f"`{name}`")
        for name, path in (("out", out), ("frames", frames), ("json_path", json_path))
    )
    ScoreRule(predictor, score_threshold, calibrated)  # before any work
    sources = find_sources(inputs)
    has_videos = any(map(is_video, sources))
    if frames is not None and not has_videos:
        raise InvalidValueError(
            "`frames` is a folder for the frames of videos, and no input is a video. "
            f"Received: frames='{frames}'"
        )
    names = names_in_json(sources)
    targets = {} if out is None else drawn_files(sources, out)
    files = [source for source in sources if isinstance(source, pathlib.Path)]
    check_outputs([*targets.values(), json_path], files, overwrite=overwrite)
    if frames is not None and not overwrite:
        refuse_existing(_frames_of(filter(is_video, sources), names, frames))
    for folder in filter(None, (out, frames)):
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    options = {
        "tiles": tiles,
        "augment": augment,
        "score_threshold": score_threshold,
        "calibrated": calibrated,
    }
    work = _Work(predictor, targets, names, frames, options)
    failed, is_complete = 0, False
    try:
        for batch in batched(sources, batch_size):
            failed += work.video(batch[0]) if is_video(batch[0]) else work.images(batch)
        is_complete = True
    finally:  # what was found until an error or Ctrl-C is not lost
        if json_path is not None and (is_complete or len(work.coco_file)):
            work.coco_file.write(json_path)
            print(f"Wrote '{os.fspath(json_path)}'", flush=True)
            if has_videos and frames is None:
                print("To load it as a dataset, write the frames, too: --frames FOLDER")
    return failed


class _Work:
    """What all inputs of one run share."""

    def __init__(self, predictor, targets, names, frames, options):
        self.predictor, self.options = predictor, options
        self.targets, self.names = targets, names
        self.frames = None if frames is None else pathlib.Path(frames)
        self.coco_file = COCOFile(predictor)

    def images(self, paths):
        """Returns how many of the images could not be read."""
        images = {}
        for path in paths:
            try:
                images[path] = read_image(path)
            except (ValueError, OSError) as error:
                warnings.warn(f"'{path}' is left out: {error}", stacklevel=3)
        if not images:
            return len(paths)
        size = {"batch_size": len(paths), "verbose": 0}
        found = self.predictor.detect(list(images.values()), **size, **self.options)
        for path, detections in zip(images, found):
            print(f"{path}: {_counted(detections)}", flush=True)
            self.coco_file.add(detections, self.names[path])
            if path in self.targets:
                detections.save(self.targets[path])
        return len(paths) - len(images)

    def video(self, source):
        """Returns 0: a video that cannot be read is an error."""
        target = self.targets.get(source)
        video = source.name if isinstance(source, pathlib.Path) else str(source)
        # Where something is there, `predict_files` has asked whether it may go.
        options = {**self.options, "overwrite": True}
        for detections in self.predictor.detect_video(source, target, **options):
            number = detections.image_id
            print(f"{source} frame {number}: {_counted(detections)}", flush=True)
            name = frame_name(self.names[source], number)
            self.coco_file.add(detections, name, video=video, frame=number)
            if self.frames is not None:
                _write_frame(detections.image, self.frames / name)
        return 0


def _frames_of(videos, names, folder):
    """Frames of videos of these names that are in a folder already."""
    beginnings = tuple(f"{names[video]}{FRAME}" for video in videos)
    paths = sorted(pathlib.Path(folder).glob("*.jpg"))
    return [path for path in paths if path.name.startswith(beginnings)]


def _write_frame(image, path):
    with replacing(path) as partial:
        Image.fromarray(image).save(partial, quality=_JPEG_QUALITY)


def _counted(detections):
    """The first line of `repr`, such as "2 detections: 1 dog, 1 cat"."""
    return repr(detections).splitlines()[0]


# --- What `effdet-keras predict` reads, and the names of what it writes.

FRAME = "-frame-"  # between the name of a video and the number of a frame
VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg")

# The path or address of a file, the number of a camera, or the address of a stream.
Source = pathlib.Path | int | str


def find_sources(inputs: Iterable[str | os.PathLike]) -> list[Source]:
    """Lists single sources, each once; a folder stands for its images."""
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
            sources.append(str(given))
        elif path.is_file():
            sources.append(path)
        else:
            raise FileNotFoundError(f"There is no image, folder or video '{given}'")
    return list(dict.fromkeys(sources))


def is_video(source: Source) -> bool:
    """Whether a source gives frames: a video, a camera or a stream."""
    if isinstance(source, os.PathLike):
        return source.suffix.lower() in VIDEO_SUFFIXES
    return True


def drawn_files(sources: Iterable[Source], out: str | os.PathLike) -> dict:
    """The file that each source is drawn into.

    It has the source's name; where two have one, files are drawn into folders, by
    their paths from the folder that holds them all.
    """
    names = {source: _drawn_name(source) for source in sources}
    files = [source for source in names if isinstance(source, os.PathLike)]
    if _share_a_name(names.values()) and files:
        folders = _folders_below_all(files)
        names |= {file: folders[file] / names[file] for file in files}
    return {source: pathlib.Path(out, name) for source, name in names.items()}


def _drawn_name(source):
    if isinstance(source, int):
        return f"camera-{source}.mp4"
    if not isinstance(source, os.PathLike):
        return "stream.mp4"
    if is_video(source):
        return f"{source.stem}.{'avi' if source.suffix.lower() == '.avi' else 'mp4'}"
    is_known = source.suffix.lower() in IMAGE_SUFFIXES
    return source.name if is_known else f"{source.name}.png"


def names_in_json(sources: Iterable[Source]) -> dict:
    """The name of each source in a COCO file: no two have the same.

    An image has its file name; where two of the images have one, all have their
    paths from the folder that holds them all. The name of a video is what the names of
    its frames begin with, see `frame_name`.
    """
    sources = list(sources)
    images = [source for source in sources if not is_video(source)]
    names = {image: image.name for image in images}
    if _share_a_name(names.values()):
        folders = _folders_below_all(images)
        names = {i: (folders[i] / i.name).as_posix() for i in images}
    uses = collections.Counter()
    for video in filter(is_video, sources):
        name = pathlib.Path(_drawn_name(video)).stem
        uses[name] += 1
        names[video] = name if uses[name] == 1 else f"{name}-{uses[name]}"
    return names


def _share_a_name(names):
    """Whether two names are one, also where upper and lower case are the same."""
    names = [str(name).casefold() for name in names]
    return len(set(names)) < len(names)


def _folders_below_all(files):
    """The folder of each file, seen from the folder that holds all of them."""
    folders = {file: _folder_of(file) for file in files}
    root = os.path.commonpath(folders.values())
    return {file: folder.relative_to(root) for file, folder in folders.items()}


def _folder_of(file):
    if is_remote(file):  # as if addresses were a folder of this machine
        return pathlib.Path("/", *file.parent.parts[1:])
    return file.resolve().parent


def frame_name(name: str, frame: int) -> str:
    """The file name of a frame.

    Example:
        >>> frame_name("street", 12)
        'street-frame-000012.jpg'
    """
    return f"{name}{FRAME}{frame:06d}.jpg"


def batched(sources: Iterable[Source], batch_size: int) -> Iterator[list]:
    """Images in lists of up to `batch_size`; each video in a list of its own."""
    images = []
    for source in sources:
        if is_video(source):
            if images:
                yield images
            yield [source]
            images = []
        else:
            images.append(source)
            if len(images) == batch_size:
                yield images
                images = []
    if images:
        yield images


# --- What was found in images and frames, as a COCO file that can be read back.


class COCOFile:
    """Collects detections and writes them as one COCO json file with scores."""

    def __init__(self, predictor: Predictor) -> None:
        count = predictor.config.num_classes
        self._category_ids = category_ids_or_default(predictor.category_ids, count)
        names = predictor.class_names or map(str, range(count))
        self._categories = [
            {"id": category_id, "name": name}
            for category_id, name in zip(self._category_ids, names)
        ]
        self._images, self._annotations = [], []

    def __len__(self) -> int:
        """The number of images."""
        return len(self._images)

    def add(self, detections: Detections, file_name: str, **more) -> None:
        """Adds an image and what was found in it, but for boxes without area."""
        image_id = len(self._images) + 1
        height, width = detections.image.shape[:2]
        size = {"width": width, "height": height}
        self._images.append({"id": image_id, "file_name": file_name, **more, **size})
        detections = dataclasses.replace(
            detections, image_id=image_id, category_ids=self._category_ids
        )
        for record in detections.to_coco():
            width, height = record["bbox"][2:]
            if width <= 0 or height <= 0:  # found in the padding beside the image
                continue
            number = len(self._annotations) + 1
            fields = {"id": number, "area": width * height, "iscrowd": 0}
            self._annotations.append({**record, **fields})

    def write(self, path: str | os.PathLike) -> None:
        """Writes the file, whole or not at all."""
        content = {
            "images": self._images,
            "annotations": self._annotations,
            "categories": self._categories,
        }
        with replacing(path) as partial:
            partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
