"""Changes of what is inside the boxes, while the boxes stay in place."""

from __future__ import annotations  # a type of TensorFlow would import it

from effdet_keras._internal.optional_imports import tensorflow as tf


def change_inside_boxes(image, boxes, units, probability, change):
    """Changes the pixels inside some boxes, one box after the other.

    Where boxes overlap, what one of them changed is changed again with the next.

    Args:
        image: uint8 tensor `[H, W, 3]`.
        boxes: float32 tensor `[n, 4]`, `yxyx` in pixels of it.
        units: float32 tensor `[n, k]`, numbers of `draws.uniform` for each box.
        probability: float scalar, of a change; the first column decides by it.
        change: callable `(pixels, units) -> pixels`, uint8 `[h, w, 3]` both, that
            takes the other `k - 1` numbers of the box.

    Returns:
        Uint8 tensor `[H, W, 3]`.

    Example:
        >>> image = np.zeros((2, 4, 3), "uint8")
        >>> changed = change_inside_boxes(image, np.float32([[0, 1, 2, 3]]),
        ...     units=np.float32([[0.4]]), probability=0.5,
        ...     change=lambda pixels, units: pixels + 7)
        >>> changed.numpy()[0, :, 0].tolist()
        [0, 7, 7, 0]
    """
    boxes, units = tf.convert_to_tensor(boxes), tf.convert_to_tensor(units)
    chosen = tf.where(units[:, 0] < probability)[:, 0]
    boxes, units = tf.gather(boxes, chosen), tf.gather(units, chosen)[:, 1:]

    def change_one(i, image):
        return i + 1, _changed(image, boxes[i], lambda x: change(x, units[i]))

    count = tf.shape(boxes)[0]
    shapes = [tf.TensorShape([]), tf.TensorShape([None, None, 3])]
    return tf.while_loop(
        lambda i, _: i < count, change_one, [0, image], shape_invariants=shapes
    )[1]


def _changed(image, box, change):
    """The image with its pixels inside one box changed."""
    height, width, _ = tf.unstack(tf.shape(image))
    # A pixel that the box only touches is inside, too.
    y0, x0, _, _ = tf.unstack(tf.cast(tf.floor(box), tf.int32))
    _, _, y1, x1 = tf.unstack(tf.cast(tf.math.ceil(box), tf.int32))
    y0, x0 = tf.clip_by_value(y0, 0, height - 1), tf.clip_by_value(x0, 0, width - 1)
    y1, x1 = tf.clip_by_value(y1, y0 + 1, height), tf.clip_by_value(x1, x0 + 1, width)
    above, middle, below = tf.split(image, [y0, y1 - y0, height - y1], num=3)
    left, inside, right = tf.split(middle, [x0, x1 - x0, width - x1], axis=1, num=3)
    middle = tf.concat([left, change(inside), right], axis=1)
    changed = tf.concat([above, middle, below], axis=0)
    return tf.ensure_shape(changed, [None, None, 3])
