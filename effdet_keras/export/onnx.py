"""ONNX: files from letterboxed images to detections or raw outputs; ONNX Runtime."""

from __future__ import annotations

import dataclasses
import os
import pathlib

import numpy as np

from effdet_keras import box_ops
from effdet_keras._internal.backend import runs_on_tensorflow
from effdet_keras._internal.checksum import (
    CHECKSUM_NAME,
    WITHOUT_CHECKSUM,
    write_checksum,
)
from effdet_keras._internal.optional_imports import onnx, onnxruntime, tf2onnx
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._version import __version__
from effdet_keras.detect.postprocess import MIN_AREA
from effdet_keras.errors import check_argument, require
from effdet_keras.export.network import network_function
from effdet_keras.export.network_graph import network_graph
from effdet_keras.export.runtime import (
    DESCRIPTION_NAME,
    Description,
    Runtime,
    as_input,
    describe,
    require_sealed,
)

_OPSET = 17  # the default; 13 to 18 are supported


def write_onnx(
    model,
    path,
    *,
    outputs="detections",
    batch_size=None,
    postprocess=None,
    input_dtype="float32",
    opset=None,
):
    """Writes an ONNX file, and returns its description; see docs/export_onnx.md."""
    is_size = batch_size is None or batch_size >= 1
    check_argument(is_size, "batch_size", batch_size, "1 or more, or None for any")
    opset = opset or _OPSET
    onnx.require("ONNX export")
    detects = outputs == "detections"
    # With raw outputs, the program that reads the file does the postprocessing.
    postprocess = postprocess or model.postprocess
    description = describe(
        model,
        outputs=outputs,
        batch_size=batch_size,
        postprocess=exportable(postprocess) if detects else postprocess,
    )
    convert = _by_tensorflow if runs_on_tensorflow() else _by_keras
    file = convert(model, batch_size, opset, finds_classes=detects)
    _prepend_transpose(file.graph, input_dtype)
    if detects and model.config.has_detection:
        tail = onnx_postprocess(
            description.postprocess, model.anchors, model.config, opset
        )
        others = [x for x in file.graph.output if x.name == "class_map"]
        file.graph.node.extend(tail.node)
        file.graph.initializer.extend(tail.initializer)
        del file.graph.output[:]
        file.graph.output.extend([*tail.output, *others])
    _set_shapes(file.graph, description)
    file.producer_name, file.producer_version = "effdet_keras", __version__
    file.graph.name = model.config.name
    properties = {DESCRIPTION_NAME: description.to_json()}
    if model.class_names is not None:
        properties["names"] = str(dict(enumerate(model.class_names)))
    onnx.helper.set_model_props(file, {**properties, CHECKSUM_NAME: WITHOUT_CHECKSUM})
    onnx.checker.check_model(file)
    path.write_bytes(file.SerializeToString())
    write_checksum(path)
    return description


def _by_tensorflow(model, batch_size, opset, **options):
    """Converts the network to an `onnx.ModelProto` of `[B, 3, H, W]`, with tf2onnx."""
    tf2onnx.require("ONNX export on TensorFlow")
    # Batch norms are folded here, because a tool that reads the file may fold the batch
    # norm of one level into a kernel that all levels of a head share.
    network = network_function(model, batch_size, _resize, folds=True, **options)
    file, _ = tf2onnx.convert.from_function(
        network,
        input_signature=network.input_signature,
        opset=opset,
        inputs_as_nchw=["images"],
    )
    return file


def _by_keras(model, batch_size, opset, **options):
    """Does the same on JAX and torch, from the graph of Keras operations."""
    helper, network = onnx.helper, network_graph(model, batch_size, **options)
    nodes = [
        helper.make_node(op_type, inputs, outputs, name, **attributes)
        for op_type, name, inputs, outputs, attributes in network.nodes
    ]

    def value(name, shape, dtype):
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, kind, shape)

    planes = value("images", (batch_size, 3, *model.config.image_size), "float32")
    outputs = [value(name, *about) for name, about in network.outputs.items()]
    arrays = network.arrays.items()
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in arrays]
    graph = helper.make_graph(nodes, "network", [planes], outputs, constants)
    versions = [helper.make_opsetid("", opset)]
    ir_version = helper.find_min_ir_version_for(versions)
    return helper.make_model(graph, opset_imports=versions, ir_version=ir_version)


