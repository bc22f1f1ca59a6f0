"""Image files to arrays, with Pillow, in any mode; and whether arrays are pixels."""

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

# Endings of the photographs and drawings that Pillow reads; those of HEIF it reads with
# the package `pillow-heif`. Icons, fonts, documents and videos are no images here.
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
_NO_DATA = 1e30  # no float image has such numbers but for pixels without a value
_TIFF_SIZE = (256, 257)  # the TIFF tags of width and height
_SIXTEEN_BIT = ("I", "I;16", "I;16L", "I;16B", "I;16N")  # Pillow's grey 16-bit modes


@dataclasses.dataclass(frozen=True)
class EncodedImage:
    """An image file inside a larger file, such as a TFRecord file, read when needed."""

    path: str  # the larger file
    offset: int  # the byte of it at which the image begins
    length: int  # bytes

    def read(self) -> bytes:
        """The bytes of the image file, not decoded."""
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
    """Reads an image file as an 8-bit RGB array, uint8 `[H, W, 3]`, upright.

    If only the image as stored has the `size`, (height, width), it is left as stored.
    Where a `share` of its sides is enough, a JPEG file is decoded, faster, in a half,
    a quarter or an eighth of its size.
    """
    with _opened(path, "read_image") as stored:
        sizes = _upright_size(stored), size_in_file(stored)
        as_stored = size is not None and sizes[0] != tuple(size) == sizes[1]
        if share < 1.0:
            stored.draft(None, [math.ceil(share * side) for side in stored.size])
        return to_rgb(_not_turned(stored) if as_stored else upright(stored))


def read_image_size(path: str | os.PathLike[str] | EncodedImage) -> tuple[int, int]:
    """Reads the size of an image, `(height, width)`, from the header of its file."""
    with _opened(path, "read_image_size") as stored:
        return _upright_size(stored)


def read_mask(path: str | os.PathLike[str] | bytes) -> np.ndarray:
    """Reads an image file of grey values or places in a palette: ints `[H, W]`."""
    with _opened(path, "read_mask") as stored:
        if stored.mode not in ("L", "P", "1", *_SIXTEEN_BIT):
            raise InvalidValueError(
                f"it has colors (mode {stored.mode}), but one number for each pixel "
                "is expected: a grey image, or one with a palette"
            )
        return np.asarray(stored).astype(np.int64)


def list_images(folder: str | os.PathLike[str]) -> list[pathlib.Path]:
    """Lists the images directly in a folder by their endings, sorted by name."""
    folder = path_of(folder)
    paths = sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in IMAGE_SUFFIXES
        and not path.name.startswith(".")
        and path.is_file()
    )
    if not paths:
        raise InvalidValueError(
            f"`list_images` found no image ({', '.join(IMAGE_SUFFIXES)}). "
            f"Received: folder={str(folder)!r}"
        )
    return paths


@contextlib.contextmanager
def _opened(source, caller):
    """The Pillow image of a file; what Pillow raises becomes a ValueError."""
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
                # Else Pillow 13 maps the rows of an uncompressed file into memory with
                # the length of the turned ones, which mixes all pixels up.
                stored.filename = ""
            yield stored
    except FileNotFoundError:
        raise
    except Exception as error:  # a broken file makes Pillow raise almost anything
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
    """Whether a file, by its path or open, holds the place of one in Git LFS."""
    if isinstance(file, io.BytesIO):
        return file.getvalue().startswith(_LFS_POINTER)
    try:
        with open(file, "rb") as opened:
            return opened.read(len(_LFS_POINTER)) == _LFS_POINTER
    except OSError:
        return False


def image_format_of(path: pathlib.Path, name: str) -> str:
    """Pillow's format to write an image file in, by the ending of its path.

    Args:
        path: of the file to be.
        name: what the caller calls it, for the error.

    Raises:
        ValueError: If Pillow writes no files of this ending.

    Example:
        >>> image_format_of(pathlib.Path("cat.JPG"), "`path`")
        'JPEG'
    """
    image_format = Image.registered_extensions().get(path.suffix.lower())
    rule = f"{name} must end in an image format, such as '.jpg' or '.png'"
    require(image_format in Image.SAVE, rule, path=os.fspath(path))
    return image_format


def size_in_file(stored: Image.Image) -> tuple[int, int]:
    """The size of a Pillow image as its file has it: `(height, width)`.

    Of a TIFF file that is turned, Pillow itself gives the upright size since 11.2.
    """
    if stored.format == "TIFF":
        width, height = (stored.tag_v2.get(tag) for tag in _TIFF_SIZE)
        if width and height:
            return height, width
    return stored.height, stored.width


