"""The operations of the policies of AutoAugment, and their strengths.

google/automl's distances in pixels are meant for the images of COCO, whose long side is
640. Images are uint8 `[H, W, 3]`. Boxes are float32 `[n, 4]`, `yxyx` in pixels.

A dataset whose graph has thousands of operations takes long to start. So operations
that differ only in numbers are one operation of the graph: all shifts, shears and
rotations are `Move`, and everything that happens inside boxes is `Inside`.
"""

from __future__ import annotations

from typing import NamedTuple

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import random_ops, warps
from effdet_keras.augment.augmentation import size_of
from effdet_keras.augment.pixels import fill_rectangle, rectangle_mask

# --- The color operations of AutoAugment, equal to those of google/automl.


def blend(start, end, factor):
    """Interpolates from one image (factor 0) to another (factor 1), and beyond."""
    start, end = tf.cast(start, tf.float32), tf.cast(end, tf.float32)
    mixed = start + factor * (end - start)
    return tf.cast(tf.clip_by_value(mixed, 0.0, 255.0), tf.uint8)


def color(image, factor):
    """Reduces color for a factor below 1, and increases it above 1."""
    gray = tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image))
    return blend(gray, image, factor)


def contrast(image, factor):
    """Moves pixels towards the mean gray for a factor below 1, away from it above 1."""
    mean = tf.reduce_mean(tf.cast(tf.image.rgb_to_grayscale(image), tf.float32))
    return blend(tf.fill(tf.shape(image), tf.cast(mean, tf.uint8)), image, factor)


def brightness(image, factor):
    """Darkens an image for a factor below 1, and brightens it above 1."""
    return blend(tf.zeros_like(image), image, factor)


