"""Images that strangers send: decoded, or refused by their headers."""

from __future__ import annotations

import io
import math
import warnings

from PIL import Image, UnidentifiedImageError

from effdet_keras.errors import InvalidValueError
from effdet_keras.images import to_rgb, upright

# Formats whose decoders are in wide use. Pillow knows many more, some of which start
# other programs: none of them is tried on what a stranger sends.
SAFE_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")


class TooManyPixelsError(InvalidValueError):
    """An image has more pixels than it may have, by its header: it was not decoded."""


def decode_image(data, *, formats=SAFE_FORMATS, max_pixels=None, max_side=None):
    """Decodes the bytes of an image that a stranger sent, or refuses its header."""
    limit = min(max_pixels or math.inf, Image.MAX_IMAGE_PIXELS or math.inf)
    side = max_side or math.inf  # a strip of one row takes long to resize
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
        raise TooManyPixelsError(str(error)) from error
    except UnidentifiedImageError as error:
        raise InvalidValueError(
            "The bytes are not an image in one of these formats: " + ", ".join(formats)
        ) from error
    except Exception as error:  # a broken file makes Pillow raise almost anything
        raise InvalidValueError(f"The image cannot be decoded: {error}") from error
