"""The operations that the policies of AutoAugment name, and their strengths.

Where google/automl's numbers are pixels, they are meant for the images of COCO, whose
long side is 640.

A dataset that begins with a graph of thousands of operations begins late. So what
differs only in numbers is one operation of the graph: all shifts, slants and rotations
are `Move`, and all that happens inside boxes is `Inside`.
"""

from __future__ import annotations  # a type of TensorFlow would import it

from typing import NamedTuple

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.augment import color_ops, draws, warp
from effdet_keras.augment.augmentation import size_of
from effdet_keras.augment.box_content import change_inside_boxes
from effdet_keras.augment.holes import fill_rectangle
from effdet_keras.augment.reference_boxes import whole_pixel_boxes

_FILL = 128.0
NUM_UNITS = 4  # random numbers that an operation needs, at most

_ONLY = "_Only_BBoxes"
_MOVES = ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY")
_FACTORS = ("Color", "Contrast", "Brightness", "Sharpness")
_WHOLE = {"Posterize": 4, "Solarize": 256, "SolarizeAdd": 110}
_HIGHEST = {
    "Cutout": 100.0,
    "Cutout_Only_BBoxes": 50.0,
    "BBox_Cutout": 0.75,
    "TranslateX_BBox": 250.0,
    "TranslateY_BBox": 250.0,
    "TranslateX_Only_BBoxes": 120.0,
    "TranslateY_Only_BBoxes": 120.0,
    "ShearX_BBox": 0.3,
    "ShearY_BBox": 0.3,
    "ShearX_Only_BBoxes": 0.3,
    "ShearY_Only_BBoxes": 0.3,
    "Rotate_BBox": 30.0,
    "Rotate_Only_BBoxes": 30.0,
}
_COLORS = {
    "AutoContrast": lambda image, _: color_ops.autocontrast(image),
    "Equalize": lambda image, _: color_ops.equalize(image),
    "Posterize": color_ops.posterize,
    "Solarize": color_ops.solarize,
    "SolarizeAdd": color_ops.solarize_add,
    "Color": color_ops.color,
    "Contrast": color_ops.contrast,
    "Brightness": color_ops.brightness,
    "Sharpness": color_ops.sharpness,
}


class Step(NamedTuple):
    """One operation of a sub-policy: numbers, or tensors of the one that was chosen.

    Attributes:
        kind: which of the kinds of the policy's operations.
        inner: which of the kinds of operations inside boxes.
        moves: five numbers, 1 for the one of `_MOVES` that it is, the others 0.
        strength: the operation's own number: a factor, a threshold, degrees, pixels.
        probability: of the operation.
    """

    kind: int
    inner: int
    moves: list
    strength: float
    probability: float


class Settings(NamedTuple):
    """What holds for all operations of a policy.

    Attributes:
        scale: float32 scalar tensor, the factor on distances in pixels.
        min_visibility: float; boxes of which less is seen are dropped.
        whole_pixels: bool, whether boxes are moved as the reference does.
    """

    scale: tf.Tensor
    min_visibility: float
    whole_pixels: bool


def strength_of(name, level):
    """The number of an operation at a level of 0 to 10, and beyond.

    Args:
        name: string, such as "Rotate_BBox".
        level: number.

    Returns:
        Float: a factor, a threshold, pixels or degrees; 0 where there is no choice.

    Example:
        >>> strength_of("Rotate_BBox", 10), strength_of("Cutout", 8)
        (30.0, 80.0)
    """
    share = level / 10.0
    if name in _FACTORS:
        return share * 1.8 + 0.1
    if name.removesuffix(_ONLY) in _WHOLE:
        return float(int(share * _WHOLE[name.removesuffix(_ONLY)]))
    return share * _HIGHEST.get(name, 0.0)


def kind_of(name):
    """The operation of the graph that does the work of a policy's operation.

    Example:
        >>> kind_of("Rotate_BBox"), kind_of("Rotate_Only_BBoxes"), kind_of("Color")
        ('Move', 'Inside', 'Color')
    """
    if name.endswith(_ONLY):
        return "Inside"
    return "Move" if name.removesuffix("_BBox") in _MOVES else name


def inner_kind_of(name):
    """Of an operation inside boxes, what happens there; None for the others."""
    if not name.endswith(_ONLY):
        return None
    kind = name.removesuffix(_ONLY)
    return "Move" if kind in _MOVES else kind


