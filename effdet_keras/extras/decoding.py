"""Decodes images from untrusted sources, or rejects them by their headers."""

from __future__ import annotations

import io
import math
import warnings

from PIL import Image, UnidentifiedImageError

from effdet_keras.errors import InvalidValueError
from effdet_keras.images import to_rgb, upright

# Formats with widely used decoders. Pillow supports many more, some of which start
# other programs; none of these is tried on untrusted data.
SAFE_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")


class TooManyPixelsError(InvalidValueError):
    """Raised for an image whose header has too many pixels; it is not decoded."""


def decode_image(data, *, formats=SAFE_FORMATS, max_pixels=None, max_side=None):
    """Decodes the bytes of an untrusted image, or rejects it by its header.

    Args:
        data: bytes of the image file.
        formats: tuple of strings, the allowed formats, by Pillow's names.
        max_pixels: int, the most pixels; None for Pillow's limit, which always applies.
        max_side: int, the most pixels along a side; None for no limit.

    Returns:
        uint8 array `[H, W, 3]`, upright, in RGB.

    Raises:
        TooManyPixelsError: If the image is larger than allowed.
        InvalidValueError: If it has another format, or cannot be decoded.
    """
    limit = min(max_pixels or math.inf, Image.MAX_IMAGE_PIXELS or math.inf)
    side = max_side or math.inf  # even a strip of one row takes long to resize
    try:
        with warnings.catch_warnings(action="ignore"):  # sizes are checked below
            stored = Image.open(io.BytesIO(data), formats=formats)
        with stored:
            size = f"The image has {stored.width} x {stored.height} pixels"
            if stored.width * stored.height > limit:
                raise TooManyPixelsError(f"{size}, and the limit is {limit:,}")
            if max(stored.size) > side:
                text = f"{size}, and the limit of each side is {side:,}"
                raise TooManyPixelsError(text)
            return to_rgb(upright(stored))
    except TooManyPixelsError:
        raise
    except Image.DecompressionBombError as error:
        # Pillow refuses twice its own limit before the size of the image is known.
        text = f"The image has far too many pixels, and the limit is {limit:,}"
        raise TooManyPixelsError(text) from error
    except UnidentifiedImageError as error:
        raise InvalidValueError(
            "The bytes are not an image in one of these formats: " + ", ".join(formats)
        ) from error
    except Exception as error:  # Pillow raises almost anything for broken files
        raise InvalidValueError(f"The image cannot be decoded: {error}") from error
