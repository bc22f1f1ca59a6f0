"""Rectangles of one color that hide parts of an image."""

from __future__ import annotations  # a type of TensorFlow would import it

from effdet_keras._internal.optional_imports import tensorflow as tf


def fill_rectangle(image, rectangle, fill):
    """Paints one rectangle.

    Args:
        image: tensor `[H, W, 3]`.
        rectangle: four int32 scalars, `yxyx`: the first row and column that is
            painted, and the first that is not any more. It may reach over the border.
        fill: number, the color.

    Returns:
        Tensor like `image`.

    Example:
        >>> painted = fill_rectangle(np.zeros((1, 4, 3), "uint8"), (0, 1, 9, 3), 128)
        >>> painted.numpy()[0, :, 0].tolist()
        [0, 128, 128, 0]
    """
    image = tf.convert_to_tensor(image)
    inside = rectangle_mask(tf.shape(image), rectangle)[..., None]
    return tf.where(inside, tf.cast(fill, image.dtype), image)


def rectangle_mask(shape, rectangle):
    """Which pixels lie in a rectangle, bool `[H, W]`."""
    y0, x0, y1, x1 = rectangle
    rows, columns = tf.range(shape[0]), tf.range(shape[1])
    in_rows = (rows >= y0) & (rows < y1)
    in_columns = (columns >= x0) & (columns < x1)
    return in_rows[:, None] & in_columns[None]