def _not_turned(stored):
    """The Pillow image as it is in its file; Pillow turns a TIFF when it reads it."""
    size = size_in_file(stored)
    orientation = stored.getexif().get(EXIF_ORIENTATION)
    stored.load()
    if (stored.height, stored.width) == size:
        return stored
    back = {5: "TRANSPOSE", 6: "ROTATE_90", 7: "TRANSVERSE", 8: "ROTATE_270"}
    return stored.transpose(Image.Transpose[back[orientation]])


def _is_turned(stored):
    """Whether the upright image is as wide as the stored one is high."""
    if stored.format == "PNG" and not _has_text_at_the_end(stored):
        # Pillow decodes a whole PNG file to find EXIF data behind the pixels: 49.7 s
        # for 1,000 photographs, and 8.5 s without that, both on a busy computer.
        exif = Image.Image.getexif(stored)
    else:
        exif = stored.getexif()
    return exif.get(EXIF_ORIENTATION) in (5, 6, 7, 8)


_PNG_TEXTS = (b"eXIf", b"tEXt", b"zTXt", b"iTXt")  # chunks that may hold EXIF data


def _has_text_at_the_end(stored):
    """Whether a PNG file that is not decoded yet has such chunks behind its pixels."""
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
    """Makes Pillow read HEIF, if a name ends so and `pillow-heif` is installed.

    Returns:
        bool, whether nothing is missing to read a file of this name.
    """
    if not name.lower().endswith(_HEIF_SUFFIXES):
        return True
    if not pillow_heif.is_installed():
        return False
    pillow_heif.register_heif_opener()  # once more does no harm
    return True


def _upright_size(stored):
    height, width = size_in_file(stored)
    return (width, height) if _is_turned(stored) else (height, width)


def upright(stored):
    """The Pillow image as viewers show it."""
    is_upright = stored.getexif().get(EXIF_ORIENTATION, 1) == 1  # most are: no copy
    return stored if is_upright else ImageOps.exif_transpose(stored)


def to_rgb(image):
    """The pixels of a Pillow image of any mode, uint8 `[H, W, 3]`."""
    if image.mode in _SIXTEEN_BIT:
        # Pillow's own conversion cuts everything above 255 to white.
        grey = np.clip(np.asarray(image), 0, 65535).astype(np.uint32)
        grey += 128
        grey //= 257  # 65535 -> 255, rounded; in place, as images may be large
        return _rgb_of_grey(grey)
    if image.mode == "F":
        values = np.asarray(image)
        # What stands for "no data", such as 3.4e38, says nothing about the others.
        values = np.where(np.abs(values) < _NO_DATA, values, 0.0)  # nor does NaN
        highest = values.max(initial=0.0)  # fractions up to 1, 8-bit, or else 16-bit
        scale = 255.0 if highest <= 1.0 else 1.0 if highest <= 255.0 else 255.0 / 65535
        return _rgb_of_grey(np.clip(np.rint(values * scale), 0, 255))
    if image.mode in ("P", "PA"):
        # By way of RGBA, or Pillow warns about transparent palette entries.
        image = image.convert("RGBA")
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _rgb_of_grey(values):
    return np.repeat(values[..., np.newaxis].astype(np.uint8), 3, axis=-1)


# --- Whether arrays are pixels 0-255, which the network takes.

# Bicubic and Lanczos resizing leave the range by so much at edges, without harm.
_OVERSHOOT = 64.0
# Above it, what has numbers below 0 is no image that was normalized.
_MOST_NORMALIZED = 4.0
# One in 64 pixels shows the range of a batch, in a tenth of a millisecond.
SPARSE = 8


def check_pixels(pixels: np.ndarray, what: str = "an image", *, step: int = 1) -> None:
    """Raises, or warns, where an array cannot be pixels from 0 to 255.

    The network takes anything for pixels, and what it then finds looks like ordinary
    detections. NaN, infinities and numbers far out of the range are an error. Fractions
    from 0 to 1, and what was normalized to about -1 to 1, are a warning: a black image
    could be the same. Arrays of uint8 are not looked at.

    Args:
        pixels: array of images, any shape and dtype.
        what: words for it, in the message.
        step: int, look at each so-many-th row and column alone, of `[B, H, W, 3]`.

    Raises:
        ValueError: If they are pixels of no image; with the range and the cure.

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
    """What is wrong with pixels, in words; a certain error, or only unlikely."""

    text: str
    is_error: bool


def fault_of_pixels(
    pixels: np.ndarray, what: str = "an image", *, step: int = 1
) -> PixelFault | None:
    """What `check_pixels` raises or warns of; None where nothing is wrong."""
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
    low, high = float(pixels.min()), float(pixels.max())  # NaN, where one is NaN
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