def _resize(x, times):
    """Repeats rows and columns without half-pixel centers, which ONNX does not have."""
    size = [length * count for length, count in zip(x.shape[1:3], times)]
    return tf.raw_ops.ResizeNearestNeighbor(images=x, size=size)


def _prepend_transpose(graph, input_dtype):
    """Makes a graph of images `[B, 3, H, W]` accept `[B, H, W, 3]`, float or uint8."""
    # In this order, the graph applies mean and standard deviation to whole planes
    # instead of interleaved channels. This saves 6 ms of D0's 86 ms at 512 pixels in
    # onnxruntime.
    inner = "images_nchw"
    for node in graph.node:
        node.input[:] = [inner if name == "images" else name for name in node.input]
    transpose = onnx.helper.make_node(
        "Transpose", ["images"], [inner], name="transpose_images", perm=[0, 3, 1, 2]
    )
    graph.node.insert(0, transpose)
    if input_dtype == "uint8":
        kinds, (images,) = onnx.TensorProto, graph.input
        images.type.tensor_type.elem_type = kinds.UINT8
        transpose.output[:] = ["images_nchw_uint8"]
        graph.node[0].CopyFrom(transpose)
        cast = onnx.helper.make_node(
            "Cast", transpose.output, [inner], name="cast_images", to=kinds.FLOAT
        )
        graph.node.insert(1, cast)


def _set_shapes(graph, description):
    """Sets the known shapes of input and outputs, and the name of the batch axis."""
    config, post = description.config, description.postprocess
    batch = description.batch_size or "batch"
    shapes = {
        "images": (*config.image_size, 3),
        "boxes": (post.max_detections, 4),
        "scores": (post.max_detections,),
        "labels": (post.max_detections,),
        "num_detections": (),
        "class_map": config.image_size,
    }
    for value in [*graph.input, *graph.output]:
        kind = value.type.tensor_type
        known = [axis.dim_value for axis in kind.shape.dim][1:]
        shape = (batch, *shapes.get(value.name, known))
        value.CopyFrom(
            onnx.helper.make_tensor_value_info(value.name, kind.elem_type, shape)
        )


# --- `Postprocess` as ONNX nodes, which follow the network in a file with detections.

POSTPROCESS = "postprocess/"  # prefix of the names of these nodes
_TOP_K = 5000  # the number of candidates if the postprocess has no limit

_GRAPH = """
postprocess (float[B, N, C] class_logits, float[B, N, 4] box_deltas)
  => (float[B, D, 4] boxes, float[B, D] scores, int32[B, D] labels,
      int32[B] num_detections)
"""

# With opset 18, the axes of this node became an input.
_BEST_LOGIT_17 = """
  best_logit = ReduceMax <axes: ints = [2], keepdims: int = 0> (class_logits)
"""
_BEST_LOGIT_18 = """
  best_logit = ReduceMax <keepdims: int = 0> (class_logits, axis_2)
"""

# The best `K` of all pairs of anchor and class are on the best `K` anchors.
_BEST_PAIRS = """
  anchor_logit, anchor_place = TopK <axis: int = 1> (best_logit, num_anchors_kept)
  anchor_column = Unsqueeze (anchor_place, axis_2)
  pairs = GatherND <batch_dims: int = 1> (class_logits, anchor_column)
  flat_pairs = Reshape (pairs, flat)
  logits, pair_place = TopK <axis: int = 1> (flat_pairs, num_candidates)
  label = Mod (pair_place, num_classes)
  pair_row = Div (pair_place, num_classes)
  anchor = GatherElements <axis: int = 1> (anchor_place, pair_row)
  anchor_of_candidate = Unsqueeze (anchor, axis_2)
  deltas = GatherND <batch_dims: int = 1> (box_deltas, anchor_of_candidate)
  centers = Gather (anchor_centers, anchor)
  sides = Gather (anchor_sides, anchor)
"""

_BEST_CLASSES = """
  logits = Identity (best_logit)
  label = ArgMax <axis: int = 2, keepdims: int = 0> (class_logits)
  deltas = Identity (box_deltas)
  centers = Identity (anchor_centers)
  sides = Identity (anchor_sides)
"""

_CANDIDATES = """
  candidate_scores = Sigmoid (logits)
  candidate_labels = Cast <to: int = 6> (label)
  candidates = Concat <axis: int = -1> (lows, highs)
"""

