"""TF Serving: a version of a SavedModel, with requests that warm it up."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Literal

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.registry import FORMATS, Written

if TYPE_CHECKING:
    from effdet_keras.model.efficientdet import EfficientDet


WARMUP_NAME = pathlib.Path("assets.extra", "tf_serving_warmup_requests")


def write_tf_serving(
    model: EfficientDet,
    folder: pathlib.Path,
    path: pathlib.Path,
    *,
    names: Literal["effdet", "tfod"] = "effdet",
    warmup_batches: int = 2,
) -> Written:
    """Writes one version of a SavedModel that TF Serving loads.

    `path` is `MODEL/VERSION`, such as `models/pets/1`, with a whole number as its last
    part: TF Serving watches `models/pets` and serves the highest version. Each warm-up
    request is one that clients send: images, and files of images, of batches 1, 2, 4...

    Args:
        model: float32 `EfficientDet`.
        folder: `pathlib.Path` to write into.
        path: `pathlib.Path` that the folder will have.
        names: names of inputs and outputs, as of the format "saved_model".
        warmup_batches: how many sizes of a batch are warmed up; 0 for no requests.

    Raises:
        ValueError: If the last part of `path` is no number.
    """
    if not (path.name.isascii() and path.name.isdigit()):
        raise InvalidValueError(
            "The path of `target='tf-serving'` ends in the version, a whole number. "
            f"Received: path='{path}'. Give a path such as '{path / '1'}'."
        )
    if warmup_batches < 0:
        raise InvalidValueError(
            f"`warmup_batches` must be 0 or more. Received: {warmup_batches}"
        )
    FORMATS["saved_model"].write(model, folder, names=names)
    if warmup_batches:
        requests = folder / WARMUP_NAME
        requests.parent.mkdir()
        name = path.parent.name or "model"
        _write_requests(requests, name, model.config, names, warmup_batches)
    base = path.parent.absolute()
    note = (
        f"  tensorflow_model_server --rest_api_port=8501 "
        f"--model_name={path.parent.name} --model_base_path={base}"
    )
    return Written(folder, "saved_model", (note,))


def _write_requests(path, name, config, names, warmup_batches):
    image = np.zeros((*config.image_size, 3), "uint8")
    file = tf.io.encode_jpeg(image).numpy()
    key = "input_tensor" if names == "tfod" else "images"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for size in (2**i for i in range(warmup_batches)):
            images = tf.constant(np.stack([image] * size))
            files = tf.constant([file] * size)
            for signature, tensor in (
                ("serving_default", images),
                ("image_bytes", files),
            ):
                writer.write(prediction_log(name, signature, {key: tensor}))


# --- `PredictionLog` of TF Serving as bytes, without its package.

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
