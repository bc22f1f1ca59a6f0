"""Reads image files of any mode with Pillow, and checks that arrays are pixels."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import os
import pathlib
import struct
import warnings
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

from effdet_keras._internal.optional_imports import pillow_heif
from effdet_keras._internal.remote_path import path_of
from effdet_keras._internal.whole_files import is_remote, shown_address
from effdet_keras.errors import InvalidValueError, require

# Endings of photographs and drawings that Pillow reads. It reads HEIF with the package
# `pillow-heif`. Icons, fonts, documents and videos do not count as images.
IMAGE_SUFFIXES = tuple(
    """
    .jpg .jpeg .jpe .jfif .pjpeg .mpo
    .png .apng .webp .gif .bmp .dib .tif .tiff
    .avif .avifs .heic .heif .hif
    .jp2 .j2k .jpf .jpx .j2c .jpc
    .ppm .pgm .pbm .pnm .pfm .tga .pcx .sgi .qoi
    """.split()
)
_HEIF_SUFFIXES = (".heic", ".heif", ".hif")

EXIF_ORIENTATION = 0x0112  # the EXIF tag; values 5 to 8 swap height and width
_LFS_POINTER = b"version https://git-lfs"
LFS_CURE = "is a pointer of Git LFS: get the files with `git lfs pull`"
_NO_DATA = 1e30  # float images have such numbers only for pixels without a value
_TIFF_SIZE = (256, 257)  # the TIFF tags of width and height
_SIXTEEN_BIT = ("I", "I;16", "I;16L", "I;16B", "I;16N")  # Pillow's grey 16-bit modes


@dataclasses.dataclass(frozen=True)
class EncodedImage:
    """An image file inside a larger file, such as a TFRecord file, read when needed."""

    path: str  # path of the larger file
    offset: int  # the byte at which the image begins
    length: int  # the number of bytes

    def read(self) -> bytes:
        """Returns the bytes of the image file, not decoded."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            return file.read(self.length)

    def __str__(self):
        return f"{self.path} at byte {self.offset}"


def read_image(
    path: str | os.PathLike[str] | EncodedImage,
    size: tuple[int, int] | None = None,
    share: float = 1.0,
) -> np.ndarray:
    """Reads an image file as an 8-bit RGB array, upright.

    Args:
        path: path or address of the file, or `EncodedImage`.
        size: the expected `(height, width)`, or None. If the stored image has this
            size, and the upright image does not, the image is returned as stored.
        share: float, at most 1, the fraction of the sides that is enough. For a value
            below 1, a JPEG file may be decoded at a half, a quarter or an eighth of its
            size, which is faster.

    Returns:
        uint8 array `[H, W, 3]`.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If Pillow cannot decode it.
    """
    with _opened(path, "read_image") as stored:
        sizes = _upright_size(stored), size_in_file(stored)
        as_stored = size is not None and sizes[0] != tuple(size) == sizes[1]
        if share < 1.0:
            stored.draft(None, [math.ceil(share * side) for side in stored.size])
        return to_rgb(_not_turned(stored) if as_stored else upright(stored))


def read_image_size(path: str | os.PathLike[str] | EncodedImage) -> tuple[int, int]:
    """Reads the upright size of an image, `(height, width)`, from its file's header."""
    with _opened(path, "read_image_size") as stored:
        return _upright_size(stored)


def read_mask(path: str | os.PathLike[str] | bytes) -> np.ndarray:
    """Reads an image file of grey values or palette indices: int64 `[H, W]`.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If Pillow cannot decode it, or it has colors.
    """
    with _opened(path, "read_mask") as stored:
        if stored.mode not in ("L", "P", "1", *_SIXTEEN_BIT):
            raise InvalidValueError(
                f"it has colors (mode {stored.mode}), but one number for each pixel "
                "is expected: a grey image, or one with a palette"
            )
        return np.asarray(stored).astype(np.int64)


def list_images(folder: str | os.PathLike[str]) -> list[pathlib.Path]:
    """Lists the images directly in a folder by their endings, sorted by name.

    A link to a file that does not exist is listed too: it is a missing image.

    Raises:
        ValueError: If there is none.
    """
    folder = path_of(folder)
    paths = sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in IMAGE_SUFFIXES
        and not path.name.startswith(".")
        and (path.is_file() or (os.path.islink(path) and not path.exists()))
    )
    if not paths:
        raise InvalidValueError(
            f"`list_images` found no image ({', '.join(IMAGE_SUFFIXES)}). "
            f"Received: folder={str(folder)!r}"
        )
    return paths


