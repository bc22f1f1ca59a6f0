"""TF Serving: a version of a SavedModel, with requests that warm it up."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Literal

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.registry import FORMATS
from effdet_keras.export.targets.prediction_log import prediction_log
from effdet_keras.export.targets.registry import Written

if TYPE_CHECKING:
    from effdet_keras.models import EfficientDet

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
