"""The scale jitter of the default recipe, which `inspect` needs without Keras."""

from __future__ import annotations

import math

# A number of images, and the lowest and highest factor on the image size for it. In
# between, the factors are interpolated.
_JITTER_OF_FEW = (5_000, (0.8, 1.25))
_JITTER_OF_MANY = (100_000, (0.1, 2.0))  # the reference's


def scale_jitter(num_images: int) -> tuple[float, float]:
    """Returns the lowest and highest factor on the image size, by dataset size.

    Args:
        num_images: int, the number of images to train on.

    Returns:
        Pair of floats, rounded to three digits. The factors are interpolated
        geometrically in the logarithm of `num_images`.

    Example:
        >>> scale_jitter(500), scale_jitter(100_000)
        ((0.8, 1.25), (0.1, 2.0))
    """
    (few, narrow), (many, wide) = _JITTER_OF_FEW, _JITTER_OF_MANY
    share = math.log(max(num_images, few) / few) / math.log(many / few)
    share = min(share, 1.0)
    low, high = (n ** (1 - share) * w**share for n, w in zip(narrow, wide))
    return round(low, 3), round(high, 3)
