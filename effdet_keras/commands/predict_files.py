"""Detects in images, folders, videos and cameras; draws, and writes a COCO file."""

import os
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any

from PIL import Image

from effdet_keras._internal.local_paths import local_path
from effdet_keras._internal.whole_files import replacing
from effdet_keras.commands.coco_file import COCOFile
from effdet_keras.commands.outputs import check_outputs, refuse_existing
from effdet_keras.commands.prediction_sources import (
    FRAME,
    batched,
    drawn_files,
    find_sources,
    frame_name,
    is_video,
    names_in_json,
)
from effdet_keras.errors import InvalidValueError
from effdet_keras.images import read_image
from effdet_keras.inference.scores import ScoreRule, ScoreThreshold
from effdet_keras.predictor import Predictor

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
        predictor: `Predictor`.
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

    Returns:
        int, how many inputs could not be read.

    Raises:
        ValueError: If something would be written over what is read; or if `frames`
            is given, and no input is a video.
        RuntimeError: If the model has no thresholds or temperature, and they are
            asked for.
        FileExistsError: If a file to be written is there, and `overwrite` is False.
        OSError, ImportError: As of `Predictor.detect_video`.
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
