"""Detects boxes whose numbers were read in the wrong box format."""

from __future__ import annotations

import numpy as np

_MIN_BOXES = 10  # fewer boxes prove nothing
_MANY_BAD = 0.15  # the format is suspect if this share of boxes does not fit as read
_SOME_BAD = 0.03  # the same, if the file does not say which format it has
_FEW_BAD = 0.02  # the most boxes that may not fit in the suspected format, as a share
_SLACK = 1.5  # pixels, for counting from 1 and for rounding

# Each function takes (left, top) and (width, height) as they were read, each `[n, 2]`.
# It returns what they would be if the file had the format of this name.
_FORMATS = {
    "left, top, right, bottom": lambda a, b: (a, b - a),
    "top, left, height, width": lambda a, b: (a[:, ::-1], b[:, ::-1]),
    "top, left, bottom, right": lambda a, b: (a[:, ::-1], (b - a)[:, ::-1]),
    "center x, center y, width, height": lambda a, b: (a - b / 2, b),
    "left, top, width, height, read as corners": lambda a, b: (a, a + b),
}


def reach_out(boxes_xywh: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns by how many pixels each box exceeds its image; negative if inside.

    Args:
        boxes_xywh: floats `[n, 4]` of left, top, width and height in pixels.
        sizes: `[n, 2]`, `(height, width)` of the image of each box in pixels.

    Returns:
        Floats `[n]`, the largest excess over the four sides.
    """
    beyond = boxes_xywh[:, :2] + boxes_xywh[:, 2:] - sizes[:, ::-1]
    return np.maximum(beyond, -boxes_xywh[:, :2]).max(axis=1)


def suspect_box_format(
    boxes_xywh: np.ndarray, sizes: np.ndarray, are_doubtful: bool = False
) -> str | None:
    """Names the box format in which boxes fit their images, if they do not as read.

    Args:
        boxes_xywh: floats `[n, 4]` of left, top, width and height in pixels, as they
            were read.
        sizes: `[n, 2]`, `(height, width)` of the image of each box in pixels.
        are_doubtful: bool, whether the file does not say which format it has. Then a
            few boxes that do not fit (3 %, not 15 %) are enough, if all of them fit in
            another format (not just 98 %).

    Returns:
        Text, or None if the boxes fit as read, if they fit in no other format either,
        or if they are fewer than 10.

    Example:
        >>> corners = np.tile([50.0, 60.0, 90.0, 95.0], (10, 1))
        >>> suspect_box_format(corners, np.full((10, 2), 100))
        '100 % of the boxes ... 0 % if their numbers mean left, top, right, bottom'
    """
    finite = np.isfinite(boxes_xywh).all(axis=1)
    boxes_xywh, sizes = boxes_xywh[finite], sizes[finite]
    if len(boxes_xywh) < _MIN_BOXES:
        return None
    shares = {
        name: _share_bad(np.hstack(convert(*np.split(boxes_xywh, 2, 1))), sizes)
        for name, convert in _FORMATS.items()
    }
    as_read, name = _share_bad(boxes_xywh, sizes), min(shares, key=shares.get)
    many, few = (_SOME_BAD, 0.0) if are_doubtful else (_MANY_BAD, _FEW_BAD)
    if as_read < many or shares[name] > few:
        return None
    return (
        f"{100 * as_read:.0f} % of the boxes are empty or reach out of their image as "
        f"they were read, but only {100 * shares[name]:.0f} % if their numbers mean "
        f"{name}"
    )


def _share_bad(boxes_xywh, sizes):
    empty = (boxes_xywh[:, 2:] <= 0).any(axis=1)
    return float(np.mean(empty | (reach_out(boxes_xywh, sizes) > _SLACK)))
