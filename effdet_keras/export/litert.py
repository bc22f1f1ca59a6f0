"""LiteRT (TFLite): writes float or quantized files, and runs them."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import os
import pathlib
import tempfile
import threading
import zipfile

import numpy as np

from effdet_keras._internal.backend import require_tensorflow, runs_on_tensorflow
from effdet_keras._internal.optional_imports import (
    ai_edge_litert,
    flexbuffers,
    tflite_files,
    tflite_schema,
)
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.unpacking import open_zip
from effdet_keras.box_ops import clip_boxes
from effdet_keras.errors import InvalidValueError, check_argument, require
from effdet_keras.export.litert_graph import litert_model
from effdet_keras.export.network import (
    CALIBRATION_IMAGES,
    calibration_inputs,
    check_calibration,
    frozen,
    network_function,
    output_names,
    save_function,
)
from effdet_keras.export.network_graph import network_graph
from effdet_keras.export.runtime import (
    DESCRIPTION_NAME,
    Description,
    Runtime,
    as_input,
    describe,
    join_levels,
    labels_of,
    names_of_levels,
)
from effdet_keras.labels import BACKGROUND
from effdet_keras.network.anchors import anchors_of


def write_litert(
    model,
    path,
    *,
    precision="float32",
    outputs="detections",
    calibration=None,
    calibration_images=CALIBRATION_IMAGES,
    batch_size=1,
    max_detections=None,
    score_threshold=None,
    iou_threshold=None,
    per_class=False,
    max_classes_per_detection=None,
    detections_per_class=None,
    postprocess_ops="custom",
    int8_scores=False,
    input_dtype=None,
):
    """Writes a `.tflite` file; docs/export_litert.md explains options and outputs."""
    nms = {
        "max_detections": max_detections,
        "score_threshold": score_threshold,
        "iou_threshold": iou_threshold,
        "per_class": per_class or None,
        "max_detections_per_class": detections_per_class,
    }
    nms = {name: value for name, value in nms.items() if value is not None}
    uses_builtin = postprocess_ops == "builtin"
    is_int8, is_raw = precision == "int8", outputs != "detections"
    input_dtype = input_dtype or ("uint8" if is_int8 else "float32")
    rule = (
        "`input_dtype='int8'` needs a network in int8: give `precision='int8'` too, "
        "or `input_dtype='uint8'`"
    )
    is_right = is_int8 or input_dtype != "int8"
    require(is_right, rule, input_dtype=input_dtype, precision=precision)
    _check_calibration(calibration, is_int8, model.quantization is not None)
    is_calibrated = calibration is not None
    uses = {"calibration": calibration, "calibration_images": calibration_images}
    is_used = is_calibrated or calibration_images == CALIBRATION_IMAGES
    require(
        is_used,
        "`calibration_images` is the number of images to use from `calibration`: give "
        "`calibration` too",
        **uses,
    )
    rule = (
        "`postprocess_ops` applies only to outputs='detections', because raw outputs "
        "have no postprocess"
    )
    require(not (is_raw and uses_builtin), rule, outputs=outputs)
    rule = "`int8_scores` works only with outputs='detections' and precision='int8'"
    is_used = is_int8 and not is_raw
    require(is_used or not int8_scores, rule, precision=precision, outputs=outputs)
    rule = (
        "The postprocess of a LiteRT file takes one image at a time: use "
        "batch_size=1, or outputs='raw'"
    )
    require(is_raw or batch_size == 1, rule, batch_size=batch_size)
    require(
        not (is_raw and nms),
        "Raw outputs have no postprocess, so these options have no effect: leave them "
        "out",
        **nms,
    )
    rule = (
        "int8 would round the boxes of postprocess_ops='builtin': use 'custom', or "
        "precision='float16'"
    )
    is_rounded = uses_builtin and is_calibrated and not is_raw
    require(not is_rounded, rule, postprocess_ops=postprocess_ops)
    rule = (
        "outputs='levels' works only for models without a segmentation head: use "
        "outputs='raw'"
    )
    is_right = outputs != "levels" or not model.config.has_segmentation
    require(is_right, rule, heads=model.config.heads)
    classes_per_detection = max_classes_per_detection or 1
    of_operation = {
        "max_classes_per_detection": max_classes_per_detection,
        "detections_per_class": detections_per_class,
    }
    _check_operation(of_operation, per_class, uses_builtin, is_raw, model.num_classes)
    description = describe(
        model,
        outputs=outputs,
        precision=precision,
        batch_size=batch_size,
        classes_per_detection=classes_per_detection,
    )
    if not is_raw:
        if uses_builtin:
            from effdet_keras.extras.targets.builtin_postprocess import (
                nearest_postprocess as nearest,
            )

            postprocess = nearest(model.postprocess, **nms)
        else:
            postprocess = hard_postprocess(model.postprocess, **nms)
        description = dataclasses.replace(description, postprocess=postprocess)
    if not runs_on_tensorflow():
        _check_without_tensorflow(precision=precision, postprocess_ops=postprocess_ops)
        content = _finished(_by_keras(model, description, input_dtype), description)
        path.write_bytes(content)
        return
    inputs = []
    if is_calibrated:
        check_calibration(calibration, calibration_images)
        inputs = calibration_inputs(model.config, calibration, calibration_images)
    learned, float_scores = contextlib.nullcontext(), False
    if is_int8 and not inputs:
        learned, float_scores = model.quantization.exporting(), not int8_scores
    with learned, tempfile.TemporaryDirectory() as folder:
        # With int8 the converter casts the input; otherwise the network casts it.
        traced_dtype = tf.float32 if is_int8 else tf.as_dtype(input_dtype)
        module = _traced(model, description, uses_builtin, float_scores, traced_dtype)
        # Converting anything but a SavedModel would lose the custom operation.
        save_function(module, folder, module.run)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        converter.allow_custom_ops = not uses_builtin
        if precision != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if precision == "float16":
            converter.target_spec.supported_types = [tf.float16]
        if is_int8:
            converter.inference_input_type = tf.as_dtype(input_dtype)
        if inputs:
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            converter.representative_dataset = lambda: (
                [np.repeat(read()[None], batch_size, 0)] for read in inputs
            )
        content = converter.convert()
    path.write_bytes(finished(content, description))


_WITHOUT_TENSORFLOW = {
    "precision": ("float32", "float16"),
    "postprocess_ops": ("custom",),
}


def _check_without_tensorflow(**options):
    """Raises an error for options that need TensorFlow's converter."""
    for name, value in options.items():
        others = ", ".join(map(repr, _WITHOUT_TENSORFLOW[name]))
        if value not in _WITHOUT_TENSORFLOW[name]:
            require_tensorflow(
                f"{name}={value!r} needs TensorFlow's converter for LiteRT",
                f"Give one of {others}; or save the model, and export it in a process "
                "with KERAS_BACKEND=tensorflow.",
            )


