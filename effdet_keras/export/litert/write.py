"""A LiteRT (TFLite) file: float or quantised, with or without its postprocess."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from typing import TYPE_CHECKING, Literal

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.detect.detect import Images
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.description import describe
from effdet_keras.export.litert.run import finished, output_names_of
from effdet_keras.export.network import (
    calibration_inputs,
    frozen,
    network_function,
    output_names,
)

if TYPE_CHECKING:
    import pathlib

    from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.box_ops import decode_boxes
from effdet_keras.detect.postprocess import DEFAULT_SCORE_THRESHOLD
from effdet_keras.model.anchors import anchors_of


def write_litert(
    model: EfficientDet,
    path: pathlib.Path,
    *,
    precision: Literal["float32", "float16", "dynamic", "int8"] = "float32",
    outputs: Literal["detections", "raw"] = "detections",
    calibration: DetectionDataset | Images | None = None,
    calibration_images: int = 100,
    output_type: Literal["float32", "uint8"] = "float32",
    batch_size: int = 1,
    max_detections: int | None = None,
    score_threshold: float | None = None,
    iou_threshold: float | None = None,
    per_class: bool = False,
    postprocess_ops: Literal["custom", "builtin"] = "custom",
    int8_scores: bool = False,
) -> None:
    """Writes a `.tflite` file for LiteRT and MediaPipe Tasks.

    The input is `images` `[B, H, W, 3]`, RGB pixels 0-255; uint8 for int8, else
    float32. The outputs, in this order:

    - "detections": `boxes` `[1, D, 4]`, `yxyx` as fractions of the input, not clipped;
      `classes` `[1, D]` from 0; `scores` `[1, D]`; `count` `[1]`: all float32, what
      `TFLite_Detection_PostProcess` computes. Suppression is hard there:
      Gaussian Soft-NMS, the default of `EfficientDet`, does not exist.
    - "raw": `class_logits` `[B, N, C]` and `box_deltas` `[B, N, 4]`

    A segmentation head adds one at the end: `class_map` `[1, H, W]`, int32, or
    `segmentation_logits` `[B, h, w, K]`.

    Class names are inside as MediaPipe's metadata, the description as a zip entry.

    Args:
        model: float32 `EfficientDet`.
        path: `pathlib.Path` of the file to write.
        precision: of the weights: "float32"; "float16", half the size, computed in
            float32 on CPUs; "dynamic", weights in 8 bits, activations rounded
            as they come; "int8", weights and activations in 8 bits.
        outputs: what the file returns: "detections"; or "raw", class logits and box
            deltas of all anchors.
        calibration: images that tell int8 the range of every activation, of the kind
            that the model will see: a `DetectionDataset`, or what `detect` takes. A
            model of `quantize_aware` has learned the ranges, and takes none.
        calibration_images: how many of them are used at most, evenly spread.
        output_type: of the numbers that int8 with "raw" outputs returns: "float32",
            or "uint8", with the scale in the file.
        batch_size: images at once; above 1 for "raw" outputs only.
        max_detections: boxes per image at most; None for the model's own number.
        score_threshold: lowest score to keep; None for the model's own, or 0.01 where
            it has none. The operation takes longer the more anchors are above it.
        iou_threshold: overlap above which a box suppresses another; None for the
            model's own.
        per_class: whether a box suppresses boxes of its own class only, the "regular"
            way of the operation. The default is the "fast" way: a box suppresses
            boxes of all classes. The regular way is slower, and in an interpreter
            of `n` threads, `n > 1`, it loses class `n`
            (https://github.com/tensorflow/tensorflow/issues/56058; it still did in
            ai-edge-litert 2.3.0). Our runtime then takes one thread. With
            "builtin" operations the default is the model's own way.
        postprocess_ops: what detects behind the network: "custom", the operation
            `TFLite_Detection_PostProcess`, the fastest on CPUs and what MediaPipe,
            Coral and Frigate take; "builtin", operations of LiteRT itself, which
            compute the model's own postprocess, Soft-NMS too, and which runtimes
            without custom operations have.
        int8_scores: whether a quantization-aware model's file computes the scores in
            steps of 1/256, as an Edge TPU must. Otherwise they are computed in float
            from int8 logits, which tells more of those near 1 apart. Ranges that are
            found with `calibration` always make int8 scores.

    Raises:
        ValueError: If a number is out of its range, or options contradict each other.
    """
    nms = {
        "max_detections": max_detections,
        "score_threshold": score_threshold,
        "iou_threshold": iou_threshold,
        "per_class": per_class or None,
    }
    nms = {name: value for name, value in nms.items() if value is not None}
    _check_calibration(precision, calibration, model.quantization is not None)
    _check_together(precision, outputs, output_type, batch_size, nms)
    uses_builtin = postprocess_ops == "builtin"
    if uses_builtin and outputs == "detections" and calibration is not None:
        raise InvalidValueError(
            "int8 would round the boxes of `postprocess_ops='builtin'` too. Received: "
            "precision='int8' with `calibration`. Take \"custom\", "
            "precision='float16', or train the model with `quantize_aware`."
        )
    if int8_scores and (uses_builtin or (precision, outputs) != ("int8", "detections")):
        raise InvalidValueError(
            "`int8_scores` goes with precision='int8', outputs='detections' and "
            f"postprocess_ops='custom'. Received: precision={precision!r}, "
            f"outputs={outputs!r}, postprocess_ops={postprocess_ops!r}"
        )
    description = describe(
        model, outputs=outputs, precision=precision, batch_size=batch_size
    )
    if outputs == "detections":
        if uses_builtin:
            postprocess = builtin_postprocess(model.postprocess, **nms)
        else:
            nms["per_class"] = per_class
            postprocess = hard_postprocess(model.postprocess, **nms)
        description = dataclasses.replace(description, postprocess=postprocess)
    inputs = []
    if calibration is not None:
        inputs = calibration_inputs(model.config, calibration, calibration_images)
    learned, float_scores = contextlib.nullcontext(), False
    if precision == "int8" and not inputs:
        learned, float_scores = model.quantization.exporting(), not int8_scores
    with (
        learned,
        _saved(_traced(model, description, uses_builtin, float_scores)) as folder,
    ):
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        converter.allow_custom_ops = not uses_builtin
        if precision != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if precision == "float16":
            converter.target_spec.supported_types = [tf.float16]
        if precision == "int8":
            converter.inference_input_type = tf.uint8
            converter.inference_output_type = tf.as_dtype(output_type)
        if inputs:
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            converter.representative_dataset = lambda: (
                [np.repeat(read()[None], batch_size, 0)] for read in inputs
            )
        content = converter.convert()
    path.write_bytes(finished(content, description))


def _check_calibration(precision, calibration, knows_ranges):
    if precision == "int8" and knows_ranges and calibration is not None:
        raise InvalidValueError(
            "A quantization-aware model has learned the range of every activation: "
            "leave `calibration` out."
        )
    if precision == "int8" and not knows_ranges and calibration is None:
        raise InvalidValueError(
            "int8 needs images of the kind the model will see, to find the range of "
            "every activation. Received: calibration=None. Give a dataset, a folder "
            "or a list of images, such as `calibration=train`; or train the model with "
            "`quantize_aware`."
        )
    if precision != "int8" and calibration is not None:
        raise InvalidValueError(
            "`calibration` is for int8 alone. "
            f"Received: calibration with precision={precision!r}"
        )


def _check_together(precision, outputs, output_type, batch_size, nms):
    if output_type == "uint8" and (precision, outputs) != ("int8", "raw"):
        raise InvalidValueError(
            "`output_type='uint8'` goes with precision='int8' and outputs='raw'. "
            f"Received: precision={precision!r}, outputs={outputs!r}"
        )
    if outputs == "detections" and batch_size != 1:
        raise InvalidValueError(
            "TFLite_Detection_PostProcess takes one image at a time. Received: "
            f"batch_size={batch_size}. Take outputs='raw' for more."
        )
    if batch_size < 1:
        raise InvalidValueError(
            f"`batch_size` must be 1 or more. Received: {batch_size}"
        )
    if outputs == "raw" and nms:
        raise InvalidValueError(
            "Raw outputs have no postprocess to set options of. Received: "
            f"{', '.join(f'{name}={value}' for name, value in nms.items())}"
        )


def _traced(model, description, uses_builtin, float_scores):
    """A module whose `run` is the network, with the postprocess where it is wanted."""
    batch_size = description.batch_size
    module = tf.Module()
    finds = {"finds_classes": description.outputs == "detections"}
    module.network = frozen(network_function(model, batch_size, _repeat, **finds))
    names = output_names(model.config, **finds)
    spec = tf.TensorSpec((batch_size, *model.config.image_size, 3), name="images")

    @tf.function(input_signature=[spec])
    def run(images):
        found = dict(zip(names, module.network(images)))
        if description.outputs == "raw":
            wanted = output_names_of(description)
            return tuple(found[name] for name in wanted)
        results = ()
        if model.config.has_detection and uses_builtin:
            op = builtin_operations(description.postprocess, model.config)
            results = op(found["box_deltas"], found["class_logits"])
        elif model.config.has_detection:
            op = postprocess_op(description.postprocess, model.config)
            logits = found["class_logits"]
            if float_scores:
                # Of int8 logits the converter makes an int8 sigmoid; of a difference,
                # which has no range, it makes none. No logit changes by 1e-30.
                logits = logits - 1e-30
            results = op(found["box_deltas"], tf.sigmoid(logits))
        if model.config.has_segmentation:
            results = (*results, tf.cast(found["class_map"], tf.int32))
        return results

    module.run = run
    return module


@contextlib.contextmanager
def _saved(module):
    """The folder of a SavedModel: other ways to the converter lose the operation."""
    # The gradient of swish cannot be saved, and nobody trains the file.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, module.run, options)
        yield folder


def _repeat(x, times):
    """Repeats rows and columns by operations that XNNPACK has, in one piece."""
    batch, height, width, channels = x.shape
    rows, columns = times
    x = tf.concat([x] * columns, axis=3)  # each pixel, side by side in memory
    x = tf.reshape(x, (batch, height, width * columns, channels))
    x = tf.concat([x] * rows, axis=2)  # each row, the same way
    return tf.reshape(x, (batch, height * rows, width * columns, channels))


# --- The operation `TFLite_Detection_PostProcess`, and the `Postprocess` equal to it.

# The time of the operation grows with the anchors above it: 32 ms for all 49,104 of D0,
# 7 ms for 7,700 of them, 3 ms for 400 (one thread, 90 classes).
_DEFAULT_SCORE_THRESHOLD = 0.01


def hard_postprocess(postprocess, **options):
    """The nearest to a postprocess that the operation can do.

    That is hard suppression, inside each class ("regular") or across all ("fast").
    Boxes outside the input are kept, whatever `drop_empty` says.

    Args:
        postprocess: `Postprocess` of the model.
        **options: fields to replace.

    Returns:
        `Postprocess` that computes what the operation computes.

    Raises:
        ValueError: If an option is wrong.

    Example:
        >>> from effdet_keras.detect.postprocess import Postprocess
        >>> hard = hard_postprocess(Postprocess(), iou_threshold=0.6)
        >>> hard.method, hard.score_threshold, hard.iou_threshold
        ('hard', 0.01, 0.6)
    """
    hard = dataclasses.replace(postprocess, method="hard", drop_empty=False, **options)
    threshold = hard.score_threshold
    if threshold is None:
        threshold = _DEFAULT_SCORE_THRESHOLD
    if not 0 <= threshold <= 1:
        raise InvalidValueError(
            "`score_threshold` must be between 0 and 1. "
            f"Received: score_threshold={threshold}"
        )
    # Across classes, an anchor can keep its best class alone: all have one box.
    top_k = hard.pre_nms_top_k if hard.per_class else 0
    return dataclasses.replace(hard, score_threshold=threshold, pre_nms_top_k=top_k)


def postprocess_op(postprocess, config):
    """The operation as a function to be traced.

    Args:
        postprocess: `Postprocess`, from `hard_postprocess`.
        config: `EfficientDetConfig`.

    Returns:
        Function of `box_deltas` `[1, N, 4]` and `scores` `[1, N, C]`. It returns what
        a LiteRT interpreter puts in its place: `boxes` `[1, D, 4]`, `yxyx` as
        fractions of the input, `classes` `[1, D]`, `scores` `[1, D]`, `count` `[1]`.
        In TensorFlow it returns zeros.
    """
    count = postprocess.max_detections
    anchors = _centers_and_sides(config)

    name = _operation(postprocess, config.num_classes, config.box_scales)

    @tf.function(experimental_implements=name)
    def operation(box_deltas, scores, anchors):
        return (
            tf.zeros((1, count, 4)),
            tf.zeros((1, count)),
            tf.zeros((1, count)),
            tf.zeros((1,)),
        )

    return lambda box_deltas, scores: operation(box_deltas, scores, anchors)


def _operation(postprocess, num_classes, box_scales):
    """Name and attributes, as a `NameAttrList` in protobuf's text form."""
    count = postprocess.max_detections
    attributes = {
        "max_detections": f"i: {count}",
        "max_classes_per_detection": "i: 1",
        "detections_per_class": f"i: {postprocess.max_detections_per_class or count}",
        "num_classes": f"i: {num_classes}",
        "use_regular_nms": f"b: {str(postprocess.per_class).lower()}",
        "nms_score_threshold": f"f: {postprocess.score_threshold}",
        "nms_iou_threshold": f"f: {postprocess.iou_threshold}",
        **{
            name: f"f: {float(scale)}"
            for name, scale in zip(
                ("y_scale", "x_scale", "h_scale", "w_scale"), box_scales
            )
        },
    }
    pairs = (
        f'attr {{ key: "{key}" value {{ {value} }} }}'
        for key, value in attributes.items()
    )
    return f'name: "TFLite_Detection_PostProcess" {" ".join(pairs)}'


