"""Plain JPEG files decoded by TensorFlow: the same pixels, without Python's lock.

Pillow decodes without Python's lock, but then copies the pixels under it. So no more
than some four cores decode at once, however many there are (`benchmarks/decoding.py`).
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, features

from effdet_keras._internal import remote_files
from effdet_keras._internal.local_paths import is_remote
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.images import EXIF_ORIENTATION, EncodedImage

_JPEG = b"\xff\xd8\xff"  # how such a file begins


def decode_plain_jpeg(image):
    """Decodes a JPEG file, if TensorFlow is known to give the pixels that Pillow gives.

    That is so for all but progressive files that are damaged, files whose EXIF tag
    turns the image, and colors other than RGB and grey: both are libjpeg-turbo.

    Args:
        image: path of the file, `EncodedImage`, or anything else.

    Returns:
        uint8 array `[H, W, 3]`, read-only. None for every other kind of image, and for
        what cannot be decoded: `read_image` then decodes it, or says what is wrong.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "grey.jpg")
        >>> Image.new("L", (30, 20), 100).save(path)
        >>> decode_plain_jpeg(path).shape
        (20, 30, 3)
        >>> decode_plain_jpeg(np.zeros((8, 8, 3), "uint8")) is None
        True
    """
    if not isinstance(image, str | EncodedImage) or not _pillow_is_libjpeg_turbo():
        return None
    try:
        data = _jpeg_bytes(image)
        if data is None or not _is_plain(data):
            return None
        decoded = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
        return np.asarray(memoryview(decoded))  # without a copy
    except Exception:  # of files and decoders: `read_image` says it in plain words
        return None


def _pillow_is_libjpeg_turbo():
    return features.check_feature("libjpeg_turbo")


def _jpeg_bytes(image):
    """The bytes of a JPEG file; None for other files, which are not read."""
    if isinstance(image, EncodedImage):
        data = image.read()
        return data if data.startswith(_JPEG) else None
    if is_remote(image):  # and is read once: `read_image` would read others again
        is_jpeg = image.lower().endswith((".jpg", ".jpeg"))
        return remote_files.read_bytes(image) if is_jpeg else None
    with open(image, "rb") as file:
        start = file.read(len(_JPEG))
        return start + file.read() if start == _JPEG else None


def _is_plain(data):
    with Image.open(io.BytesIO(data)) as stored:  # reads the header alone
        return (
            stored.format == "JPEG"
            and stored.mode in ("RGB", "L")
            and not stored.info.get("progressive")
            and stored.getexif().get(EXIF_ORIENTATION, 1) == 1
        )
