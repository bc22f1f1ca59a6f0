"""Core ML: an `.mlpackage` that Apple's Vision accepts as an object detector.

It is a pipeline of two models. The network is an ML program from the image to the boxes
and scores of all anchors. The second model is Core ML's own non-maximum suppression.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import warnings

import numpy as np

from effdet_keras import box_ops
from effdet_keras._internal.optional_imports import (
    coreml_models,
    coremltools,
    mil,
    mil_files,
    onnxruntime,
)
from effdet_keras.detect.postprocess import non_max_suppression
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.onnx_network import network_of_planes
from effdet_keras.export.registry import Written
from effdet_keras.export.runtime import (
    DESCRIPTION_NAME,
    Description,
    Runtime,
    labels_of,
)
from effdet_keras.extras.targets.mil_graph import add_network, onnx_of_program
from effdet_keras.extras.targets.tflite import require_detection_alone
from effdet_keras.labels import BACKGROUND

MODEL_NAME = "model.mlpackage"
_IMAGE, _SCORES, _BOXES = "image", "confidence", "coordinates"
_RAW = "raw_"  # prefix of both names before suppression
_THRESHOLDS = {"iouThreshold": "iou_threshold", "confidenceThreshold": "lowest_score"}
_DECODING = "decoding"  # prefix of the names of operations that stay in float32
# Larger sides than e**8 anchors do not occur in images, and float16 cannot hold them.
_MAX_LOG_SIDE = 8.0


def write_coreml(
    model,
    folder,
    path,
    *,
    precision="float16",
    score_threshold=None,
    iou_threshold=None,
):
    """Writes `model.mlpackage` for iOS 15, macOS 12 and later.

    A box suppresses other boxes with the same best class, whatever the model's
    `postprocess` does, because Core ML's suppression supports nothing else.
    """
    require_detection_alone(model, "coreml")
    with _quiet():
        coremltools.require("Core ML export")
    file, description = network_of_planes(model)
    description = dataclasses.replace(
        description,
        precision=precision,
        outputs="detections",
        postprocess=_postprocess(model.postprocess, score_threshold, iou_threshold),
    )
    with _quiet():
        network = _network(model, file.graph, precision)
        spec = _pipeline(network.get_spec(), description, len(model.anchors))
        package = coremltools.models.MLModel(
            spec, weights_dir=network.weights_dir, skip_model_load=True
        )
        package.save(str(folder / MODEL_NAME))
        runtime = CoreMLCheck(folder / MODEL_NAME)
    note = f"  add {path / MODEL_NAME} to a project in Xcode"
    return Written(folder / MODEL_NAME, "coreml", (note,), runtime)


def _postprocess(postprocess, score_threshold, iou_threshold):
    """Returns the model's postprocess as in Core ML: hard NMS, one class per box."""
    if score_threshold is None:
        score_threshold = max(postprocess.lowest_score, 0.0)
    if iou_threshold is None:
        iou_threshold = postprocess.iou_threshold
    return dataclasses.replace(
        postprocess,
        method="hard",
        per_class=True,
        pre_nms_top_k=0,
        max_detections_per_class=None,
        clip=False,
        drop_empty=False,
        score_threshold=score_threshold,
        iou_threshold=iou_threshold,
    )


@contextlib.contextmanager
def _quiet():
    """Returns a context that hides coremltools' version warnings and progress bars."""
    logger = logging.getLogger("coremltools")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        shown = contextlib.redirect_stderr(io.StringIO())
        with shown, warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)


# --- The network, an ML program.


def _network(model, graph, precision):
    """Returns the `MLModel` from an image to scores `[N, C]` and boxes `[N, 4]`."""
    shape = (1, 3, *model.config.image_size)

    @mil.Builder.program(
        input_specs=[mil.Builder.TensorSpec(shape=shape)],
        opset_version=coremltools.target.iOS15,
    )
    def program(image):
        raw = add_network(graph, image)
        return _scores(raw["class_logits"]), _boxes(raw["box_deltas"], model)

    (image,) = program.functions["main"].inputs
    half = coremltools.transform.FP16ComputePrecision(
        op_selector=lambda operation: not operation.name.startswith(_DECODING)
    )
    whole = coremltools.precision.FLOAT32
    return coremltools.convert(
        program,
        convert_to="mlprogram",
        inputs=[
            coremltools.ImageType(
                name=image, shape=shape, color_layout=coremltools.colorlayout.RGB
            )
        ],
        compute_precision=half if precision == "float16" else whole,
        minimum_deployment_target=coremltools.target.iOS15,
        skip_model_load=True,
        pass_pipeline=coremltools.PassPipeline.DEFAULT,
    )


