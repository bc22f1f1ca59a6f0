"""`.tflite` files in LiteRT."""

from __future__ import annotations

import hashlib
import io
import os
import pathlib
import threading
import zipfile

import numpy as np

from effdet_keras._internal.label_constants import BACKGROUND
from effdet_keras._internal.optional_imports import (
    OptionalModule,
    ai_edge_litert,
    flatbuffers,
)
from effdet_keras.box_ops import clip_boxes
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.description import DESCRIPTION_NAME, Description
from effdet_keras.export.runtime import Runtime

CHECKSUM_NAME = "effdet_keras.sha256"  # the zip entry with the digest of the network


class LiteRTRuntime(Runtime):
    """A `.tflite` file that `EfficientDet.export` wrote, in `ai_edge_litert`.

    Args:
        num_threads: int, or None for one per CPU. A file whose postprocess is per class
            runs in one: in more, LiteRT loses a class.
    """

    package = ai_edge_litert

    def __init__(self, path, num_threads=None):
        self.path = pathlib.Path(path)
        network, self.description = _opened(self.path)
        if self._loses_a_class():
            num_threads = 1
        self._interpreter = ai_edge_litert.Interpreter(
            model_content=network, num_threads=num_threads or os.cpu_count()
        )
        self._interpreter.allocate_tensors()
        (self._input,) = self._interpreter.get_input_details()
        self._outputs = self._interpreter.get_output_details()
        self._lock = threading.Lock()  # an interpreter has one set of tensors

    def run(self, images):
        """See `Runtime.run`."""
        images = np.asarray(images)
        if self._input["dtype"] == np.uint8:
            images = np.clip(np.round(images), 0, 255)
        images = images.astype(self._input["dtype"])
        with self._lock:
            self._interpreter.set_tensor(self._input["index"], images)
            self._interpreter.invoke()
            values = [self._value(output) for output in self._outputs]
        named = dict(zip(output_names_of(self.description), values))
        if self.description.outputs == "raw":
            return named
        class_map = named.pop("class_map", None)
        found = self._detections(**named) if named else {}
        if class_map is not None:
            found["class_map"] = class_map.astype("uint8")
        return found

    def _loses_a_class(self):
        """In `n` threads the operation's suppression per class skips class `n`."""
        description = self.description
        return description.outputs == "detections" and description.postprocess.per_class

    def _value(self, output):
        value = self._interpreter.get_tensor(output["index"])
        if value.dtype in (np.float32, np.int32):
            return value
        scale, zero_point = output["quantization"]
        return (value.astype("float32") - zero_point) * np.float32(scale)

    def _detections(self, boxes, classes, scores, count):
        """The operation's outputs as `Postprocess` returns them."""
        image_size = self.description.config.image_size
        used = np.arange(scores.shape[1]) < count[:, None]  # [1, D]
        boxes = boxes * np.tile(image_size, 2).astype("float32")
        if self.description.postprocess.clip:
            boxes = clip_boxes(boxes, image_size)
        return {
            "boxes": np.where(used[..., None], boxes, np.float32(0)),
            "scores": np.where(used, scores, np.float32(0)),
            "labels": np.where(used, classes, BACKGROUND).astype("int32"),
            "num_detections": count.astype("int32"),
        }


def _opened(path):
    """The network and the description of a file, checked: LiteRT itself checks
    little, and a damaged file can end the process."""
    content = path.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            text = archive.read(DESCRIPTION_NAME)
            digest = archive.read(CHECKSUM_NAME).decode()
            start = min(entry.header_offset for entry in archive.infolist())
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError) as error:
        raise InvalidValueError(
            f"'{path}' is no .tflite file that `EfficientDet.export` wrote, or it is "
            f"cut short: there is no '{DESCRIPTION_NAME}' inside ({error}). Export the "
            "model again; other .tflite files run in `ai_edge_litert` itself."
        ) from error
    network = content[:start]
    if hashlib.sha256(network).hexdigest() != digest:
        raise InvalidValueError(
            f"'{path}' is damaged: its network is not the one that was written. Copy "
            "or export it again."
        )
    return network, Description.from_json(text, path)


# --- TFLite Metadata: names, labels and input of a model, for MediaPipe Tasks.

