"""Whether the numbers of boxes look like another format than they were read in."""

import numpy as np

_MIN_BOXES = 10  # fewer tell nothing
_MANY_BAD = 0.15  # share of boxes that do not fit their image, as they were read
_FEW_BAD = 0.02  # share that may not fit in the format that they really have
_SLACK = 1.5  # pixels: counting from 1, and rounding
_MANY_LEFT_OUT = 0.2  # share of boxes without area

# Each converts left, top, width, height as they were read to what they would be if the
# file had the format of this name.
_FORMATS = {
    "left, top, right, bottom": lambda x, y, w, h: (x, y, w - x, h - y),
    "top, left, height, width": lambda x, y, w, h: (y, x, h, w),
    "top, left, bottom, right": lambda x, y, w, h: (y, x, h - y, w - x),
    "center x, center y, width, height": lambda x, y, w, h: (
        x - w / 2,
        y - h / 2,
        w,
        h,
    ),
    "left, top, width, height, read as corners": lambda x, y, w, h: (
        x,
        y,
        x + w,
        y + h,
    ),
}


def reach_out(boxes_xywh, sizes):
    """Computes by how many pixels each box reaches out of its image.

    Args:
        boxes_xywh: float array `[n, 4]`: left, top, width, height in pixels.
        sizes: array `[n, 2]`, `(height, width)` of each box's image.

    Returns:
        Float array `[n]`, negative for a box that does not reach the border.

    Example:
        >>> reach_out(np.array([[-2.0, 1, 5, 4], [3, 3, 2, 9]]), np.array([[8, 8]] * 2))
        array([2., 4.])
    """
    beyond = boxes_xywh[:, :2] + boxes_xywh[:, 2:] - sizes[:, ::-1]
    return np.maximum(beyond, -boxes_xywh[:, :2]).max(axis=1)


def suspect_box_format(boxes_xywh, sizes, num_left_out=0):
    """Says in which box format boxes would fit their images, if as read they do not.

    It says so only if many boxes as read are empty or reach out of their image, and
    almost none would in another format. Nothing is found where both formats fit, as
    for one box in the middle of each image, or swapped axes in square images.

    Args:
        boxes_xywh: float array `[n, 4]`, left, top, width, height as read.
        sizes: array `[n, 2]`, `(height, width)` of each box's image.
        num_left_out: int, boxes without area that the reader left out.

    Returns:
        str, or None if nothing is suspect.

    Example:
        >>> corners = np.array([[20.0 + i, 10.0, 50.0 + i, 40.0] for i in range(20)])
        >>> suspect_box_format(corners, np.array([[48, 80]] * 20))
        '100 % of the boxes are empty or reach out of their image as they were \
read, 0 % if their numbers are left, top, right, bottom'
    """
    finite = np.isfinite(boxes_xywh).all(axis=1)
    boxes_xywh, sizes = boxes_xywh[finite], sizes[finite]
    if len(boxes_xywh) + num_left_out < _MIN_BOXES:
        return None
    as_read = _share_bad(boxes_xywh, sizes)
    if as_read >= _MANY_BAD:
        shares = {
            name: _share_bad(np.stack(convert(*boxes_xywh.T), axis=1), sizes)
            for name, convert in _FORMATS.items()
        }
        name = min(shares, key=shares.get)
        if shares[name] <= _FEW_BAD:
            return (
                f"{100 * as_read:.0f} % of the boxes are empty or reach out of their "
                f"image as they were read, {100 * shares[name]:.0f} % if their "
                f"numbers are {name}"
            )
    empty = num_left_out + int((boxes_xywh[:, 2:] <= 0).any(axis=1).sum())
    total = num_left_out + len(boxes_xywh)
    if empty >= _MANY_LEFT_OUT * total:
        return (
            f"{empty:,} of {total:,} boxes end before they begin: are they left, top, "
            "width, height, where corners were expected?"
        )
    return None


def _share_bad(boxes_xywh, sizes):
    if not len(boxes_xywh):
        return 0.0
    empty = (boxes_xywh[:, 2:] <= 0).any(axis=1)
    return float(np.mean(empty | (reach_out(boxes_xywh, sizes) > _SLACK)))
