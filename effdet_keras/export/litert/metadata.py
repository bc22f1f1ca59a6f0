"""TFLite Metadata: names, labels and input of a model, for MediaPipe Tasks.

The tables are those of TFLite's `metadata_schema.fbs`. Numbers of slots and of enum
values are from there.
"""

from effdet_keras._internal.optional_imports import flatbuffers

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

    Args:
        description: `Description`.

    Returns:
        Bytes.

    Example:
        >>> from effdet_keras.config import EfficientDetConfig
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
