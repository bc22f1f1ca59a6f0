"""Videos and cameras, through OpenCV: frames to `Detections`, and drawn frames back."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib

from effdet_keras._internal.optional_imports import cv2
from effdet_keras._internal.whole_files import local_path, replacing
from effdet_keras.errors import InvalidValueError, check_argument, require

_CODECS = {".mp4": "mp4v", ".mov": "mp4v", ".mkv": "mp4v", ".avi": "MJPG"}
_FRAME_RATE = 25.0  # frames per second, where the source does not say


def detect_frames(detect, source, out=None, overwrite=False):
    """`Predictor.detect_video`; see there."""
    cv2.require("A video or a camera")
    out = None if out is None else local_path(out, "`out`")
    if out is not None:
        _check_out(out, source, overwrite)
    return _detections(detect, source, _opened(source), out)


def _detections(detect, source, capture, out):
    with contextlib.ExitStack() as stack:
        stack.callback(capture.release)
        write = None
        if out is not None:
            rate = capture.get(cv2.CAP_PROP_FPS) or _FRAME_RATE
            write = stack.enter_context(_writing(out, rate))
        found = None
        try:
            for number, frame in enumerate(_frames(capture, source)):
                (found,) = detect([frame])
                found = dataclasses.replace(found, image_id=number)
                if write is not None:
                    write(found.draw())
                yield found
        except (GeneratorExit, KeyboardInterrupt):
            # What never ends is complete when nobody looks on.
            if found is None or not _is_live(source):
                raise


def _frames(capture, source):
    """The frames as RGB, upright as players show them."""
    count = 0
    while True:
        is_read, frame = capture.read()
        if not is_read:
            break
        count += 1
        yield cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
    expected = "a video with frames that OpenCV can decode, or a camera"
    check_argument(count > 0, "source", source, expected)


def _opened(source):
    is_camera = isinstance(source, int)
    name = source if is_camera else os.fspath(source)
    if not _is_live(source) and not os.path.isfile(name):
        raise FileNotFoundError(f"There is no video '{name}'")
    capture = cv2.VideoCapture(name)
    if not capture.isOpened():
        raise OSError(
            f"OpenCV cannot open {source!r}: a video may be damaged or its codec "
            "missing (convert it, for example with `ffmpeg`), a camera in use by "
            "another program."
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
    """A function that appends an RGB frame; the file appears when all is written."""
    codec = _CODECS[path.suffix.lower()]
    writer = cv2.VideoWriter()
    with replacing(path) as partial:

        def write(frame):
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

        try:
            yield write
        finally:
            writer.release()