def _scores(class_logits):
    """Returns scores `[N, C]`, with 0 for all classes except the best of each row.

    Vision uses the sum of a row as the confidence that there is an object. So the sum
    must not be above 1 (NonMaximumSuppression.proto of coremltools). Of several classes
    with the same logit the first one is the best.
    """
    build = mil.Builder
    _, num_anchors, num_classes = class_logits.shape
    logits = build.reshape(x=class_logits, shape=np.int32([num_anchors, num_classes]))
    best = build.reduce_argmax(x=logits, axis=1, keep_dims=False)
    is_best = build.one_hot(
        indices=best, one_hot_vector_size=num_classes, on_value=1.0, off_value=0.0
    )
    return build.mul(x=build.sigmoid(x=logits), y=is_best, name=_RAW + _SCORES)


def _boxes(box_deltas, model):
    """Decodes boxes `[N, 4]`: x, y (center), width, height, fractions of the input."""
    build, config = mil.Builder, model.config
    anchors = np.asarray(model.anchors, "float32")
    sides = np.maximum(anchors[:, 2:] - anchors[:, :2], box_ops.MIN_SIDE)
    centers = anchors[:, :2] + (anchors[:, 2:] - anchors[:, :2]) / 2
    size = np.float32(config.image_size)
    flat = build.reshape(x=box_deltas, shape=np.int32([len(anchors), 4]))
    columns = []
    for axis in (1, 0, 3, 2):  # x, y, width, height of y, x, height, width
        name = f"{_DECODING}_{axis}"
        code = build.slice_by_index(
            x=flat, begin=[0, axis], end=[len(anchors), axis + 1], name=f"{name}_code"
        )
        scale = np.float32(1 / config.box_scales[axis])
        code = build.mul(x=code, y=scale, name=f"{name}_scaled")
        side = (sides[:, axis % 2] / size[axis % 2])[:, None]
        if axis < 2:
            center = (centers[:, axis] / size[axis])[:, None]
            shift = build.mul(x=code, y=side, name=f"{name}_shift")
            columns.append(build.add(x=shift, y=center, name=f"{name}_center"))
        else:
            limit = np.float32(_MAX_LOG_SIDE)
            growth = build.minimum(x=code, y=limit, name=f"{name}_growth")
            factor = build.exp(x=growth, name=f"{name}_factor")
            columns.append(build.mul(x=factor, y=side, name=f"{name}_side"))
    # The prefix "decoding" keeps this operation in float32 too; the output is renamed.
    name = f"{_DECODING}_{_RAW}{_BOXES}"
    return build.concat(values=columns, axis=1, name=name)


# --- The pipeline of the network and Core ML's suppression.


def _pipeline(network, description, num_boxes):
    """Returns the `Model` of both, from an image to `confidence` and `coordinates`."""
    config, post = description.config, description.postprocess
    (image,), outputs = network.description.input, network.description.output
    for feature, name in zip(outputs, (_SCORES, _BOXES)):
        coremltools.utils.rename_feature(network, feature.name, _RAW + name)
    coremltools.utils.rename_feature(network, image.name, _IMAGE)
    columns = {_RAW + _SCORES: config.num_classes, _RAW + _BOXES: 4}
    for feature in outputs:
        feature.type.multiArrayType.shape[:] = [num_boxes, columns[feature.name]]
    suppression = _suppression(network, description)

    spec = coreml_models.Model()
    spec.specificationVersion = network.specificationVersion
    spec.description.input.append(network.description.input[0])
    for name, field in _THRESHOLDS.items():
        feature = spec.description.input.add(name=name)
        feature.type.doubleType.SetInParent()
        feature.type.isOptional = True
        feature.shortDescription = f"optional; {getattr(post, field)} by default"
    spec.description.output.extend(suppression.description.output)
    texts = spec.description.metadata
    texts.shortDescription = f"{config.name}, an object detector"
    texts.userDefined[DESCRIPTION_NAME] = description.to_json()
    texts.userDefined["classes"] = ",".join(labels_of(description))
    spec.pipeline.names.extend(["network", "suppression"])
    spec.pipeline.models.extend([network, suppression])
    return spec


