"""A SavedModel: images in, in any form; detections out; no package of ours needed."""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import TYPE_CHECKING, Literal

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.seal import UNSEALED, seal
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.description import DESCRIPTION_NAME, describe
from effdet_keras.export.network import frozen
from effdet_keras.export.saved_model.run import sealed_files
from effdet_keras.export.saved_model.serving import serving_signatures

if TYPE_CHECKING:
    from effdet_keras.models import EfficientDet

FROZEN_GRAPH_NAME = "frozen_graph.pb"
LABELS_NAME = "labels.txt"


def write_saved_model(
    model: EfficientDet,
    path: pathlib.Path,
    *,
    names: Literal["effdet", "tfod"] = "effdet",
    input_type: Literal[
        "image_tensor",
        "float_image_tensor",
        "encoded_image_string_tensor",
        "tf_example",
    ]
    | None = None,
    frozen_graph: bool = False,
) -> None:
    """Writes a SavedModel that `tf.saved_model.load` and TF Serving run.

    Signatures, each for any number of images:

    - `serving_default`: uint8 `[B, h, w, 3]`, images of one size, any size
    - `image_bytes`: string `[B]`, whole JPEG, PNG, GIF or BMP files
    - `tf_example`: string `[B]`, serialised `tf.train.Example`s with `image/encoded`
    - `letterboxed`: float32 `[B, H, W, 3]`, pixels 0-255 in the network's size; boxes
      in pixels of it
    - `raw`: the same input; `class_logits` `[B, N, C]`, `box_deltas` `[B, N, 4]`
    - `raw_levels`: the same, level by level: `class_logits_p3` `[B, h, w, A * C]`, ...

    The first three return `boxes` `[B, D, 4]`, `yxyx` in pixels of the image,
    `scores` `[B, D]`, `labels` `[B, D]`, int32 from 0, -1 where unused, and
    `num_detections` `[B]`, int32.

    Args:
        model: float32 `EfficientDet`.
        path: `pathlib.Path` of the folder to write.
        names: names of inputs and outputs: "effdet", as above; or "tfod", as the
            Object Detection API's exporter: input `input_tensor`, and its eight
            outputs, all float32: `detection_boxes` in fractions of the image,
            `detection_scores`, `detection_classes` (category ids of the label map),
            `num_detections`, `detection_multiclass_scores`, `detection_anchor_indices`,
            `raw_detection_boxes`, `raw_detection_scores`. Each of its input types is a
            signature of its name, too. Files are decoded as there: no image is turned
            that a camera stored lying.
        input_type: with `names="tfod"`, which input `serving_default` takes, as the
            `input_type` of that exporter. None is "image_tensor": uint8 pixels.
        frozen_graph: whether to write `frozen_graph.pb` too, the graph of
            `serving_default` for TensorFlow 1's sessions and tools.

    """
    if input_type is not None and names != "tfod":
        raise InvalidValueError(
            "`input_type` is that of the Object Detection API: it goes with "
            f"`names='tfod'`. Received: input_type={input_type!r}, names={names!r}"
        )
    signatures = serving_signatures(model, names, input_type)
    module = tf.Module()
    module.__call__ = signatures["serving_default"]
    labels = model.class_names or [str(i) for i in range(model.num_classes)]
    with tempfile.TemporaryDirectory() as folder:
        module.assets = [
            _asset(folder, DESCRIPTION_NAME, describe(model).to_json()),
            _asset(folder, LABELS_NAME, "\n".join(labels) + "\n"),
        ]
        # Nobody trains it, and the gradient of swish cannot be saved.
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(module, os.fspath(path), signatures, options)
    seal_path, sealed = sealed_files(path)
    seal_path.write_text(UNSEALED + "\n", encoding="utf-8")
    seal(seal_path, sealed)
    if frozen_graph:
        graph = _frozen_graph(signatures["serving_default"])
        (path / FROZEN_GRAPH_NAME).write_bytes(graph.SerializeToString())


def _asset(folder, name, text):
    path = pathlib.Path(folder, name)
    path.write_text(text, encoding="utf-8")
    return tf.saved_model.Asset(os.fspath(path))


def _frozen_graph(function):
    """A graph whose outputs have the names of the signature's."""
    names = sorted(function.get_concrete_function().structured_outputs)
    constant = frozen(function)
    with tf.Graph().as_default() as graph:
        tensors = tf.import_graph_def(
            constant.graph.as_graph_def(),
            return_elements=[tensor.name for tensor in constant.outputs],
            name="",
        )
        for name, tensor in zip(names, tensors):
            tf.identity(tensor, name=name)
    return graph.as_graph_def()
