"""`PredictionLog` of TF Serving as bytes, without its package.

The messages are those of tensorflow_serving/apis: `prediction_log.proto`,
`predict.proto` and `model.proto`. All fields written here are messages or strings,
which protobuf encodes alike: the field's number and the type 2, the length, the bytes.
"""

from effdet_keras._internal.optional_imports import tensorflow as tf

_PREDICT_LOG = 6  # PredictionLog.predict_log
_REQUEST = 1  # PredictLog.request
_MODEL_SPEC, _INPUTS = 1, 2  # PredictRequest.model_spec, .inputs
_NAME, _SIGNATURE_NAME = 1, 3  # ModelSpec.name, .signature_name
_KEY, _VALUE = 1, 2  # of a map's entry


def prediction_log(model_name, signature_name, inputs):
    """A request for one prediction, as TF Serving's warm-up reads it.

    Args:
        model_name: string.
        signature_name: string.
        inputs: dict of string to tensor.

    Returns:
        Bytes of a `PredictionLog`.

    Example:
        >>> prediction_log("m", "s", {}).hex(" ")
        '32 0a 0a 08 0a 06 0a 01 6d 1a 01 73'
    """
    spec = _field(_NAME, model_name.encode())
    spec += _field(_SIGNATURE_NAME, signature_name.encode())
    request = _field(_MODEL_SPEC, spec)
    for name, tensor in inputs.items():
        value = tf.make_tensor_proto(tensor).SerializeToString()
        entry = _field(_KEY, name.encode()) + _field(_VALUE, value)
        request += _field(_INPUTS, entry)
    return _field(_PREDICT_LOG, _field(_REQUEST, request))


def _field(number, content):
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value):
    """Seven bits a byte, the lowest first, the eighth for "more follow"."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