LABELS_NAME = "labelmap.txt"
_MIN_PARSER_VERSION = "1.2.0"  # the first that knows groups of tensors
_FEATURE, _IMAGE, _BOUNDING_BOX = 1, 2, 3  # ContentProperties
_NORMALIZATION = 1  # ProcessUnitOptions
_RGB = 1  # ColorSpaceType
_BOUNDARIES = 1  # BoundingBoxType
_VALUE_LABELS = 3  # AssociatedFileType
# What MediaPipe calls the outputs of its detectors.
_DETECTION_NAMES = ("location", "category", "score", "number of detections")


def output_names_of(description):
    """The names of a file's outputs, in their order."""
    config, is_raw = description.config, description.outputs == "raw"
    names = ()
    if config.has_detection:
        detections = ("boxes", "classes", "scores", "count")
        names = ("class_logits", "box_deltas") if is_raw else detections
    if config.has_segmentation:
        names = (*names, "segmentation_logits" if is_raw else "class_map")
    return names


def metadata_buffer(description):
    """The metadata of a model, as the flatbuffer that goes into its file.

    Example:
        >>> from effdet_keras.model.config import EfficientDetConfig
        >>> from effdet_keras.export.description import Description
        >>> metadata_buffer(Description(EfficientDetConfig()))[4:8]
        b'M001'
    """
    tables = _Tables()
    fields = {2: tables.vector([_input(tables)])}
    if description.outputs == "detections" and description.config.has_detection:
        outputs = _detection_outputs(tables)
        if description.config.has_segmentation:
            outputs.append(_tensor(tables, "class_map", _feature(tables)))
        fields[3] = tables.vector(outputs)
        group = {
            0: tables.string("detection_result"),
            1: tables.vector([tables.string(name) for name in _DETECTION_NAMES[:3]]),
        }
        fields[8] = tables.vector([tables.table(group)])
    else:
        names = output_names_of(description)
        outputs = [_tensor(tables, name, _feature(tables)) for name in names]
        fields[3] = tables.vector(outputs)
        fields[4] = tables.vector([_labels(tables)])
    subgraph = tables.table(fields)
    return tables.finish(
        {
            0: tables.string("ObjectDetector"),
            1: tables.string(f"{description.config.name}, by effdet_keras"),
            3: tables.vector([subgraph]),
            7: tables.string(_MIN_PARSER_VERSION),
        }
    )


def _input(tables):
    """Pixels 0-255 go in as they are: normalisation is a part of the network."""
    image = tables.table({0: _Byte(_RGB)})
    content = tables.table({0: _Byte(_IMAGE), 1: image})
    mean, std = tables.floats([0.0]), tables.floats([1.0])
    normalization = tables.table({0: mean, 1: std})
    unit = tables.table({0: _Byte(_NORMALIZATION), 1: normalization})
    stats = tables.table({0: tables.floats([255.0]), 1: tables.floats([0.0])})
    return tables.table(
        {
            0: tables.string("image"),
            3: content,
            4: tables.vector([unit]),
            5: stats,
        }
    )


def _detection_outputs(tables):
    location, category, score, number = _DETECTION_NAMES
    # The places of left, top, right and bottom in a box.
    order = tables.ints([1, 0, 3, 2])
    box = tables.table({0: order, 1: _Byte(_BOUNDARIES)})
    box = _content(tables, _BOUNDING_BOX, box)
    files = tables.vector([_labels(tables)])
    return [
        _tensor(tables, location, box),
        _tensor(tables, category, _feature(tables, grouped=True), files),
        _tensor(tables, score, _feature(tables, grouped=True)),
        _tensor(tables, number, _feature(tables)),
    ]


def _tensor(tables, name, content, files=None):
    fields = {0: tables.string(name), 3: content}
    return tables.table(fields if files is None else {**fields, 6: files})


def _feature(tables, grouped=False):
    feature = tables.table({})
    if grouped:
        return _content(tables, _FEATURE, feature)
    return tables.table({0: _Byte(_FEATURE), 1: feature})


def _content(tables, kind, properties):
    """Content whose second axis counts detections."""
    axis = tables.table({0: _Int(2), 1: _Int(2)})
    return tables.table({0: _Byte(kind), 1: properties, 2: axis})


