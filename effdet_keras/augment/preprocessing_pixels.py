"""What the Object Detection API's preprocessing steps do to pixels.

Functions of a float32 image `[H, W, 3]` and a seed; `preprocessing.STEPS` has what
their other arguments are. Who calls them cuts off at 0 and 255.
"""

from __future__ import annotations  # a type of TensorFlow would import it

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import draws
from effdet_keras.augment.augmentation import size_of
from effdet_keras.augment.holes import rectangle_mask
from effdet_keras.augment.jpeg_noise import compressed


def scale_values(image, seed, minval, maxval):
    return image * draws.between(draws.uniform(seed, tf.shape(image)), minval, maxval)


def gray(image, seed, probability=1.0):
    gray = tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image))
    return tf.where(draws.uniform(seed) < probability, gray, image)


def brightness(image, seed, max_delta):
    return image + 255.0 * draws.between(draws.uniform(seed), -max_delta, max_delta)


def contrast(image, seed, min_delta, max_delta):
    factor = draws.between(draws.uniform(seed), min_delta, max_delta)
    return tf.image.adjust_contrast(image, factor)


def hue(image, seed, max_delta):
    delta = draws.between(draws.uniform(seed), -max_delta, max_delta)
    return 255.0 * tf.image.adjust_hue(image / 255.0, delta)


def saturation(image, seed, min_delta, max_delta):
    factor = draws.between(draws.uniform(seed), min_delta, max_delta)
    return 255.0 * tf.image.adjust_saturation(image / 255.0, factor)


def distort(image, seed, color_ordering):
    seeds = draws.split(seed, 4)
    changes = [
        lambda x: brightness(x, seeds[0], 32.0 / 255.0),
        lambda x: saturation(x, seeds[1], 0.5, 1.5),
        lambda x: hue(x, seeds[2], 0.2),
        lambda x: contrast(x, seeds[3], 0.5, 1.5),
    ]
    for i in (0, 3, 1, 2) if color_ordering else range(4):
        image = tf.clip_by_value(changes[i](image), 0.0, 255.0)
    return image


def gamma(image, seed, gamma, gain):
    return 255.0 * gain * (image / 255.0) ** gamma


def black_patches(image, seed, max_black_patches, probability, size_to_image_ratio):
    height, width = size_of(image)
    side = tf.floor(tf.minimum(height, width) * size_to_image_ratio)
    units = draws.uniform(seed, [max_black_patches, 3])
    is_hidden = tf.zeros(tf.shape(image)[:2], tf.bool)
    for i in range(max_black_patches):
        y = tf.floor(units[i, 1] * (1.0 - size_to_image_ratio) * height)
        x = tf.floor(units[i, 2] * (1.0 - size_to_image_ratio) * width)
        own = tf.where(units[i, 0] < probability, side, 0.0)
        patch = tf.cast(tf.stack([y, x, y + own, x + own]), tf.int32)
        is_hidden |= rectangle_mask(tf.shape(image), tf.unstack(patch))
    return tf.where(is_hidden[..., None], 0.0, image)


def jpeg(image, seed, random_coef, min_jpeg_quality, max_jpeg_quality):
    coin, unit = tf.unstack(draws.uniform(seed, [2]))
    quality = draws.whole_between(unit, min_jpeg_quality, max_jpeg_quality)
    return tf.cond(
        coin >= random_coef,
        lambda: tf.cast(compressed(image, quality), tf.float32),
        lambda: image,
    )


def patch_gaussian(
    image,
    seed,
    random_coef,
    min_patch_size,
    max_patch_size,
    min_gaussian_stddev,
    max_gaussian_stddev,
):
    of_patch, of_noise = draws.split(seed, 2)
    coin, *units = tf.unstack(draws.uniform(of_patch, [5]))
    side = draws.whole_between(units[0], min_patch_size, max_patch_size)
    deviation = draws.between(units[1], min_gaussian_stddev, max_gaussian_stddev)
    shape = tf.shape(image)
    y = draws.integer(units[2], shape[0]) - side // 2
    x = draws.integer(units[3], shape[1]) - side // 2
    noise = tf.random.stateless_normal(shape, of_noise, alg="philox") * deviation
    is_noisy = rectangle_mask(shape, (y, x, y + side, x + side)) & (coin >= random_coef)
    return tf.where(is_noisy[..., None], image + 255.0 * noise, image)