@contextlib.contextmanager
def _opened(source, caller):
    """Context with the Pillow image of a file. Errors of Pillow become ValueErrors."""
    name, file = str(source), source
    if isinstance(source, bytes):
        name, file = "a file in memory", io.BytesIO(source)
    elif isinstance(source, EncodedImage):
        file = io.BytesIO(source.read())
    elif is_remote(source):
        name, file = shown_address(source), io.BytesIO(path_of(source).read_bytes())
    can_be_known = register_heif(name)
    try:
        with Image.open(file) as stored:
            if stored.format == "TIFF" and _is_turned(stored):
                # Without this, Pillow 13 maps the rows of an uncompressed file into
                # memory with the length of the rotated rows, which scrambles all
                # pixels.
                stored.filename = ""
            yield stored
    except FileNotFoundError:
        raise
    except Exception as error:  # for a broken file, Pillow may raise any error
        cure = ""
        if not can_be_known:
            cure = '. HEIF images need: pip install "effdet-keras[heif]"'
        elif is_lfs_pointer(file):
            cure = f". It {LFS_CURE}"
        raise InvalidValueError(
            f"`{caller}` expects an image that Pillow can decode. "
            f"Received: path={name!r} ({error}){cure}"
        ) from error


def is_lfs_pointer(file):
    """Returns whether a file, given by path or opened, is a pointer of Git LFS."""
    if isinstance(file, io.BytesIO):
        return file.getvalue().startswith(_LFS_POINTER)
    try:
        with open(file, "rb") as opened:
            return opened.read(len(_LFS_POINTER)) == _LFS_POINTER
    except OSError:
        return False


def image_format_of(path: pathlib.Path, name: str) -> str:
    """Returns Pillow's format for writing an image file, by the ending of its path.

    Args:
        path: path of the file to write.
        name: the caller's name of the argument, for the error.

    Raises:
        ValueError: If Pillow cannot write files with this ending.

    Example:
        >>> image_format_of(pathlib.Path("cat.JPG"), "`path`")
        'JPEG'
    """
    image_format = Image.registered_extensions().get(path.suffix.lower())
    rule = f"{name} must end in an image format, such as '.jpg' or '.png'"
    require(image_format in Image.SAVE, rule, path=os.fspath(path))
    return image_format


def size_in_file(stored: Image.Image) -> tuple[int, int]:
    """Returns the size of a Pillow image as stored in its file: `(height, width)`.

    For a rotated TIFF file, Pillow's own size is that of the upright image since
    version 11.2.
    """
    if stored.format == "TIFF":
        width, height = (stored.tag_v2.get(tag) for tag in _TIFF_SIZE)
        if width and height:
            return height, width
    return stored.height, stored.width


def _not_turned(stored):
    """Returns the Pillow image as stored; Pillow rotates a TIFF when it reads it."""
    size = size_in_file(stored)
    orientation = stored.getexif().get(EXIF_ORIENTATION)
    stored.load()
    if (stored.height, stored.width) == size:
        return stored
    back = {5: "TRANSPOSE", 6: "ROTATE_90", 7: "TRANSVERSE", 8: "ROTATE_270"}
    return stored.transpose(Image.Transpose[back[orientation]])


def _is_turned(stored):
    """Returns whether the upright image swaps width and height of the stored image."""
    if stored.format == "PNG" and not _has_text_at_the_end(stored):
        # Pillow decodes a whole PNG file to find EXIF data after the pixels. That takes
        # 49.7 s for 1,000 photographs, instead of 8.5 s, both on a busy computer.
        exif = Image.Image.getexif(stored)
    else:
        exif = stored.getexif()
    return exif.get(EXIF_ORIENTATION) in (5, 6, 7, 8)


_PNG_TEXTS = (b"eXIf", b"tEXt", b"zTXt", b"iTXt")  # chunks that may hold EXIF data


def _has_text_at_the_end(stored):
    """Returns whether a PNG file has `_PNG_TEXTS` after its pixels.

    The file must not be decoded yet.
    """
    file = stored.fp
    if file is None:
        return True
    place, is_behind = file.tell(), False
    file.seek(8)
    try:
        while len(header := file.read(8)) == 8:
            length, kind = struct.unpack(">I4s", header)
            if is_behind and kind in _PNG_TEXTS:
                return True
            is_behind = is_behind or kind == b"IDAT"
            file.seek(length + 4, io.SEEK_CUR)
        return False
    finally:
        file.seek(place)


def register_heif(name: str) -> bool:
    """Makes Pillow read HEIF if a name has its ending and `pillow-heif` is installed.

    Returns:
        bool, False if the package is missing that reads a file of this name.
    """
    if not name.lower().endswith(_HEIF_SUFFIXES):
        return True
    if not pillow_heif.is_installed():
        return False
    pillow_heif.register_heif_opener()  # may be called repeatedly
    return True


def _upright_size(stored):
    height, width = size_in_file(stored)
    return (width, height) if _is_turned(stored) else (height, width)


def upright(stored):
    """Returns the Pillow image as viewers show it, rotated by its EXIF data."""
    # Most images are upright, and are not copied.
    is_upright = stored.getexif().get(EXIF_ORIENTATION, 1) == 1
    return stored if is_upright else ImageOps.exif_transpose(stored)


