"""`.tflite` files in LiteRT."""

import hashlib
import io
import os
import pathlib
import threading
import zipfile

import numpy as np

from effdet_keras._internal.label_constants import BACKGROUND
from effdet_keras._internal.optional_imports import ai_edge_litert
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.description import DESCRIPTION_NAME, Description
from effdet_keras.export.litert.metadata import output_names_of
from effdet_keras.export.runtime import Runtime
from effdet_keras.geometry.box_ops import clip_boxes

CHECKSUM_NAME = "effdet_keras.sha256"  # the zip entry with the digest of the network


class LiteRTRuntime(Runtime):
    """A `.tflite` file that `EfficientDet.export` wrote, in `ai_edge_litert`.

    Args:
        path: of the file.
        num_threads: int, or None for one per CPU. A file whose postprocess is per class
            runs in one: in more, LiteRT loses a class.

    Raises:
        ValueError: If the file is damaged, or not one of `EfficientDet.export`.
        ImportError: If ai-edge-litert is not installed.
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
