"""Detects in videos and cameras with OpenCV, and writes videos with drawn boxes."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import pathlib
import shutil

from effdet_keras._internal.optional_imports import cv2, trackers
from effdet_keras._internal.whole_files import atomic_write, local_path
from effdet_keras.errors import InvalidValueError, check_argument, require
from effdet_keras.extras.tracking import Follower

_CODECS = {".mp4": "mp4v", ".mov": "mp4v", ".mkv": "mp4v", ".avi": "MJPG"}
_FRAME_RATE = 25.0  # frames per second, if the source does not say
# Containers that do not store the number of frames. OpenCV computes it from the
# duration, and it is too large if the frame rate changes. So a video only counts as cut
# off if its duration is not reached either.
_WITHOUT_COUNT = (".mkv", ".webm", ".mpg", ".mpeg", ".ts", ".m2ts", ".wmv", ".flv")
_NEGLIGIBLE = 0.01  # fraction of frames that may be missing
_DROPPED = 2  # some decoders drop the last one or two frames
_FRAMES_BETWEEN_LOOKS = 10  # frames between two checks of the disk's free space
_LITTLE = 2**20  # with fewer bytes free, a disk counts as full


def detect_frames(detect, source, out=None, overwrite=False, track=False):
    """Implements `Predictor.detect_video`; see there."""
    cv2.require("A video or a camera")
    if track:
        trackers.require("Tracking objects")
    out = None if out is None else local_path(out, "`out`")
    if out is not None:
        _check_out(out, source, overwrite)
    return _detections(detect, source, _opened(source), out, track)


def _detections(detect, source, capture, out, track):
    """Yields the detections of each frame; writes drawn frames to `out`, if given."""
    with contextlib.ExitStack() as stack:
        stack.callback(capture.release)
        write = None
        if out is not None:
            rate = capture.get(cv2.CAP_PROP_FPS) or _FRAME_RATE
            write = stack.enter_context(_writing(out, rate))
        found, follow = None, None
        if track:
            follow = Follower(capture.get(cv2.CAP_PROP_FPS) or _FRAME_RATE)
        try:
            for number, frame in enumerate(_frames(capture, source)):
                (found,) = detect([frame])
                found = dataclasses.replace(found, image_id=number)
                if follow is not None:
                    found = follow(found)
                if write is not None:
                    write(found.draw())
                yield found
        except (GeneratorExit, KeyboardInterrupt):
            # A live source never ends: it is complete when the caller stops.
            if found is None or not _is_live(source):
                raise


def _frames(capture, source):
    """Yields the frames as RGB, rotated as video players show them."""
    count, last = 0, 0.0
    while True:
        is_read, frame = capture.read()
        if not is_read:
            break
        count, last = count + 1, capture.get(cv2.CAP_PROP_POS_MSEC)
        yield cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
    expected = "a video with frames that OpenCV can decode, or a camera"
    check_argument(count > 0, "source", source, expected)
    if not _is_live(source):
        _check_end(capture, source, count, last)


def _check_end(capture, source, count, last):
    """Raises if a video ended too early; `last` is in milliseconds."""
    path, expected = pathlib.Path(source), round(capture.get(cv2.CAP_PROP_FRAME_COUNT))
    least = expected - max(_DROPPED, _NEGLIGIBLE * expected)
    rate = capture.get(cv2.CAP_PROP_FPS) or _FRAME_RATE
    if path.suffix.lower() in _WITHOUT_COUNT:
        count = max(count, round(last / 1000 * rate) + 1)
    if count < least:  # `least` is negative if the number of frames is unknown
        raise InvalidValueError(
            f"'{path}' ends early: OpenCV could decode {count:,} of its {expected:,} "
            "frames. The file is cut or damaged: copy or record it again. If it plays "
            "to its end, convert it: `ffmpeg -i VIDEO -c:v libx264 converted.mp4`."
        )


def _opened(source):
    is_camera = isinstance(source, int)
    name = source if is_camera else os.fspath(source)
    if not _is_live(source) and not os.path.isfile(name):
        raise FileNotFoundError(f"There is no video '{name}'")
    capture = cv2.VideoCapture(name)
    if not capture.isOpened():
        raise OSError(
            f"OpenCV cannot open {source!r}: a video may be damaged, or its codec "
            "missing (convert it, for example with `ffmpeg`); a camera may be in use "
            "by another program."
        )
    return capture


def _is_live(source):
    return isinstance(source, int) or "://" in os.fspath(source)


def _check_out(out, source, overwrite):
    rule = f"`out` must end in {', '.join(_CODECS)}"
    require(out.suffix.lower() in _CODECS, rule, out=str(out))
    if not _is_live(source) and out.resolve() == pathlib.Path(source).resolve():
        raise InvalidValueError(
            f"`out` must not be the video that is read. Received: out='{out}'"
        )
    if out.exists() and not overwrite:
        raise FileExistsError(
            f"'{out}' already exists, and is not overwritten: give another path, or "
            "`overwrite=True`."
        )


@contextlib.contextmanager
def _writing(path, frame_rate):
    """Yields a function that appends an RGB frame; the file appears when complete."""
    codec = _CODECS[path.suffix.lower()]
    writer, count = cv2.VideoWriter(), 0
    with atomic_write(path) as partial:

        def write(frame):
            nonlocal count
            if not writer.isOpened():
                height, width = frame.shape[:2]
                fourcc = cv2.VideoWriter_fourcc(*codec)
                writer.open(os.fspath(partial), fourcc, frame_rate, (width, height))
            if not writer.isOpened():
                raise OSError(
                    f"OpenCV cannot write '{path}': it has no encoder for {codec}, or "
                    "the folder cannot be written to. Try a path that ends in '.avi'."
                )
            writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
            count += 1
            if not count % _FRAMES_BETWEEN_LOOKS:
                _check_disk(partial)

        try:
            yield write
        finally:
            writer.release()
        if count:
            _check_written(partial, count)


def _check_disk(path):
    """Raises if the disk is full, which OpenCV itself does not report."""
    if shutil.disk_usage(path.parent).free < _LITTLE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))


def _check_written(path, count):
    """Raises unless a written video can be opened and has all its frames."""
    _check_disk(path)
    capture = cv2.VideoCapture(os.fspath(path))
    found = round(capture.get(cv2.CAP_PROP_FRAME_COUNT)) if capture.isOpened() else 0
    capture.release()
    if abs(found - count) > 1:  # some containers only know the duration
        raise OSError(
            f"OpenCV wrote {count:,} frames, but the video has only "
            f"{max(found, 0):,}. Is the disk full, or a quota used up?"
        )
