"""The box around what an image shows of a box that was turned or slanted."""

from __future__ import annotations  # a type of TensorFlow would import it

from effdet_keras._internal.optional_imports import tensorflow as tf

_FAR = 1e9  # pixels
_SLACK = 1e-2  # pixels: a point that is computed to lie on the border is not outside


def corners(boxes):
    """The corners of boxes, in order around each.

    Args:
        boxes: float32 tensor `[n, 4]`, `yxyx`.

    Returns:
        Float32 tensor `[n, 4, 2]` of `(y, x)`.

    Example:
        >>> corners(np.float32([[0, 1, 2, 5]])).numpy().tolist()
        [[[0.0, 1.0], [0.0, 5.0], [2.0, 5.0], [2.0, 1.0]]]
    """
    y0, x0, y1, x1 = tf.unstack(boxes, axis=1)
    y = tf.stack([y0, y0, y1, y1], axis=1)
    x = tf.stack([x0, x1, x1, x0], axis=1)
    return tf.stack([y, x], axis=2)


def visible_hulls(quads, height, width):
    """Boxes around the parts of quadrilaterals that lie in the image.

    This is not the box around the corners, clipped to the image: of a turned box
    with a corner outside, it covers what is left of the box and no more. The visible
    part is a convex polygon, whose corners are those of the quadrilateral inside the
    image, those of the image inside the quadrilateral, and the points where their
    sides cross; the box lies around these points.

    Args:
        quads: float32 tensor `[n, 4, 2]` of `(y, x)`: convex, corners in order.

    Returns:
        Float32 tensor `[n, 4]`, `yxyx`; zeros where nothing is visible.

    Example:
        >>> diamond = np.float32([[[-4, 0], [0, 4], [4, 0], [0, -4]]])
        >>> visible_hulls(diamond, 8.0, 3.0).numpy().tolist()
        [[0.0, 0.0, 4.0, 3.0]]
    """
    limit = tf.stack([height, width])
    sides = tf.roll(quads, -1, axis=1) - quads  # [n, 4, 2]
    crossings, on_sides = _crossings(quads, sides, limit)
    points = tf.concat([quads, crossings], axis=1)  # [n, 20, 2]
    in_image = tf.reduce_all((points > -_SLACK) & (points < limit + _SLACK), axis=-1)
    is_corner = in_image & tf.concat([tf.ones_like(on_sides[:, :4]), on_sides], axis=1)
    image, in_quads = _image_corners(quads, sides, height, width)
    points = tf.concat([points, tf.broadcast_to(image, tf.shape(quads))], axis=1)
    is_corner = tf.concat([is_corner, in_quads], axis=1)[..., None]
    low = tf.reduce_min(tf.where(is_corner, points, _FAR), axis=1)
    high = tf.reduce_max(tf.where(is_corner, points, -_FAR), axis=1)
    hulls = tf.clip_by_value(tf.concat([low, high], 1), 0.0, tf.tile(limit, [2]))
    seen = tf.reduce_any(is_corner, axis=1)
    return tf.where(seen, hulls, 0.0)


def areas(boxes):
    """Areas of boxes, float32 `[n]`."""
    sides = tf.maximum(boxes[:, 2:] - boxes[:, :2], 0.0)
    return sides[:, 0] * sides[:, 1]


def without_hidden(boxes, whole_areas, min_visibility):
    """Boxes, with zeros for those of which too little is left.

    Zeros and not fewer rows: boxes and labels stay side by side, and `tidy` drops
    boxes without area together with their labels.

    Args:
        boxes: float32 tensor `[n, 4]`, `yxyx`, what is left of each box.
        whole_areas: float32 tensor `[n]`, their areas before.

    Returns:
        Float32 tensor `[n, 4]`.

    Example:
        >>> left = np.float32([[0, 0, 4, 4], [0, 0, 4, 1]])
        >>> without_hidden(left, [16.0, 16.0], min_visibility=0.5).numpy().tolist()
        [[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 0.0, 0.0]]
    """
    enough = areas(boxes) >= min_visibility * tf.convert_to_tensor(whole_areas)
    return tf.where(enough[:, None], boxes, 0.0)


def hull_areas(quads):
    """Areas of the boxes around quadrilaterals, float32 `[n]`."""
    sides = tf.reduce_max(quads, axis=1) - tf.reduce_min(quads, axis=1)
    return sides[:, 0] * sides[:, 1]


def _image_corners(quads, sides, height, width):
    """The image's corners `[4, 2]`; whether the quads have them inside, `[n, 4]`."""
    y, x = tf.stack([0.0, 0.0, height, height]), tf.stack([0.0, width, width, 0.0])
    side_y, side_x = tf.unstack(sides, axis=2)  # [n, 4]
    start_y, start_x = tf.unstack(quads, axis=2)
    to_y = tf.reshape(y, [1, 4, 1]) - start_y[:, None]  # [n, corners, sides]
    to_x = tf.reshape(x, [1, 4, 1]) - start_x[:, None]
    turn = side_y[:, None] * to_x - side_x[:, None] * to_y
    # Inside, the corner lies on one hand of all sides.
    inside = tf.abs(tf.reduce_sum(tf.sign(turn), axis=2)) == 4.0
    return tf.stack([y, x], axis=1), inside


def _crossings(quads, sides, limit):
    """Where sides cross the borders' lines: points `[n, 16, 2]`, if on the side."""
    borders = tf.stack([tf.zeros_like(limit), limit])  # [low and high, axes]
    share = tf.math.divide_no_nan(borders - quads[:, :, None], sides[:, :, None])
    share = tf.reshape(share, [-1, 4, 4, 1])
    points = quads[:, :, None] + share * sides[:, :, None]  # [n, 4, 4, 2]
    share = tf.reshape(share, [-1, 16])
    return tf.reshape(points, [-1, 16, 2]), (share >= 0.0) & (share <= 1.0)