def _centers_and_sides(config):
    """Anchors as `(y, x, height, width)`, fractions of the input, `[N, 4]`."""
    low, high = np.split(anchors_of(config), 2, axis=-1)
    anchors = np.concatenate([(low + high) / 2, high - low], axis=-1)
    return (anchors / np.tile(config.image_size, 2)).astype("float32")


# --- `Postprocess` in operations that every LiteRT runtime has: no custom one.

_TOP_K = 5000  # pairs of anchor and class, where a postprocess has no limit
_LOWEST = -3e38  # no score is below it
_ROW = 10  # classes side by side, where classes are kept apart


def builtin_postprocess(postprocess, **options):
    """The nearest to a postprocess that `NON_MAX_SUPPRESSION_V5` can do.

    That has Soft-NMS too. Boxes outside the input are kept, whatever `drop_empty` says.

    Args:
        postprocess: `Postprocess` of the model.
        **options: fields to replace.

    Returns:
        `Postprocess` that computes what the operations compute.

    Raises:
        ValueError: If the postprocess limits the detections of a class.

    Example:
        >>> from effdet_keras.detect.postprocess import Postprocess
        >>> builtin_postprocess(Postprocess(), max_detections=20).method
        'gaussian'
    """
    if postprocess.max_detections_per_class is not None:
        raise InvalidValueError(
            "LiteRT's built-in suppression has no limit for one class. Received: "
            "max_detections_per_class="
            f"{postprocess.max_detections_per_class}. Set `model.postprocess` to one "
            "without it."
        )
    top_k = postprocess.pre_nms_top_k
    top_k = _TOP_K if top_k is None else top_k
    options = {"pre_nms_top_k": top_k, "drop_empty": False, **options}
    return dataclasses.replace(postprocess, **options)