def sharpness(image, factor):
    """Smooths below factor 1, sharpens above it; the outermost pixels stay as is."""
    pixels = tf.cast(image, tf.float32)[None]
    kernel = tf.constant([[1.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 1.0]])
    kernel = tf.tile(kernel[:, :, None, None], [1, 1, 3, 1])
    sums = tf.nn.depthwise_conv2d(pixels, kernel, [1, 1, 1, 1], "SAME")[0]
    # Integer division: a kernel with weights of 1/13 would lose the last bit, and each
    # device would lose another one.
    smooth = tf.cast(tf.cast(tf.round(sums), tf.int32) // 13, tf.uint8)
    shape = tf.shape(image)
    inner = rectangle_mask(shape, (1, 1, shape[0] - 1, shape[1] - 1))[..., None]
    return blend(tf.where(inner, smooth, image), image, factor)


def solarize(image, threshold):
    """Inverts pixel values of `threshold` or more."""
    return tf.where(tf.cast(image, tf.float32) < threshold, image, 255 - image)


def solarize_add(image, addition):
    """Adds to pixel values below 128."""
    added = tf.clip_by_value(tf.cast(image, tf.float32) + addition, 0.0, 255.0)
    return tf.where(image < 128, tf.cast(added, tf.uint8), image)


def posterize(image, bits):
    """Keeps the highest bits of each pixel value, at least one."""
    shift = tf.clip_by_value(8 - tf.cast(bits, tf.int32), 0, 7)
    shift = tf.cast(shift, tf.uint8)
    return tf.bitwise.left_shift(tf.bitwise.right_shift(image, shift), shift)


def autocontrast(image, _=None):
    """Stretches each channel to the full range from 0 to 255."""
    pixels = tf.cast(image, tf.float32)
    low = tf.reduce_min(pixels, axis=[0, 1])
    high = tf.reduce_max(pixels, axis=[0, 1])
    scale = 255.0 / tf.maximum(high - low, 1.0)
    stretched = tf.clip_by_value(pixels * scale - low * scale, 0.0, 255.0)
    return tf.where(high > low, tf.cast(stretched, tf.uint8), image)


def equalize(image, _=None):
    """Makes the histogram of each channel as flat as integers allow."""
    values = tf.reshape(tf.cast(image, tf.int32), [-1, 3])
    own_bins = values + tf.range(3) * 256
    counts = tf.math.bincount(tf.reshape(own_bins, [-1]), minlength=768, maxlength=768)
    counts = tf.reshape(counts, [3, 256])
    last = tf.gather(counts, tf.reduce_max(values, axis=0), batch_dims=1)
    step = ((tf.shape(values)[0] - last) // 255)[:, None]
    # The new value of a color: the number of darker pixels, in steps, rounded.
    below = tf.cumsum(counts, axis=1, exclusive=True)
    table = tf.clip_by_value((below + step // 2) // tf.maximum(step, 1), 0, 255)
    table = tf.where(step > 0, table, tf.range(256))
    equal = tf.gather(tf.reshape(tf.cast(table, tf.uint8), [-1]), own_bins)
    return tf.reshape(equal, tf.shape(image))


# --- The operations of a policy as numbers.

_FILL = 128.0
_NUM_UNITS = 4  # the most random numbers that an operation needs

_ONLY = "_Only_BBoxes"
_MOVES = ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY")
_FACTORS = ("Color", "Contrast", "Brightness", "Sharpness")
_WHOLE = {"Posterize": 4, "Solarize": 256, "SolarizeAdd": 110}
_HIGHEST = {  # at level 10
    "Cutout": 100.0,
    "BBox_Cutout": 0.75,
    "Rotate": 30.0,
    **dict.fromkeys(("ShearX", "ShearY"), 0.3),
    **dict.fromkeys(("TranslateX", "TranslateY"), 250.0),
}
_HIGHEST_INSIDE = {  # at level 10 inside boxes, if different
    "Cutout": 50.0,
    **dict.fromkeys(("TranslateX", "TranslateY"), 120.0),
}
_COLORS = {
    "AutoContrast": autocontrast,
    "Equalize": equalize,
    "Posterize": posterize,
    "Solarize": solarize,
    "SolarizeAdd": solarize_add,
    "Color": color,
    "Contrast": contrast,
    "Brightness": brightness,
    "Sharpness": sharpness,
}


class Step(NamedTuple):
    """One operation of a sub-policy, as numbers, or as tensors of a chosen one."""

    kind: int  # index of the kind of operation
    inner: int  # index of the kind of operation inside boxes
    moves: list  # one-hot for `_MOVES`, five numbers; all 0 for other operations
    strength: float  # factor, threshold, degrees or pixels, depending on the kind
    probability: float


class Settings(NamedTuple):
    """The settings for all operations of a policy."""

    scale: tf.Tensor  # float32 scalar, the factor on distances in pixels
    min_visibility: float  # a box is dropped if less of it stays visible
    whole_pixels: bool  # whether boxes are moved as in the reference


def strength_of(name, level):
    """Returns the strength of an operation at a level from 0 to 10, or above."""
    share = level / 10.0
    if name in _FACTORS:
        return share * 1.8 + 0.1
    kind = name.removesuffix(_ONLY).removesuffix("_BBox")
    if kind in _WHOLE:
        return float(int(share * _WHOLE[kind]))
    highest = _HIGHEST.get(kind, 0.0)
    if name.endswith(_ONLY):
        highest = _HIGHEST_INSIDE.get(kind, highest)
    return share * highest


def kind_of(name):
    """Returns the kind of graph operation that performs a policy's operation."""
    if name.endswith(_ONLY):
        return "Inside"
    return "Move" if name.removesuffix("_BBox") in _MOVES else name


def inner_kind_of(name):
    """Returns the kind of operation inside boxes; None for other operations."""
    if not name.endswith(_ONLY):
        return None
    kind = name.removesuffix(_ONLY)
    return "Move" if kind in _MOVES else kind


def step_of(name, probability, level, kinds, inner_kinds):
    """Returns the `Step` for a policy's `(name, probability, level)`."""
    inner = inner_kind_of(name)
    move = name.removesuffix(_ONLY).removesuffix("_BBox")
    return Step(
        kinds.index(kind_of(name)),
        0 if inner is None else inner_kinds.index(inner),
        [float(move == one) for one in _MOVES],
        strength_of(name, level),
        probability,
    )


# --- Application of one operation.


def apply_kind(kind, inner_kinds, image, boxes, step, seed, settings):
    """Returns image and boxes after one operation, regardless of its probability."""
    if kind in _COLORS:
        return _COLORS[kind](image, step.strength), boxes
    if kind == "Inside":
        return _inside(inner_kinds, image, boxes, step, seed, settings), boxes
    units = tf.unstack(random_ops.uniform(seed, [_NUM_UNITS]))
    if kind == "Cutout":
        return _cutout(image, step.strength * settings.scale, *units[:2]), boxes
    if kind == "BBox_Cutout":
        return _cutout_in_box(image, boxes, step.strength, *units[:3]), boxes
    matrix = _matrix(image, step, units[0], settings.scale)
    if settings.whole_pixels:
        is_rotation = step.moves[0] > 0.0
        moved = whole_pixel_boxes(boxes, matrix, image, is_rotation=is_rotation)
    else:
        moved = warps.warp_boxes(boxes, matrix, image, settings.min_visibility)
    return _nearest(image, matrix), moved


def _matrix(image, step, unit, scale):
    """Returns the matrix of the one move, in one of two random directions."""
    numbers = step.moves * step.strength * tf.where(unit < 0.5, -1.0, 1.0)
    degrees, along_x, along_y, left, up = tf.unstack(numbers)
    a, b, c, d, e, f = warps.rotation(degrees, *size_of(image))
    c, f = c + tf.round(left * scale), f + tf.round(up * scale)
    return a, b + along_x, c, d + along_y, e, f


def _nearest(image, matrix):
    return warps.warp_image(image, matrix, interpolation="nearest", fill=_FILL)


def _cutout(image, radius, unit_y, unit_x):
    """Fills a square with sides of `2 * radius` around a random pixel."""
    height, width, _ = tf.unstack(tf.shape(image))
    y, x = random_ops.integer(unit_y, height), random_ops.integer(unit_x, width)
    return paint_around(image, y, x, radius, radius)


def _cutout_in_box(image, boxes, share, unit_box, unit_y, unit_x):
    """Fills a share of a random box, around a random pixel in it."""
    count = tf.shape(boxes)[0]
    # An appended box without area is chosen if there are no boxes: nothing is filled.
    boxes = tf.concat([boxes, tf.zeros([1, 4])], axis=0)
    box = boxes[random_ops.integer(unit_box, tf.maximum(count, 1))]
    sides = box[2:] - box[:2]
    place = box[:2] + sides * tf.stack([unit_y, unit_x])
    y, x = tf.unstack(tf.cast(place, tf.int32))
    return paint_around(image, y, x, *tf.unstack(share * sides / 2.0))


def paint_around(image, y, x, y_radius, x_radius):
    """Fills a rectangle with gray around the pixel `(y, x)`, clipped to the image."""
    y_radius, x_radius = tf.cast(y_radius, tf.int32), tf.cast(x_radius, tf.int32)
    rectangle = (y - y_radius, x - x_radius, y + y_radius, x + x_radius)
    return fill_rectangle(image, rectangle, _FILL)


# --- Changes inside the boxes, while the boxes stay in place.


def _inside(inner_kinds, image, boxes, step, seed, settings):
    """Changes the pixels of each box, one by one, with a third of the probability."""
    units = random_ops.uniform(seed, tf.stack([tf.shape(boxes)[0], 1 + _NUM_UNITS]))
    chosen = tf.where(units[:, 0] < step.probability / 3.0)[:, 0]
    boxes, units = tf.gather(boxes, chosen), tf.gather(units, chosen)[:, 1:]

    def change(pixels, units):
        units = tf.unstack(units, num=_NUM_UNITS)
        radius = step.strength * settings.scale

        def branch(kind):
            if kind == "Flip":
                return lambda: tf.reverse(pixels, [1])
            if kind == "Cutout":
                return lambda: _cutout(pixels, radius, *units[:2])
            if kind in _COLORS:
                return lambda: _COLORS[kind](pixels, step.strength)
            matrix = _matrix(pixels, step, units[0], settings.scale)
            return lambda: _nearest(pixels, matrix)

        return tf.switch_case(step.inner, [branch(kind) for kind in inner_kinds])

    def change_one(i, image):
        return i + 1, _changed(image, boxes[i], lambda x: change(x, units[i]))

    count = tf.shape(boxes)[0]
    shapes = [tf.TensorShape([]), tf.TensorShape([None, None, 3])]
    return tf.while_loop(
        lambda i, _: i < count, change_one, [0, image], shape_invariants=shapes
    )[1]


def _changed(image, box, change):
    """Returns the image with the pixels inside one box changed."""
    height, width, _ = tf.unstack(tf.shape(image))
    # Pixels that the box only touches also count as inside.
    y0, x0, _, _ = tf.unstack(tf.cast(tf.floor(box), tf.int32))
    _, _, y1, x1 = tf.unstack(tf.cast(tf.math.ceil(box), tf.int32))
    y0, x0 = tf.clip_by_value(y0, 0, height - 1), tf.clip_by_value(x0, 0, width - 1)
    y1, x1 = tf.clip_by_value(y1, y0 + 1, height), tf.clip_by_value(x1, x0 + 1, width)
    above, middle, below = tf.split(image, [y0, y1 - y0, height - y1], num=3)
    left, inside, right = tf.split(middle, [x0, x1 - x0, width - x1], axis=1, num=3)
    middle = tf.concat([left, change(inside), right], axis=1)
    changed = tf.concat([above, middle, below], axis=0)
    return tf.ensure_shape(changed, [None, None, 3])


# --- Boxes as google/automl's AutoAugment moves them: by whole pixels.

_STRIP = 0.05  # of the image's side: the width of a box that has left the image


def whole_pixel_boxes(boxes, matrix, image, *, is_rotation):
    """Returns the boxes around the corners that the reference computes."""
    limit = tf.stack(size_of(image))
    origin = tf.where(is_rotation, 0.5, 0.0)
    # Not `corners - limit * origin`, which would round to other whole pixels.
    points = _truncate(limit * (warps.corners(boxes) / limit - origin))
    y, x = tf.unstack(points, axis=2)
    x, y = warps.inverse(matrix, x, y)
    # The shift in a rotation's matrix only moves its center, so it is left out.
    shift = tf.where(is_rotation, 0.0, tf.stack([matrix[5], matrix[2]]))
    points = _truncate(tf.stack([y, x], axis=2)) - shift + limit * origin
    low = tf.clip_by_value(tf.reduce_min(points, axis=1), 0.0, limit)
    high = tf.clip_by_value(tf.reduce_max(points, axis=1), 0.0, limit)
    is_gone = low == high
    high = tf.where(is_gone, tf.maximum(high, _STRIP * limit), high)
    low = tf.where(is_gone, tf.minimum(low, (1.0 - _STRIP) * limit), low)
    return tf.concat([low, high], axis=1)


def _truncate(values):
    return tf.cast(tf.cast(values, tf.int32), tf.float32)