def _suppression(network, description):
    """Returns the `Model` of non-maximum suppression."""
    post = description.postprocess
    spec = coreml_models.Model()
    spec.specificationVersion = network.specificationVersion
    stage = spec.nonMaximumSuppression
    stage.pickTop.perClass = True
    stage.stringClassLabels.vector.extend(labels_of(description))
    stage.iouThreshold = post.iou_threshold
    stage.confidenceThreshold = post.lowest_score
    stage.iouThresholdInputFeatureName = "iouThreshold"
    stage.confidenceThresholdInputFeatureName = "confidenceThreshold"
    stage.confidenceInputFeatureName = _RAW + _SCORES
    stage.coordinatesInputFeatureName = _RAW + _BOXES
    stage.confidenceOutputFeatureName = _SCORES
    stage.coordinatesOutputFeatureName = _BOXES
    about = {
        _SCORES: f"the scores of {', '.join(labels_of(description))}",
        _BOXES: "x and y of the center, width and height, as fractions of the image",
    }
    for feature in network.description.output:
        spec.description.input.append(feature)
        name = feature.name.removeprefix(_RAW)
        columns = feature.type.multiArrayType.shape[1]
        output = spec.description.output.add(name=name, shortDescription=about[name])
        kind = output.type.multiArrayType
        kind.dataType = feature.type.multiArrayType.dataType
        kind.shapeRange.sizeRanges.add(lowerBound=0, upperBound=-1)
        kind.shapeRange.sizeRanges.add(lowerBound=columns, upperBound=columns)
    return spec


# --- The check, which computes the stored file without Core ML.


class CoreMLCheck(Runtime):
    """Runs a package: its program in ONNX Runtime, its suppression in NumPy."""

    package = onnxruntime

    def __init__(self, path):
        self.path = path
        package = coremltools.models.MLModel(str(path), skip_model_load=True)
        spec = package.get_spec()
        texts = spec.description.metadata.userDefined
        self.description = Description.from_json(texts[DESCRIPTION_NAME])
        network, suppression = spec.pipeline.models
        self._stage = suppression.nonMaximumSuppression
        _check_specification(spec, self.description)
        program = mil_files.load(
            network, network.specificationVersion, package.weights_dir
        )
        content = onnx_of_program(program).SerializeToString()
        self._session = onnxruntime.InferenceSession(
            content, providers=["CPUExecutionProvider"]
        )

    def run(self, images):
        """See `Runtime.run`."""
        return _concatenated(
            [self._found(image) for image in np.asarray(images, "float32")]
        )

    def _found(self, image):
        """Returns the detections of one image, each value with a batch axis of 1."""
        (given,) = self._session.get_inputs()
        planes = np.ascontiguousarray(image.transpose(2, 0, 1)[None])
        names = [_RAW + _SCORES, _RAW + _BOXES]
        scores, boxes = self._session.run(names, {given.name: planes})
        height, width = self.description.config.image_size
        boxes = box_ops.xywh_to_yxyx(boxes - boxes[:, [2, 3, 2, 3]] * _TO_CORNER)
        boxes *= np.float32([height, width, height, width])
        labels, best = scores.argmax(axis=1), scores.max(axis=1)
        count = self.description.postprocess.max_detections
        picked, kept, used = non_max_suppression(
            boxes[None],
            best[None],
            labels.astype("int32")[None],
            max_detections=count,
            score_threshold=self._stage.confidenceThreshold,
            iou_threshold=self._stage.iouThreshold,
            method="hard",
            sigma=1.0,
        )
        is_used = np.arange(count) < used[:, None]
        return {
            "boxes": np.where(is_used[..., None], boxes[picked], np.float32(0)),
            "scores": kept,
            "labels": np.where(is_used, labels[picked], BACKGROUND).astype("int32"),
            "num_detections": used,
        }


_TO_CORNER = np.float32([0.5, 0.5, 0, 0])  # share of the sides from center to corner


def _concatenated(found):
    return {name: np.concatenate([one[name] for one in found]) for name in found[0]}


def _check_specification(spec, description):
    """Raises an error if Vision would not accept a pipeline as an object detector."""
    network, suppression = spec.pipeline.models
    image = spec.description.input[0].type.imageType
    outputs = [feature.name for feature in spec.description.output]
    given = [feature.name for feature in network.description.output]
    stage = suppression.nonMaximumSuppression
    labels = tuple(stage.stringClassLabels.vector)
    is_right = (
        (image.height, image.width) == description.config.image_size
        and outputs == [_SCORES, _BOXES]
        and set(given) == {_RAW + _SCORES, _RAW + _BOXES}
        and labels == labels_of(description)
        and [f.name for f in spec.description.input[1:]] == list(_THRESHOLDS)
    )
    if not is_right:
        raise InvalidValueError(
            "The Core ML specification is not that of an object detector. Received: "
            f"image={image.height}x{image.width}, outputs={outputs}, labels={labels}"
        )