def _check_operation(given, per_class, uses_builtin, is_raw, num_classes):
    """Raises an error for options that `TFLite_Detection_PostProcess` would ignore."""
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return
    rule = (
        "These options belong to the operation `TFLite_Detection_PostProcess`, which "
        "only files"
    )
    of_file = 'with outputs="detections" and postprocess_ops="custom" contain'
    require(not (uses_builtin or is_raw), f"{rule} {of_file}", **given)
    if (count := given.get("max_classes_per_detection")) is not None:
        expected = f"at most the model's number of classes, {num_classes}"
        is_right = count <= num_classes
        check_argument(is_right, "max_classes_per_detection", count, expected)
        rule = (
            "With `per_class=True` the operation gives each box one class: leave "
            "`max_classes_per_detection` out"
        )
        require(not per_class or count == 1, rule, max_classes_per_detection=count)
    rule = (
        "`detections_per_class` limits what `per_class=True` keeps: give "
        "`per_class=True` too"
    )
    is_right = per_class or "detections_per_class" not in given
    require(is_right, rule, **given)


def _check_calibration(calibration, is_int8, knows_ranges):
    is_calibrated = calibration is not None
    rule = "`calibration` is used only for int8: give `precision='int8'` too"
    require(is_int8 or not is_calibrated, rule, precision="not int8")
    if is_int8 and is_calibrated == knows_ranges:
        raise InvalidValueError(
            "A quantization-aware model already knows the range of every activation: "
            "leave `calibration` out."
            if knows_ranges
            else (
                "An int8 export needs images of the kind the model will see, to find "
                "the range of every activation. Received: calibration=None. Pass a "
                "dataset, a folder or a list of images, such as `calibration=train`; "
                "or train the model with `quantize_aware`."
            )
        )