def to_rgb(image):
    """Returns the pixels of a Pillow image of any mode, uint8 `[H, W, 3]`."""
    if image.mode in _SIXTEEN_BIT:
        # Pillow's own conversion makes everything above 255 white.
        grey = np.clip(np.asarray(image), 0, 65535).astype(np.uint32)
        grey += 128
        grey //= 257  # 65535 -> 255, rounded; in place, as images may be large
        return _rgb_of_grey(grey)
    if image.mode == "F":
        values = np.asarray(image)
        # Values for "no data", such as 3.4e38, and NaN must not affect the scale.
        values = np.where(np.abs(values) < _NO_DATA, values, 0.0)
        highest = values.max(initial=0.0)  # fractions up to 1, 8-bit, or else 16-bit
        scale = 255.0 if highest <= 1.0 else 1.0 if highest <= 255.0 else 255.0 / 65535
        return _rgb_of_grey(np.clip(np.rint(values * scale), 0, 255))
    if image.mode in ("P", "PA"):
        # Converted through RGBA. Otherwise Pillow warns about transparent palette
        # entries.
        image = image.convert("RGBA")
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _rgb_of_grey(values):
    return np.repeat(values[..., np.newaxis].astype(np.uint8), 3, axis=-1)


# --- Checks that arrays are pixels 0-255, as the network takes them.

# Bicubic and Lanczos resizing may leave the range by this much at edges, without harm.
_OVERSHOOT = 64.0
# An array with numbers below 0 and above this one is not a normalized image.
_MOST_NORMALIZED = 4.0
# The step of rows and columns. One of 64 pixels shows the range of a batch, in a tenth
# of a millisecond.
SPARSE = 8


def check_pixels(pixels: np.ndarray, what: str = "an image", *, step: int = 1) -> None:
    """Raises an error, or warns, if an array does not look like pixels from 0 to 255.

    The network accepts all numbers as pixels, and its results then look like ordinary
    detections. NaN, infinities and numbers far outside the range are an error. Integers
    must lie in the range; floats may exceed it by 64. Fractions from 0 to 1, numbers
    normalized to about -1 to 1, and bools give a warning, because they could be the
    pixels of a black image. Arrays of uint8 are not checked.

    Args:
        pixels: array of images, of any shape and dtype.
        what: string, a description of the array for the message.
        step: int. Only every `step`-th row and column is checked. Above 1, the array
            must be `[B, H, W, 3]`.

    Raises:
        ValueError: If they cannot be pixels. The message has the range and the cure.

    Example:
        >>> check_pixels(np.full((8, 8, 3), 4095, "uint16"))
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: Pixels must be numbers from 0 to 255. \
Received: an image (uint16) from 4095 to 4095. Scale it: divide 16-bit pixels by 257, \
12-bit ones by 16.
    """
    fault = fault_of_pixels(pixels, what, step=step)
    if fault is None:
        return
    if fault.is_error:
        raise InvalidValueError(fault.text)
    warnings.warn(fault.text, stacklevel=3)


class PixelFault(NamedTuple):
    """A message about pixels, and whether it is an error or only a warning."""

    text: str
    is_error: bool


def fault_of_pixels(
    pixels: np.ndarray, what: str = "an image", *, step: int = 1
) -> PixelFault | None:
    """Returns the fault for which `check_pixels` raises or warns, or None."""
    if pixels.dtype.kind == "b" and pixels.any():
        return PixelFault(
            f"Pixels must be numbers from 0 to 255. Received: {what} (bool), which the "
            "network sees as black. Multiply it by 255.",
            is_error=False,
        )
    if pixels.dtype == np.uint8 or pixels.dtype.kind not in "uif" or not pixels.size:
        return None
    if step > 1:
        pixels = pixels[:, ::step, ::step]
    low, high = float(pixels.min()), float(pixels.max())  # NaN if any number is NaN
    rule, name = "Pixels must be numbers from 0 to 255", f"{what} ({pixels.dtype})"
    if not (math.isfinite(low) and math.isfinite(high)):
        return PixelFault(
            f"{rule}. Received: {name} with NaN or infinite numbers. Replace them, "
            "such as with `np.nan_to_num`, or leave the image out.",
            is_error=True,
        )
    received = f"{rule}. Received: {name} from {low:.3g} to {high:.3g}"
    if pixels.dtype.kind in "ui":
        received = f"{rule}. Received: {name} from {low:.0f} to {high:.0f}"
    if (
        low < -_OVERSHOOT
        or high > 255 + _OVERSHOOT
        or (pixels.dtype.kind in "ui" and not 0 <= low <= high <= 255)
    ):
        cure = "Scale it: divide 16-bit pixels by 257, 12-bit ones by 16."
        return PixelFault(f"{received}. {cure}", is_error=True)
    if low < 0 and high <= _MOST_NORMALIZED:
        return PixelFault(
            f"{received}, as if it were normalized already. The network normalizes by "
            "itself: give it the pixels as they were, 0 to 255.",
            is_error=False,
        )
    is_fractions = 0 < high <= 1 and bool((pixels != np.floor(pixels)).any())
    if low >= 0 and is_fractions:
        return PixelFault(
            f"{received}, which the network sees as black. Multiply fractions by 255.",
            is_error=False,
        )
    return None