def _labels(tables):
    return tables.table({0: tables.string(LABELS_NAME), 2: _Byte(_VALUE_LABELS)})


class _Byte(int):
    """A field of one byte; other fields are offsets of what was written before."""


class _Int(int):
    """A field of four bytes."""


class _Tables:
    """Writes a flatbuffer from its leaves to its root."""

    def __init__(self):
        self._builder = flatbuffers.Builder(1024)

    def string(self, text):
        return self._builder.CreateString(text)

    def vector(self, offsets):
        return self._vector(offsets, self._builder.PrependUOffsetTRelative)

    def floats(self, values):
        return self._vector(values, self._builder.PrependFloat32)

    def ints(self, values):
        return self._vector(values, self._builder.PrependUint32)

    def _vector(self, values, prepend):
        self._builder.StartVector(4, len(values), 4)
        for value in reversed(values):
            prepend(value)
        return self._builder.EndVector()

    def table(self, fields):
        """A table of slot to field."""
        builder = self._builder
        builder.StartObject(max(fields, default=-1) + 1)
        for slot, value in fields.items():
            if isinstance(value, _Byte):
                builder.PrependInt8Slot(slot, int(value), 0)
            elif isinstance(value, _Int):
                builder.PrependInt32Slot(slot, int(value), 0)
            else:
                builder.PrependUOffsetTRelativeSlot(slot, value, 0)
        return builder.EndObject()

    def finish(self, root):
        self._builder.Finish(self.table(root), file_identifier=b"M001")
        return bytes(self._builder.Output())


# --- What the converter leaves to be put right in a `.tflite` file, and what is added.

_schema = OptionalModule(
    "tensorflow.lite.python.schema_py_generated", install="tensorflow"
)
_flatbuffer_utils = OptionalModule(
    "tensorflow.lite.tools.flatbuffer_utils", install="tensorflow"
)


def finished(content, description):
    """Puts outputs in order, pixels at scale 1, and adds what tells of the model."""
    model = _flatbuffer_utils.convert_bytearray_to_object(content)
    _name_outputs(model, output_names_of(description))
    if description.precision == "int8":
        _take_pixels_as_they_are(model)
    # TensorFlow 2.20 has no arguments to these.
    buffer, entry = _schema.BufferT(), _schema.MetadataT()
    buffer.data = np.frombuffer(metadata_buffer(description), "uint8")
    entry.name, entry.buffer = b"TFLITE_METADATA", len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    network = bytes(_flatbuffer_utils.convert_object_to_bytearray(model))
    return _with_archive(network, description)


def _name_outputs(model, names):
    """The converter orders outputs as it likes, and names them in the signature."""
    graph, signature = model.subgraphs[0], model.signatureDefs[0]
    places = {output.name.decode(): output for output in signature.outputs}
    graph.outputs = []
    for index, name in enumerate(names):
        output = places[f"output_{index}"]
        output.name = name.encode()
        graph.tensors[output.tensorIndex].name = name.encode()
        graph.outputs.append(output.tensorIndex)
    graph.tensors[graph.inputs[0]].name = b"images"


def _take_pixels_as_they_are(model):
    """Lets the number of a pixel mean itself, whatever the images of calibration.

    The input is uint8, and what is made of it first is the same as int8. Any scale is
    right in the operation that reads it, since its result has a scale of its own.
    """
    graph = model.subgraphs[0]
    (source,) = graph.inputs
    (reader,) = (op for op in graph.operators if source in op.inputs)
    for index, zero_point in ((source, 0), (reader.outputs[0], -128)):
        quantization = graph.tensors[index].quantization
        quantization.scale, quantization.zeroPoint = [1.0], [zero_point]


def _with_archive(network, description):
    labels = description.class_names or map(str, range(description.config.num_classes))
    entries = {
        LABELS_NAME: "\n".join(labels) + "\n",
        DESCRIPTION_NAME: description.to_json(),
        CHECKSUM_NAME: hashlib.sha256(network).hexdigest(),
    }
    file = io.BytesIO(network)
    with zipfile.ZipFile(file, "a") as archive:
        for name, text in entries.items():
            archive.writestr(zipfile.ZipInfo(name), text)  # no date: the same bytes
    return file.getvalue()