def _traced(model, description, uses_builtin, float_scores, input_dtype):
    """Returns a module whose `run` is the network, with postprocess unless raw."""
    batch_size = description.batch_size
    module = tf.Module()
    finds = {"finds_classes": description.outputs == "detections"}
    module.network = frozen(network_function(model, batch_size, _repeat, **finds))
    names = output_names(model.config, **finds)
    shape = (batch_size, *model.config.image_size, 3)
    spec = tf.TensorSpec(shape, input_dtype, name="images")

    @tf.function(input_signature=[spec])
    def run(images):
        found = dict(zip(names, module.network(tf.cast(images, tf.float32))))
        if description.is_raw:
            return tuple(found[name] for name in _raw_names(model.config))
        results = ()
        if model.config.has_detection and uses_builtin:
            from effdet_keras.extras.targets.builtin_postprocess import (
                builtin_operations as operations,
            )

            op = operations(description.postprocess, model.config)
            results = op(found["box_deltas"], found["class_logits"])
        elif model.config.has_detection:
            op = postprocess_op(
                description.postprocess,
                model.config,
                description.classes_per_detection,
            )
            logits = found["class_logits"]
            if float_scores:
                # The converter makes an int8 sigmoid of int8 logits. A difference has
                # no recorded range, so its sigmoid stays in float. Subtracting 1e-30
                # changes no logit.
                logits = logits - 1e-30
            results = op(found["box_deltas"], tf.sigmoid(logits))
        if model.config.has_segmentation:
            results = (*results, tf.cast(found["class_map"], tf.int32))
        return results

    module.run = run
    return module


def _repeat(x, times):
    """Repeats rows and columns with operations of XNNPACK, without splitting it."""
    batch, height, width, channels = x.shape
    rows, columns = times
    x = tf.concat([x] * columns, axis=3)  # copies of each pixel are adjacent in memory
    x = tf.reshape(x, (batch, height, width * columns, channels))
    x = tf.concat([x] * rows, axis=2)  # the same for each row
    return tf.reshape(x, (batch, height * rows, width * columns, channels))


def _by_keras(model, description, input_dtype):
    """Returns network and postprocess as a `ModelT`, on JAX and torch."""
    config, is_raw = description.config, description.outputs == "raw"
    graph = network_graph(model, description.batch_size, finds_classes=not is_raw)
    half = description.precision == "float16"
    litert, values = litert_model(graph, input_dtype=input_dtype, half=half)
    if not is_raw and config.has_detection:
        values.update(_with_operation(litert, values, description))
    litert.outputs = [values[name] for name in output_names_of(description)]
    return litert.packed()


def _with_operation(litert, values, description):
    """Appends the postprocess to raw outputs; returns its output tensors by name."""
    config, postprocess = description.config, description.postprocess
    times = description.classes_per_detection
    count, anchors = postprocess.max_detections * times, _centers_and_sides(config)
    logits = values["class_logits"]
    scores = litert.operation(
        "LOGISTIC", [logits], (1, len(anchors), config.num_classes)
    )
    shapes = {
        "boxes": (1, count, 4),
        "classes": (1, count),
        "scores": (1, count),
        "count": (1,),
    }
    found = {
        name: litert.tensor(f"found_{name}", shape, "float32")
        for name, shape in shapes.items()
    }
    litert.custom_operation(
        _OPERATION,
        [values["box_deltas"], scores, litert.constant(anchors)],
        list(found.values()),
        bytes(flexbuffers.Dumps(_attributes(postprocess, config, times))),
    )
    return found


# --- The operation `TFLite_Detection_PostProcess`, and the equivalent `Postprocess`.

