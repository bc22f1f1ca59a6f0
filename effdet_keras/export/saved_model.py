"""A SavedModel: pictures in, in any form; detections out."""

import os

import tensorflow as tf

from effdet_keras.export.network import frozen, network_function
from effdet_keras.inference.description import DESCRIPTION_NAME, describe


def write_saved_model(model, path):
    """Writes a SavedModel.

    Args:
        model: float32 `EfficientDet`.
        path: `pathlib.Path` of the folder to write.
    """
    module = tf.Module()
    network = frozen(network_function(model))
    module.network = network
    tf.saved_model.save(module, os.fspath(path))
    (path / "assets" / DESCRIPTION_NAME).write_text(describe(model).to_json(), "utf-8")
