"""The scale jitter of the default recipe, which `inspect` shows without Keras."""

from __future__ import annotations

import math

# Lowest and highest factor on the image size for so many images; between, in between.
_JITTER_OF_FEW = (5_000, (0.8, 1.25))
_JITTER_OF_MANY = (100_000, (0.1, 2.0))  # the reference's


def scale_jitter(num_images: int) -> tuple[float, float]:
    """The lowest and highest factor on the image size, for a dataset of this size."""
    (few, narrow), (many, wide) = _JITTER_OF_FEW, _JITTER_OF_MANY
    share = math.log(max(num_images, few) / few) / math.log(many / few)
    share = min(share, 1.0)
    low, high = (n ** (1 - share) * w**share for n, w in zip(narrow, wide))
    return round(low, 3), round(high, 3)