# The operation takes longer, the more anchors have a score above this threshold: 32 ms
# for all 49,104 of D0, 7 ms for 7,700, 3 ms for 400 (one thread, 90 classes).
_DEFAULT_SCORE_THRESHOLD = 0.01
_OPERATION = "TFLite_Detection_PostProcess"


def hard_postprocess(postprocess, **options):
    """Returns the nearest equivalent of a postprocess that the operation supports."""
    options = {"per_class": False, "drop_empty": False, **options}
    hard = dataclasses.replace(postprocess, method="hard", **options)
    threshold = hard.score_threshold
    if threshold is None:
        threshold = _DEFAULT_SCORE_THRESHOLD
    threshold = max(threshold, 0.0)  # the model's threshold may be -inf
    # Without `per_class`, only the best class of an anchor can be kept, because all its
    # classes have the same box.
    top_k = hard.pre_nms_top_k if hard.per_class else 0
    # The operation has no limit per class in that case either.
    limit = hard.max_detections_per_class if hard.per_class else None
    return dataclasses.replace(
        hard,
        score_threshold=threshold,
        pre_nms_top_k=top_k,
        max_detections_per_class=limit,
    )


def postprocess_op(postprocess, config, classes_per_detection=1):
    """Returns the operation as a function of `box_deltas` and `scores` to trace."""
    count = postprocess.max_detections * classes_per_detection
    anchors = _centers_and_sides(config)

    # In the converted file, the operation replaces this function and its zeros.
    implements = _operation(postprocess, config, classes_per_detection)

    @tf.function(experimental_implements=implements)
    def operation(box_deltas, scores, anchors):
        return (
            tf.zeros((1, count, 4)),
            tf.zeros((1, count)),
            tf.zeros((1, count)),
            tf.zeros((1,)),
        )

    return lambda box_deltas, scores: operation(box_deltas, scores, anchors)


def _operation(postprocess, config, classes_per_detection):
    """Returns name and attributes as a `NameAttrList` in protobuf's text format."""
    attributes = _attributes(postprocess, config, classes_per_detection)
    pairs = (
        f'attr {{ key: "{key}" value {{ {_field(value)} }} }}'
        for key, value in attributes.items()
    )
    return f'name: "{_OPERATION}" {" ".join(pairs)}'


def _field(value):
    kind = {int: "i", bool: "b", float: "f"}[type(value)]
    return f"{kind}: {str(value).lower()}"


def _attributes(postprocess, config, classes_per_detection):
    """Returns the attributes of the operation by name."""
    count = postprocess.max_detections
    y_scale, x_scale, h_scale, w_scale = map(float, config.box_scales)
    return {
        "max_detections": count,
        "max_classes_per_detection": classes_per_detection,
        "detections_per_class": postprocess.max_detections_per_class or count,
        "num_classes": config.num_classes,
        "use_regular_nms": bool(postprocess.per_class),
        "nms_score_threshold": float(postprocess.score_threshold),
        "nms_iou_threshold": float(postprocess.iou_threshold),
        "y_scale": y_scale,
        "x_scale": x_scale,
        "h_scale": h_scale,
        "w_scale": w_scale,
    }


def _centers_and_sides(config):
    """Returns anchors `[N, 4]` as `(y, x, height, width)`, fractions of the input."""
    low, high = np.split(anchors_of(config), 2, axis=-1)
    anchors = np.concatenate([(low + high) / 2, high - low], axis=-1)
    return (anchors / np.tile(config.image_size, 2)).astype("float32")


LABELS_NAME = "labelmap.txt"


def output_names_of(description):
    """Returns the names of a file's outputs, in their order."""
    config = description.config
    if description.outputs == "levels":
        return names_of_levels(config)
    if description.is_raw:
        return _raw_names(config)
    names = ("boxes", "classes", "scores", "count") if config.has_detection else ()
    return (*names, "class_map") if config.has_segmentation else names


def _raw_names(config):
    names = ("class_logits", "box_deltas") if config.has_detection else ()
    return (*names, "segmentation_logits") if config.has_segmentation else names


# --- Corrections of the converter's `.tflite` file, and additions to it.


def finished(content, description):
    """Sorts and names outputs, sets the scale of int8 inputs to 1, adds metadata."""
    return _finished(tflite_files.convert_bytearray_to_object(content), description)


