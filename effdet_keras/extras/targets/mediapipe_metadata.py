"""TFLite Metadata: names, labels and input of a `.tflite` file, for MediaPipe Tasks."""

from effdet_keras._internal.optional_imports import flatbuffers
from effdet_keras.export.litert import LABELS_NAME, output_names_of

_MIN_PARSER_VERSION = "1.2.0"  # the first version with groups of tensors


class _Byte(int):
    """A field of one byte."""


class _Int(int):
    """A field of four bytes."""


# Tables of the schema of TFLite Metadata, as dicts from slot to field.
_LABELS = {0: LABELS_NAME, 2: _Byte(3)}  # 3 is the type VALUE_LABELS
_FEATURE = {0: _Byte(1), 1: {}}
_COUNTED = {2: {0: _Int(2), 1: _Int(2)}}  # the second axis counts detections
_DETECTION_FEATURE = {**_FEATURE, **_COUNTED}
# The positions of left, top, right and bottom in a box of the type BOUNDARIES.
_BOXES = {0: _Byte(3), 1: {0: [1, 0, 3, 2], 1: _Byte(1)}, **_COUNTED}
_DETECTIONS = [  # with MediaPipe's names
    {0: "location", 3: _BOXES},
    {0: "category", 3: _DETECTION_FEATURE, 6: [_LABELS]},
    {0: "score", 3: _DETECTION_FEATURE},
    {0: "number of detections", 3: _FEATURE},
]
# Pixels 0-255 are not changed, because normalization is part of the network.
_IMAGE = {
    0: "image",
    3: {0: _Byte(2), 1: {0: _Byte(1)}},  # an image in RGB
    4: [{0: _Byte(1), 1: {0: [0.0], 1: [1.0]}}],  # mean and standard deviation
    5: {0: [255.0], 1: [0.0]},  # highest and lowest value
}


def metadata_buffer(description):
    """Returns the metadata of a model as a flatbuffer, for its file."""
    if description.outputs == "detections" and description.config.has_detection:
        outputs = list(_DETECTIONS)
        if description.config.has_segmentation:
            outputs.append({0: "class_map", 3: _FEATURE})
        names = [tensor[0] for tensor in _DETECTIONS[:3]]
        others = {8: [{0: "detection_result", 1: names}]}
    else:
        outputs = [{0: name, 3: _FEATURE} for name in output_names_of(description)]
        others = {4: [_LABELS]}
    metadata = {
        0: "ObjectDetector",
        1: f"{description.config.name}, by effdet_keras",
        3: [{2: [_IMAGE], 3: outputs, **others}],
        7: _MIN_PARSER_VERSION,
    }
    builder = flatbuffers.Builder(1024)
    builder.Finish(_written(builder, metadata), file_identifier=b"M001")
    return bytes(builder.Output())


def _written(builder, value):
    """Writes a string, vector or table, its leaves first; returns its offset."""
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, list):
        prepend = builder.PrependUOffsetTRelative
        if isinstance(value[0], float):
            prepend = builder.PrependFloat32
        elif isinstance(value[0], int):
            prepend = builder.PrependUint32
        else:
            value = [_written(builder, item) for item in value]
        builder.StartVector(4, len(value), 4)
        for item in reversed(value):
            prepend(item)
        return builder.EndVector()
    fields = {
        slot: field if isinstance(field, int) else _written(builder, field)
        for slot, field in value.items()
    }
    builder.StartObject(max(fields, default=-1) + 1)
    for slot, field in fields.items():
        if isinstance(field, _Byte):
            builder.PrependInt8Slot(slot, int(field), 0)
        elif isinstance(field, _Int):
            builder.PrependInt32Slot(slot, int(field), 0)
        else:
            builder.PrependUOffsetTRelativeSlot(slot, field, 0)
    return builder.EndObject()
