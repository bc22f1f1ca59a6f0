"""-1, COCO's mark where there is nothing to measure, and means that leave it out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

UNMEASURED = -1.0


def mean_of_measured(values: ArrayLike) -> float:
    """Computes the mean of the values that could be measured.

    Args:
        values: floats of any shape, 0 or more, or -1.

    Returns:
        The mean without the -1s; -1 where nothing is left.

    Example:
        >>> mean_of_measured([0.5, 1.0, -1.0]), mean_of_measured([-1.0])
        (0.75, -1.0)
    """
    values = np.asarray(values, float)
    measured = values[values > UNMEASURED]
    return float(measured.mean()) if measured.size else UNMEASURED
