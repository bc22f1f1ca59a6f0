"""Images inside a page: small enough to be shown pixel by pixel, also on a phone."""

import base64
import html
import io

import numpy as np
from PIL import Image

# Pixels of a shown image's longer side. The page shows it at this size, not smaller:
# the names of classes are drawn in it.
SHOWN_SIDE = 320


def shrunk(image, side=SHOWN_SIDE):
    """Makes an image as small as it is shown.

    Args:
        image: uint8 array `[H, W, 3]`.
        side: int, pixels of the longer side of what is returned. A smaller image is
            not enlarged.

    Returns:
        `(image, scale)`: uint8 array `[h, w, 3]`; float, by which boxes in pixels of
        the given image are multiplied.

    Example:
        >>> image, scale = shrunk(np.zeros((640, 960, 3), "uint8"))
        >>> image.shape, round(scale, 3)
        ((213, 320, 3), 0.333)
    """
    scale = min(side / max(image.shape[:2]), 1.0)
    size = [max(1, round(side * scale)) for side in image.shape[:2]]
    return np.asarray(Image.fromarray(image).resize(size[::-1])), scale


def fitted(image, side=SHOWN_SIDE):
    """Makes an image as large as it is shown: smaller, or 2, 3, ... times larger.

    Args:
        image: uint8 array `[H, W, 3]`.
        side: int, the most pixels of the longer side of what is returned.

    Returns:
        `(image, scale)`, as of `shrunk`.

    Example:
        >>> image, scale = fitted(np.zeros((64, 150, 3), "uint8"))
        >>> image.shape, scale
        ((128, 300, 3), 2.0)
    """
    factor = side // max(image.shape[:2])
    if factor < 2:
        return shrunk(image, side)
    size = image.shape[1] * factor, image.shape[0] * factor
    enlarged = Image.fromarray(image).resize(size, Image.Resampling.BICUBIC)
    return np.asarray(enlarged), float(factor)


def image_tag(image, name):
    """Writes an image as HTML, with its pixels inside.

    Args:
        image: uint8 array `[H, W, 3]`.
        name: string, told to those who cannot see it.

    Returns:
        str, an `<img>` element.

    Example:
        >>> image_tag(np.zeros((8, 16, 3), "uint8"), "<a>.png")[:57]
        '<img alt="&lt;a&gt;.png" width="16" height="8" src="data:'
    """
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=85)
    data = base64.b64encode(file.getvalue()).decode()
    height, width = image.shape[:2]
    return (
        f'<img alt="{html.escape(name)}" width="{width}" height="{height}" '
        f'src="data:image/jpeg;base64,{data}">'
    )