def _finished(model, description):
    if description.outputs == "levels":
        from effdet_keras.extras.targets.tflite_levels import cut_levels

        _name_outputs(model, _raw_names(description.config))
        cut_levels(model, output_names_of(description))
    else:
        _name_outputs(model, output_names_of(description))
    if description.precision == "int8":
        _take_pixels_as_they_are(model)
    if description.outputs == "detections" and description.postprocess.per_class:
        _limit_each_class(model, description.postprocess)
    from effdet_keras.extras.targets.mediapipe_metadata import metadata_buffer

    metadata = metadata_buffer(description)
    # In TensorFlow 2.20 these constructors take no arguments.
    buffer, entry = tflite_schema.BufferT(), tflite_schema.MetadataT()
    buffer.data = np.frombuffer(metadata, "uint8")
    entry.name, entry.buffer = b"TFLITE_METADATA", len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    network = bytes(tflite_files.convert_object_to_bytearray(model))
    return _with_archive(network, description)


def _name_outputs(model, names):
    """Sorts and names the outputs.

    The converter writes them in any order, with their names only in the signature.
    """
    graph, signature = model.subgraphs[0], model.signatureDefs[0]
    places = {output.name.decode(): output for output in signature.outputs}
    graph.outputs = []
    for index, name in enumerate(names):
        output = places[f"output_{index}"]
        output.name = name.encode()
        graph.tensors[output.tensorIndex].name = name.encode()
        graph.outputs.append(output.tensorIndex)
    graph.tensors[graph.inputs[0]].name = b"images"


def _limit_each_class(model, postprocess):
    """Sets the operation's limit of boxes per class.

    The converter drops this attribute, and then the operation's limit is 100.
    """
    limit = postprocess.max_detections_per_class or postprocess.max_detections
    for operator in model.subgraphs[0].operators:
        code = model.operatorCodes[operator.opcodeIndex].customCode
        if code is not None and code.decode() == _OPERATION:
            options = flexbuffers.Loads(bytes(bytearray(operator.customOptions)))
            content = flexbuffers.Dumps({**options, "detections_per_class": limit})
            operator.customOptions = np.frombuffer(bytes(content), "uint8")


def _take_pixels_as_they_are(model):
    """Sets the input's scale to 1, so that calibration does not change pixel values."""
    # If the input is not int8, it is first converted to int8. The operation that reads
    # the input may have any input scale, because its result has its own scale.
    graph = model.subgraphs[0]
    (source,) = graph.inputs
    (reader,) = (op for op in graph.operators if source in op.inputs)
    kinds = tflite_schema.TensorType
    zero_points = {kinds.UINT8: 0, kinds.INT8: -128}
    for tensor in (graph.tensors[source], graph.tensors[reader.outputs[0]]):
        if tensor.type in zero_points:  # else float32
            tensor.quantization.scale = [1.0]
            tensor.quantization.zeroPoint = [zero_points[tensor.type]]
        if tensor.type == kinds.INT8:
            break


def _with_archive(network, description):
    entries = {
        LABELS_NAME: "\n".join(labels_of(description)) + "\n",
        DESCRIPTION_NAME: description.to_json(),
        CHECKSUM_NAME: hashlib.sha256(network).hexdigest(),
    }
    file = io.BytesIO(network)
    with zipfile.ZipFile(file, "a") as archive:
        for name, text in entries.items():
            archive.writestr(zipfile.ZipInfo(name), text)  # without date: reproducible
    return file.getvalue()


# --- The runtime.

CHECKSUM_NAME = "effdet_keras.sha256"  # zip entry with the SHA-256 of the network