def builtin_operations(postprocess, config):
    """The postprocess as a function to be traced.

    Args:
        postprocess: `Postprocess`, from `builtin_postprocess`.
        config: `EfficientDetConfig`.

    Returns:
        Function of `box_deltas` `[1, N, 4]` and `class_logits` `[1, N, C]`. It returns
        `boxes` `[1, D, 4]`, `yxyx` as fractions of the input, `classes` `[1, D]`,
        `scores` `[1, D]` and `count` `[1]`, all float32, zeros in unused rows.
    """
    anchors = anchors_of(config)
    size = np.tile(config.image_size, 2).astype("float32")

    def operations(box_deltas, class_logits):
        logits, rows, labels = _candidates(class_logits[0], postprocess.pre_nms_top_k)
        labels = tf.cast(labels, tf.float32)
        boxes = decode_boxes(
            tf.gather(box_deltas[0], rows),
            tf.gather(tf.constant(anchors), rows),
            config.box_scales,
        )
        boxes = boxes / size
        picked, scores, count = _suppressed(
            postprocess,
            _kept_apart(boxes, labels) if postprocess.per_class else boxes,
            tf.sigmoid(logits),
        )
        places = tf.range(postprocess.max_detections)
        used = tf.cast(places < count, tf.float32)
        found = (
            tf.gather(boxes, picked) * used[:, None],
            tf.gather(labels, picked) * used,
            scores * used,
        )
        return (*(value[None] for value in found), tf.cast(count, tf.float32)[None])

    return operations