# A box suppresses boxes of the same group.
_PER_CLASS = """
  group = Identity (candidate_labels)
"""
_ACROSS_CLASSES = """
  group = Sub (candidate_labels, candidate_labels)
"""

# Gaussian NMS. Each step of the loop selects one box and lowers the scores of the
# others. It also determines whether there is another step. The selected boxes and
# scores of all steps are stacked.
_SOFT = """
  y_min = Gather <axis: int = 2> (candidates, index_0)
  x_min = Gather <axis: int = 2> (candidates, index_1)
  y_max = Gather <axis: int = 2> (candidates, index_2)
  x_max = Gather <axis: int = 2> (candidates, index_3)
  inner_height = Sub (y_max, y_min)
  inner_width = Sub (x_max, x_min)
  height = Relu (inner_height)
  width = Relu (inner_width)
  area = Mul (height, width)
  first = ArgMax <axis: int = 1, keepdims: int = 1> (candidate_scores)
  first_score = GatherElements <axis: int = 1> (candidate_scores, first)
  last, last_next, last_best, steps, step_scores = Loop <
    body: graph = step (
      int64 i, bool more, float[B, K] now, int64[B, 1] taken, float[B, 1] best
    ) => (
      bool go_on, float[B, K] left, int64[B, 1] next, float[B, 1] next_best,
      int64[B, 1] step_taken, float[B, 1] step_best
    ) {
      step_taken = Identity (taken)
      step_best = Identity (best)
      y_min_taken = GatherElements <axis: int = 1> (y_min, taken)
      x_min_taken = GatherElements <axis: int = 1> (x_min, taken)
      y_max_taken = GatherElements <axis: int = 1> (y_max, taken)
      x_max_taken = GatherElements <axis: int = 1> (x_max, taken)
      area_taken = GatherElements <axis: int = 1> (area, taken)
      group_taken = GatherElements <axis: int = 1> (group, taken)
      top = Max (y_min, y_min_taken)
      left_side = Max (x_min, x_min_taken)
      bottom = Min (y_max, y_max_taken)
      right_side = Min (x_max, x_max_taken)
      shared_height = Sub (bottom, top)
      shared_width = Sub (right_side, left_side)
      rows = Relu (shared_height)
      columns = Relu (shared_width)
      shared = Mul (rows, columns)
      both = Add (area, area_taken)
      only_once = Sub (both, shared)
      union = Max (only_once, min_area)
      any_iou = Div (shared, union)
      is_rival = Equal (group, group_taken)
      iou = Where (is_rival, any_iou, zero)
      square = Mul (iou, iou)
      exponent = Mul (square, minus_one_by_sigma)
      decay = Exp (exponent)
      lowered = Mul (now, decay)
      out = Add (best, minus_infinity)
      left = ScatterElements <axis: int = 1> (lowered, taken, out)
      next = ArgMax <axis: int = 1, keepdims: int = 1> (left)
      next_best = GatherElements <axis: int = 1> (left, next)
      best_of_all = ReduceMax <keepdims: int = 0> (next_best)
      go_on = Greater (best_of_all, score_threshold)
    }
  > (max_detections, yes, candidate_scores, first, first_score)
  steps_last = Squeeze (steps, axis_2)
  scores_last = Squeeze (step_scores, axis_2)
  short_picked = Transpose <perm: ints = [1, 0]> (steps_last)
  short_scores = Transpose <perm: ints = [1, 0]> (scores_last)
  steps_shape = Shape (steps)
  num_steps = Gather (steps_shape, axis_0)
  num_missing = Sub (max_detections, num_steps)
  missing = Concat <axis: int = 0> (no_padding, num_missing)
  picked = Pad (short_picked, missing, index_0)
  picked_scores = Pad (short_scores, missing, minus_infinity)
"""

# Hard NMS. The node needs a score per class; the scores of other classes are -1.
_HARD = """
  group_row = Unsqueeze (group, axis_1)
  score_row = Unsqueeze (candidate_scores, axis_1)
  is_own = Equal (group_row, all_groups)
  scores_of_groups = Where (is_own, score_row, minus_one)
  kept = NonMaxSuppression (candidates, scores_of_groups, max_of_group, iou_threshold,
                            score_threshold)
  kept_place = Gather <axis: int = 1> (kept, image_and_candidate)
  kept_scores = GatherND (candidate_scores, kept_place)
  shape = Shape (candidate_scores)
  nothing = Expand (minus_one, shape)
  scores_if_kept = ScatterND (nothing, kept_place, kept_scores)
  enough_scores = Pad (scores_if_kept, padding_for_all, minus_one)
  picked_scores, any_picked = TopK <axis: int = 1> (enough_scores, num_picked)
  picked = Min (any_picked, last_candidate)
"""