def step_of(name, probability, level, kinds, inner_kinds):
    """A policy's `(name, probability, level)` in numbers.

    Args:
        name: string, such as "Rotate_BBox".
        probability: float.
        level: number from 0 to 10, or more.
        kinds: list of all kinds that the policy has.
        inner_kinds: list of all kinds that it has inside boxes.

    Returns:
        `Step`.
    """
    inner = inner_kind_of(name)
    move = name.removesuffix(_ONLY).removesuffix("_BBox")
    return Step(
        kinds.index(kind_of(name)),
        0 if inner is None else inner_kinds.index(inner),
        [float(move == one) for one in _MOVES],
        strength_of(name, level),
        probability,
    )


def apply_kind(kind, inner_kinds, image, boxes, step, seed, settings):
    """Applies one kind of operation, whatever its probability says.

    "Inside" is the exception: each box has a third of the probability.

    Args:
        kind: string, of `kind_of`.
        inner_kinds: list of the kinds that "Inside" may be.
        image: uint8 tensor `[H, W, 3]`.
        boxes: float32 tensor `[n, 4]`, `yxyx` in pixels.
        step: `Step` of tensors.
        seed: int tensor `[2]`.
        settings: `Settings`.

    Returns:
        `(image, boxes)` of the same shapes; zeros for boxes that are not seen.
    """
    if kind in _COLORS:
        return _COLORS[kind](image, step.strength), boxes
    if kind == "Inside":
        return _inside(inner_kinds, image, boxes, step, seed, settings), boxes
    units = tf.unstack(draws.uniform(seed, [NUM_UNITS]))
    if kind == "Cutout":
        return _cutout(image, step.strength * settings.scale, *units[:2]), boxes
    if kind == "BBox_Cutout":
        return _cutout_in_box(image, boxes, step.strength, *units[:3]), boxes
    return _move(image, boxes, step, units[0], settings)


def _matrix(image, step, unit, scale):
    """The matrix of the one move, in one of its two directions."""
    numbers = step.moves * step.strength * draws.sign(unit)
    degrees, along_x, along_y, left, up = tf.unstack(numbers)
    a, b, c, d, e, f = warp.rotation(degrees, *size_of(image))
    c, f = c + tf.round(left * scale), f + tf.round(up * scale)
    return a, b + along_x, c, d + along_y, e, f


def _move(image, boxes, step, unit, settings):
    matrix = _matrix(image, step, unit, settings.scale)
    if settings.whole_pixels:
        is_rotation = step.moves[0] > 0.0
        moved = whole_pixel_boxes(boxes, matrix, image, is_rotation=is_rotation)
    else:
        moved = warp.warp_boxes(boxes, matrix, image, settings.min_visibility)
    return _nearest(image, matrix), moved


def _nearest(image, matrix):
    return warp.warp_image(image, matrix, interpolation="nearest", fill=_FILL)


def _inside(inner_kinds, image, boxes, step, seed, settings):
    """One of the operations on the pixels inside boxes."""

    def change(pixels, units):
        units = tf.unstack(units, num=NUM_UNITS)
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

    units = draws.uniform(seed, tf.stack([tf.shape(boxes)[0], 1 + NUM_UNITS]))
    return change_inside_boxes(image, boxes, units, step.probability / 3.0, change)


def _cutout(image, radius, unit_y, unit_x):
    """Paints a square with sides of `2 * radius` around a random pixel."""
    height, width, _ = tf.unstack(tf.shape(image))
    y, x = draws.integer(unit_y, height), draws.integer(unit_x, width)
    return paint_around(image, y, x, radius, radius)


def _cutout_in_box(image, boxes, share, unit_box, unit_y, unit_x):
    """Paints a share of one box, around a random pixel of it."""
    count = tf.shape(boxes)[0]
    # With no box at all, a box without area: nothing is painted.
    boxes = tf.concat([boxes, tf.zeros([1, 4])], axis=0)
    box = boxes[draws.integer(unit_box, tf.maximum(count, 1))]
    sides = box[2:] - box[:2]
    place = box[:2] + sides * tf.stack([unit_y, unit_x])
    y, x = tf.unstack(tf.cast(place, tf.int32))
    return paint_around(image, y, x, *tf.unstack(share * sides / 2.0))


def paint_around(image, y, x, y_radius, x_radius):
    """Paints a rectangle gray around the pixel `(y, x)`, cut off at the borders."""
    y_radius, x_radius = tf.cast(y_radius, tf.int32), tf.cast(x_radius, tf.int32)
    rectangle = (y - y_radius, x - x_radius, y + y_radius, x + x_radius)
    return fill_rectangle(image, rectangle, _FILL)
