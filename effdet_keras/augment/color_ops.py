"""The changes of color in AutoAugment, equal to those of google/automl.

They take and give uint8 images `[H, W, 3]`. The names are those of PIL's ImageOps and
ImageEnhance, which the first AutoAugment (https://arxiv.org/abs/1805.09501) used.
"""

from __future__ import annotations  # a type of TensorFlow would import it

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment.holes import rectangle_mask


def blend(start, end, factor):
    """Goes from one image, at factor 0, to another, at 1, and beyond it.

    Example:
        >>> gray = np.full((1, 1, 3), 100, "uint8")
        >>> int(blend(np.zeros_like(gray), gray, 1.5)[0, 0, 0])
        150
    """
    start, end = tf.cast(start, tf.float32), tf.cast(end, tf.float32)
    mixed = start + factor * (end - start)
    return tf.cast(tf.clip_by_value(mixed, 0.0, 255.0), tf.uint8)


def gray(image):
    """The image without color."""
    return tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image))


def color(image, factor):
    """Less color below factor 1, more above."""
    return blend(gray(image), image, factor)


def contrast(image, factor):
    """Less contrast below factor 1, more above: moves from the mean gray."""
    mean = tf.reduce_mean(tf.cast(tf.image.rgb_to_grayscale(image), tf.float32))
    return blend(tf.fill(tf.shape(image), tf.cast(mean, tf.uint8)), image, factor)


def brightness(image, factor):
    """Darker below factor 1, brighter above."""
    return blend(tf.zeros_like(image), image, factor)


def sharpness(image, factor):
    """Smoother below factor 1, sharper above; the border of one pixel stays."""
    pixels = tf.cast(image, tf.float32)[None]
    kernel = tf.constant([[1.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 1.0]])
    kernel = tf.tile(kernel[:, :, None, None], [1, 1, 3, 1])
    sums = tf.nn.depthwise_conv2d(pixels, kernel, [1, 1, 1, 1], "SAME")[0]
    # Divided as whole numbers: a kernel of thirteenths loses the last bit, on each
    # device another one.
    smooth = tf.cast(tf.cast(tf.round(sums), tf.int32) // 13, tf.uint8)
    shape = tf.shape(image)
    inner = rectangle_mask(shape, (1, 1, shape[0] - 1, shape[1] - 1))[..., None]
    return blend(tf.where(inner, smooth, image), image, factor)


def solarize(image, threshold):
    """Inverts pixels from `threshold` upwards."""
    is_dark = tf.cast(image, tf.float32) < threshold
    return tf.where(is_dark, image, 255 - image)


def solarize_add(image, addition):
    """Adds to pixels below 128."""
    added = tf.clip_by_value(tf.cast(image, tf.float32) + addition, 0.0, 255.0)
    return tf.where(image < 128, tf.cast(added, tf.uint8), image)


def posterize(image, bits):
    """Keeps the highest bits of each pixel, one at least."""
    shift = tf.clip_by_value(8 - tf.cast(bits, tf.int32), 0, 7)
    shift = tf.cast(shift, tf.uint8)
    return tf.bitwise.left_shift(tf.bitwise.right_shift(image, shift), shift)


def autocontrast(image):
    """Stretches each channel to the full range from 0 to 255."""
    pixels = tf.cast(image, tf.float32)
    low = tf.reduce_min(pixels, axis=[0, 1])
    high = tf.reduce_max(pixels, axis=[0, 1])
    scale = 255.0 / tf.maximum(high - low, 1.0)
    stretched = tf.clip_by_value(pixels * scale - low * scale, 0.0, 255.0)
    return tf.where(high > low, tf.cast(stretched, tf.uint8), image)


def equalize(image):
    """Makes each channel's histogram as flat as whole numbers allow."""
    values = tf.reshape(tf.cast(image, tf.int32), [-1, 3])
    own_bins = values + tf.range(3) * 256
    counts = tf.math.bincount(tf.reshape(own_bins, [-1]), minlength=768, maxlength=768)
    counts = tf.reshape(counts, [3, 256])
    last = tf.gather(counts, tf.reduce_max(values, axis=0), batch_dims=1)
    step = ((tf.shape(values)[0] - last) // 255)[:, None]
    # The table at one color: all pixels of darker colors, in steps, rounded.
    below = tf.cumsum(counts, axis=1, exclusive=True)
    table = tf.clip_by_value((below + step // 2) // tf.maximum(step, 1), 0, 255)
    table = tf.where(step > 0, table, tf.range(256))
    equal = tf.gather(tf.reshape(tf.cast(table, tf.uint8), [-1]), own_bins)
    return tf.reshape(equal, tf.shape(image))