def _candidates(logits, top_k):
    """Logits, rows of the anchors and labels of the best pairs, as `Postprocess`."""
    num_anchors, num_classes = logits.shape
    best = tf.reduce_max(logits, axis=-1)
    if top_k == 0:
        rows = tf.range(num_anchors)
        return best, rows, tf.argmax(logits, axis=-1, output_type=tf.int32)
    _, rows = tf.math.top_k(best, min(top_k, num_anchors))
    pairs = tf.reshape(tf.gather(logits, rows), (-1,))
    values, places = tf.math.top_k(pairs, min(top_k, pairs.shape[0]))
    labels = tf.math.floormod(places, num_classes)
    return values, tf.gather(rows, places // num_classes), labels


def _kept_apart(boxes, labels):
    """Boxes moved so far that those of two classes never meet.

    In rows of ten: the larger the number of a place, the fewer its digits.
    """
    step = tf.reduce_max(boxes) - tf.reduce_min(boxes)
    down = tf.math.floor(labels / _ROW)
    move = tf.stack([down, labels - down * _ROW], axis=-1) * step
    return boxes + tf.concat([move, move], axis=-1)


def _suppressed(postprocess, boxes, scores):
    threshold = postprocess.score_threshold
    if threshold is None:
        threshold = DEFAULT_SCORE_THRESHOLD[postprocess.method]
    is_soft = postprocess.method == "gaussian"
    return tf.raw_ops.NonMaxSuppressionV5(
        boxes=boxes,
        scores=scores,
        max_output_size=postprocess.max_detections,
        iou_threshold=1.0 if is_soft else postprocess.iou_threshold,
        score_threshold=max(threshold, _LOWEST),
        # Its weight is exp(-iou^2 / 2 sigma), ours exp(-iou^2 / sigma).
        soft_nms_sigma=postprocess.sigma / 2 if is_soft else 0.0,
        pad_to_max_output_size=True,
    )