_RESULT = """
  used = Greater (picked_scores, score_threshold)
  scores = Where (used, picked_scores, zero)
  picked_column = Unsqueeze (picked, axis_2)
  used_column = Unsqueeze (used, axis_2)
  picked_boxes = GatherND <batch_dims: int = 1> (candidates, picked_column)
  inside_low = Max (picked_boxes, low)
  inside = Min (inside_low, high)
  boxes = Where (used_column, inside, zero)
  picked_labels = GatherElements <axis: int = 1> (candidate_labels, picked)
  labels = Where (used, picked_labels, no_label)
  used_count = Cast <to: int = 6> (used)
  num_detections = ReduceSum <keepdims: int = 0> (used_count, axis_1)
"""


def exportable(postprocess):
    """Returns the nearest equivalent of a postprocess that ONNX nodes can compute.

    Raises:
        ValueError: If Soft-NMS has a limit of detections per class.
    """
    limit = postprocess.max_detections_per_class
    is_limited = limit is not None and limit < postprocess.max_detections
    rule = (
        "An ONNX file cannot have Soft-NMS with a limit per class: export with "
        "`outputs='raw'`"
    )
    is_right = postprocess.method == "hard" or not is_limited
    require(is_right, rule, max_detections_per_class=limit)
    top_k = postprocess.pre_nms_top_k
    top_k = _TOP_K if top_k is None else top_k
    return dataclasses.replace(postprocess, drop_empty=False, pre_nms_top_k=top_k)


def onnx_postprocess(postprocess, anchors, config, opset=_OPSET):
    """Returns a `Postprocess` as an `onnx.GraphProto`, without its handling of NaN."""
    text = "".join(
        [
            _BEST_LOGIT_17 if opset < 18 else _BEST_LOGIT_18,
            _BEST_PAIRS if postprocess.pre_nms_top_k else _BEST_CLASSES,
            decoding_nodes("deltas", "centers", "sides"),
            _CANDIDATES,
            _PER_CLASS if postprocess.per_class else _ACROSS_CLASSES,
            _HARD if postprocess.method == "hard" else _SOFT,
            _RESULT,
        ]
    )
    graph = onnx.parser.parse_graph(f"{_GRAPH}{{{text}}}")
    used = {name for node in all_nodes_of(graph) for name in node.input}
    for name, value in _constants(postprocess, anchors, config).items():
        if name in used:
            graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    own = {value.name for value in [*graph.input, *graph.output]}
    rename_values(graph, lambda name: name if name in own else f"{POSTPROCESS}{name}")
    for node in all_nodes_of(graph):
        node.name = f"{POSTPROCESS}{node.output[0].removeprefix(POSTPROCESS)}"
    return graph


def decoding_nodes(deltas, centers, sides):
    """Returns the text of nodes that decode boxes.

    The arguments are names of values: `deltas` `[..., 4]`, `centers` and `sides`
    `[..., 2]`. The nodes compute `lows` and `highs` `[..., 2]`. They need the
    `decoding_constants`.
    """
    return f"""
  codes = Div ({deltas}, box_scales)
  shifts, growths = Split <axis: int = -1> (codes, halves)
  scaled_shifts = Mul (shifts, {sides})
  new_centers = Add (scaled_shifts, {centers})
  limited_growths = Min (growths, max_log_side)
  factors = Exp (limited_growths)
  new_sides = Mul (factors, {sides})
  half_sides = Div (new_sides, two)
  lows = Sub (new_centers, half_sides)
  highs = Add (new_centers, half_sides)
"""


def decoding_constants(anchors, config, max_log_side=box_ops.MAX_LOG_SIDE):
    """Returns constants of `decoding_nodes`, and anchor centers and sides, by name."""
    low, high = anchors[:, :2], anchors[:, 2:]
    floats = {
        "anchor_centers": low + (high - low) / 2,
        "anchor_sides": np.maximum(high - low, box_ops.MIN_SIDE),
        "box_scales": config.box_scales,
        "max_log_side": max_log_side,
        "two": 2.0,
    }
    arrays = {name: np.asarray(value, "float32") for name, value in floats.items()}
    return {**arrays, "halves": np.asarray([2, 2], "int64")}