class LiteRTRuntime(Runtime):
    """A `.tflite` file that `EfficientDet.export` wrote, in `ai_edge_litert`."""

    package = ai_edge_litert

    def __init__(self, path, num_threads=None):
        self.path = pathlib.Path(path)
        network, self.description = _opened(self.path)
        description = self.description
        # Files with "builtin" postprocess and raw outputs do not have the operation.
        has_operation = _OPERATION.encode() in network
        if has_operation and description.postprocess.per_class:
            num_threads = 1  # with `n` threads the operation's NMS skips class `n`
        self._interpreter = ai_edge_litert.Interpreter(
            model_content=network, num_threads=num_threads or os.cpu_count()
        )
        self._interpreter.allocate_tensors()
        (self._input,) = self._interpreter.get_input_details()
        self._outputs = self._interpreter.get_output_details()
        self.input_dtype = np.dtype(self._input["dtype"]).name
        self._lock = threading.Lock()  # an interpreter has one set of tensors

    def run(self, images):
        """See `Runtime.run`."""
        images = as_input(images, self.input_dtype)
        with self._lock:
            self._interpreter.set_tensor(self._input["index"], images)
            self._interpreter.invoke()
            values = [self._value(output) for output in self._outputs]
        named = dict(zip(output_names_of(self.description), values))
        if self.description.outputs == "levels":
            return join_levels(named, self.description.config)
        if self.description.is_raw:
            return named
        class_map = named.pop("class_map", None)
        found = self._detections(**named) if named else {}
        if class_map is not None:
            found["class_map"] = class_map.astype("uint8")
        return found

    def _value(self, output):
        """Returns the value of an output; int8 values are dequantized."""
        value = self._interpreter.get_tensor(output["index"])
        scale, zero_point = output["quantization"]
        if not scale:
            return value
        return (value.astype("float32") - zero_point) * np.float32(scale)

    def _detections(self, boxes, classes, scores, count):
        """Converts the operation's outputs to the dict of `Postprocess`.

        The operation does not set the rows after the last box, so that they hold
        arbitrary memory.
        """
        image_size = self.description.config.image_size
        times = self.description.classes_per_detection
        if times > 1:
            boxes, classes, scores, count = self._best_first(
                boxes, classes, scores, count * times
            )
        used = np.arange(scores.shape[1]) < count[:, None]  # [1, D]
        boxes = np.where(used[..., None], boxes, np.float32(0))
        boxes = boxes * np.tile(image_size, 2).astype("float32")
        if self.description.postprocess.clip:
            boxes = clip_boxes(boxes, image_size)
        return {
            "boxes": boxes,
            "scores": np.where(used, scores, np.float32(0)),
            "labels": np.where(used, classes, BACKGROUND).astype("int32"),
            "num_detections": count.astype("int32"),
        }

    def _best_first(self, boxes, classes, scores, count):
        """Sorts the rows of boxes with several classes by score.

        The operation returns all classes of a box, also those below the threshold, and
        counts boxes instead of rows.
        """
        lowest = self.description.postprocess.lowest_score
        used = np.arange(scores.shape[1]) < count[:, None]
        is_kept = used & (np.where(used, scores, -np.inf) > lowest)
        order = np.argsort(np.where(is_kept, -scores, np.inf), axis=1, kind="stable")
        boxes = np.take_along_axis(boxes, order[..., None], axis=1)
        classes, scores = (
            np.take_along_axis(values, order, axis=1) for values in (classes, scores)
        )
        return boxes, classes, scores, is_kept.sum(axis=1)


def network_of_file(path):
    """Returns the TFLite network in an exported file, without the appended zip file."""
    return _opened(path)[0]


def _opened(path):
    """Reads network and description, and checks them.

    Without the check, a damaged file could crash the process.
    """
    content = path.read_bytes()
    try:
        with open_zip(io.BytesIO(content), path) as archive:
            text = archive.read(DESCRIPTION_NAME)
            digest = archive.read(CHECKSUM_NAME).decode()
            start = min(entry.header_offset for entry in archive.infolist())
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError) as error:
        raise InvalidValueError(
            f"'{path}' is not a .tflite file that `EfficientDet.export` wrote, or it "
            f"is incomplete: it contains no '{DESCRIPTION_NAME}' ({error}). Export the "
            "model again. Other .tflite files can be run with `ai_edge_litert` "
            "itself."
        ) from error
    network = content[:start]
    if hashlib.sha256(network).hexdigest() != digest:
        raise InvalidValueError(
            f"'{path}' is damaged: its network has changed since it was written. Copy "
            "or export the file again."
        )
    return network, Description.from_json(text)
