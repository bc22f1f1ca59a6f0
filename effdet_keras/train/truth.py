"""What the ground truth of a batch must be, and an explanation where it is not."""

import numpy as np
from keras import ops

from effdet_keras._internal.label_constants import BACKGROUND, IGNORED_PIXEL


def is_valid_batch(truth, config):
    """Whether a model can learn from the ground truth of a batch.

    Args:
        truth: dict of tensors: `boxes` and `labels` for detection, see `is_valid`;
            `masks` `[B, H, W]` for segmentation, classes below `seg_num_classes`, or
            255.

    Example:
        >>> from effdet_keras.model.config import EfficientDetConfig
        >>> config = EfficientDetConfig(heads="segmentation", seg_num_classes=3)
        >>> bool(is_valid_batch({"masks": [[[0, 2, 255]]]}, config))
        True
        >>> bool(is_valid_batch({"masks": [[[0, 3, 255]]]}, config))
        False
    """
    rules = []
    if config.has_detection:
        size = config.image_size, config.num_classes
        rules.append(is_valid(truth["boxes"], truth["labels"], *size))
    if config.has_segmentation:
        wrong = _wrong_pixels(truth["masks"], config.seg_num_classes)
        rules.append(ops.logical_not(ops.any(wrong)))
    return ops.all(ops.stack(rules))


def explain_batch(truth, config):
    """Explains what is wrong with the ground truth of a batch; see `is_valid_batch`."""
    fault = None
    if config.has_detection and {"boxes", "labels"} <= set(truth):
        size = config.image_size, config.num_classes
        fault = explain(truth["boxes"], truth["labels"], *size)
    if fault is None and config.has_segmentation and "masks" in truth:
        masks = np.asarray(ops.convert_to_numpy(truth["masks"]))
        wrong = np.argwhere(
            ops.convert_to_numpy(_wrong_pixels(masks, config.seg_num_classes))
        )
        if len(wrong):
            image, row, column = wrong[0].tolist()
            fault = (
                "Classes of pixels must be whole numbers below the model's "
                f"`seg_num_classes`, {config.seg_num_classes}, and count from 0; "
                f"{IGNORED_PIXEL} is for pixels without a class. Received: "
                f"{masks[image, row, column]} in row {row}, column {column} of mask "
                f"{image}"
            )
    return fault


def _wrong_pixels(masks, num_classes):
    given = ops.convert_to_tensor(masks)
    masks = ops.cast(given, "int32")
    is_class = ops.logical_and(masks >= 0, masks < num_classes)
    is_known = ops.logical_or(is_class, masks == IGNORED_PIXEL)
    # A cast cuts 0.7 down to 0: a pixel of another class.
    is_whole = given == ops.cast(masks, given.dtype)
    return ops.logical_not(ops.logical_and(is_known, is_whole))


def is_valid(boxes, labels, image_size, num_classes):
    """Whether a model can learn from the ground truth of a batch.

    Labels are whole numbers below `num_classes`, and -1 in padding. Boxes are finite,
    begin before they end, have their center in the image, and are in pixels: two
    boxes or more that all lie between 0 and 1 are taken for normalized ones. Rows with
    the label -1 or four zeros are padding and not checked.

    Args:
        boxes: float tensor `[B, M, 4]`, `yxyx` in pixels of the input.
        labels: int tensor `[B, M]`.

    Example:
        >>> swapped = [[[0.0, 40.0, 8.0, 8.0]]]  # ends left of where it begins
        >>> bool(is_valid(swapped, [[0]], (64, 64), num_classes=1))
        False
    """
    faults = _faults(boxes, labels, image_size, num_classes)
    wrong = [ops.any(rows) for rows, _ in faults]
    return ops.logical_not(ops.any(ops.stack(wrong)))


def explain(boxes, labels, image_size, num_classes):
    """Explains what is wrong with the ground truth of a batch; see `is_valid`.

    Example:
        >>> print(explain([[[0.0, 0.0, 8.0, 8.0]]], [[3]], (64, 64), num_classes=3))
        Labels must lie below the model's `num_classes`, 3, and count from 0. \
Received: label 3 with box [0.0, 0.0, 8.0, 8.0] in row 0 of image 0
    """
    for rows, sentence in _faults(boxes, labels, image_size, num_classes):
        wrong = np.argwhere(ops.convert_to_numpy(rows))
        if len(wrong):
            image, row = wrong[0]
            box = ops.convert_to_numpy(boxes)[image, row].tolist()
            label = ops.convert_to_numpy(labels)[image, row].item()
            return (
                f"{sentence}. Received: label {label} with box {box} in row {row} of "
                f"image {image}"
            )
    return None


def _faults(boxes, labels, image_size, num_classes):
    """Each rule: bool `[B, M]`, where it is broken; and its text."""
    boxes = ops.cast(ops.convert_to_tensor(boxes), "float32")
    given = ops.convert_to_tensor(labels)
    labels = ops.cast(given, "int32")
    low, high = boxes[..., :2], boxes[..., 2:]
    # NaN is not equal to 0, so a row with NaN counts as used.
    used = ops.logical_and(labels >= 0, ops.any(boxes != 0.0, axis=-1))
    center = (low + high) / 2
    limit = ops.convert_to_tensor(image_size, dtype="float32")
    inside = ops.all(ops.logical_and(center >= 0.0, center <= limit), axis=-1)
    finite = ops.all(ops.isfinite(boxes), axis=-1)
    tiny = ops.all(ops.logical_and(boxes >= 0.0, boxes <= 1.0), axis=-1)
    # One such box may be what a crop left of an object, two are no accident.
    all_tiny = ops.logical_and(
        ops.all(ops.logical_or(tiny, ops.logical_not(used))),
        ops.sum(ops.cast(used, "int32")) > 1,
    )
    return [
        (
            # A cast cuts 0.7 down to 0: the label of another class.
            given != ops.cast(labels, given.dtype),
            "Labels must be whole numbers",
        ),
        (
            ops.logical_and(labels < BACKGROUND, ops.any(boxes != 0.0, axis=-1)),
            "Labels must count from 0, and be -1 in rows of padding",
        ),
        (
            labels >= num_classes,
            f"Labels must lie below the model's `num_classes`, {num_classes}, and "
            "count from 0",
        ),
        (
            ops.logical_and(used, ops.logical_not(finite)),
            "Boxes must be finite numbers",
        ),
        (
            ops.logical_and(used, ops.any(high < low, axis=-1)),
            "Boxes must be `yxyx`: top, left, bottom, right; here one ends before it "
            "begins",
        ),
        (
            ops.logical_and(used, ops.logical_and(finite, ops.logical_not(inside))),
            "Boxes must be `yxyx` in pixels of the input, of (height, width) "
            f"{tuple(image_size)}; here the center of one lies outside. Are x and y "
            "exchanged, or the boxes those of the image before it was resized?",
        ),
        (
            ops.logical_and(used, all_tiny),
            "Boxes must be in pixels; here all lie between 0 and 1. Multiply them by "
            "the height and width of the input",
        ),
    ]