def all_nodes_of(graph):
    """Yields all nodes of a graph, including those inside loops."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from all_nodes_of(attribute.g)


def rename_values(graph, new_name):
    """Renames all values of a graph, including those inside loops."""
    for node in graph.node:
        node.input[:] = map(new_name, node.input)
        node.output[:] = map(new_name, node.output)
        for attribute in node.attribute:
            rename_values(attribute.g, new_name)
    for value in [*graph.input, *graph.output, *graph.initializer]:
        value.name = new_name(value.name)


def _constants(postprocess, anchors, config):
    """Returns the constants of the ONNX postprocessing graph, as arrays by name."""
    num_anchors, num_classes = len(anchors), config.num_classes
    top_k = postprocess.pre_nms_top_k or num_anchors
    num_anchors_kept = min(top_k, num_anchors)
    num_candidates = num_anchors
    if postprocess.pre_nms_top_k:
        num_candidates = min(top_k, num_anchors_kept * num_classes)
    limits = [config.image_size * 2] if postprocess.clip else [[np.inf] * 4]
    threshold = postprocess.lowest_score
    if postprocess.method == "hard":
        threshold = max(threshold, -0.5)  # between -1, "no score", and any score
    num_groups = num_classes if postprocess.per_class else 1
    max_detections = postprocess.max_detections
    floats = {
        "min_area": MIN_AREA,
        "minus_one_by_sigma": -1 / postprocess.sigma,
        "iou_threshold": postprocess.iou_threshold,
        "score_threshold": threshold,
        "low": 0.0 if postprocess.clip else -np.inf,
        "high": limits,
        "zero": 0.0,
        "minus_one": -1.0,
        "minus_infinity": -np.inf,
    }
    integers = {
        "num_classes": num_classes,
        "num_anchors_kept": [num_anchors_kept],
        "num_candidates": [num_candidates],
        "last_candidate": num_candidates - 1,
        "max_detections": max_detections,
        "max_of_group": postprocess.max_detections_per_class or max_detections,
        "num_picked": [max_detections],
        "padding_for_all": [0, 0, 0, max_detections],
        "no_padding": [0, 0, 0],
        "flat": [0, -1],
        "image_and_candidate": [0, 2],
        **{f"axis_{axis}": [axis] for axis in range(3)},
        **{f"index_{index}": index for index in range(4)},
    }
    return {
        **decoding_constants(anchors, config),
        **{name: np.asarray(value, "float32") for name, value in floats.items()},
        **{name: np.asarray(value, "int64") for name, value in integers.items()},
        "all_groups": np.arange(num_groups, dtype="int32")[None, :, None],
        "no_label": np.asarray(-1, "int32"),
        "yes": np.asarray(True),
    }


# --- ONNX Runtime.

# Execution providers in order of preference, with their options. On GPUs that support
# TF32, CUDA uses it by default. It is faster, but so inexact that a check could not
# distinguish its errors from a fault.
_PROVIDERS = {"CUDAExecutionProvider": {"use_tf32": "0"}, "CPUExecutionProvider": {}}


class ONNXRuntime(Runtime):
    """Runs an ONNX file of `EfficientDet.export`, on a GPU if onnxruntime has one."""

    package = onnxruntime

    def __init__(self, path, num_threads=None):
        self.path = pathlib.Path(path)
        require_sealed(self.path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads or 0
        options.log_severity_level = 3  # errors
        available = onnxruntime.get_available_providers()
        self._session = onnxruntime.InferenceSession(
            os.fspath(path),
            options,
            providers=[item for item in _PROVIDERS.items() if item[0] in available],
        )
        properties = self._session.get_modelmeta().custom_metadata_map
        self.description = Description.from_json(properties[DESCRIPTION_NAME])
        self._names = [output.name for output in self._session.get_outputs()]
        (source,) = self._session.get_inputs()
        self.input_dtype = "uint8" if source.type == "tensor(uint8)" else "float32"

    def run(self, images):
        """See `Runtime.run`."""
        images = as_input(images, self.input_dtype)
        return dict(zip(self._names, self._session.run(None, {"images": images})))
