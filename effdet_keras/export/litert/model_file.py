"""What the converter leaves to be put right in a `.tflite` file, and what is added."""

import hashlib
import io
import zipfile

import numpy as np

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras.export.description import DESCRIPTION_NAME
from effdet_keras.export.litert.metadata import (
    LABELS_NAME,
    metadata_buffer,
    output_names_of,
)
from effdet_keras.export.litert.run import CHECKSUM_NAME

_schema = OptionalModule(
    "tensorflow.lite.python.schema_py_generated", install="tensorflow"
)
_flatbuffer_utils = OptionalModule(
    "tensorflow.lite.tools.flatbuffer_utils", install="tensorflow"
)


def finished(content, description):
    """Puts outputs in order, pixels at scale 1, and adds what tells of the model.

    Args:
        content: bytes that the converter gave, of a function that returns a tuple.
        description: `Description`.

    Returns:
        Bytes of the whole file: a flatbuffer, and a zip archive behind it, as
        TFLite Metadata has it.
    """
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
