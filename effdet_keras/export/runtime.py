"""Exported files of every format behind one call."""

from __future__ import annotations

import abc
import os
import pathlib
from typing import ClassVar

import numpy as np

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras._internal.whole_files import local_path
from effdet_keras.box_ops import area, clip_boxes
from effdet_keras.detect.postprocess import finished_outputs, nothing_found
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.description import Description
from effdet_keras.export.registry import format_of_file
from effdet_keras.model.anchors import anchors_of


class Runtime(abc.ABC):
    """An exported network in the runtime of its format.

    Attributes:
        package: `OptionalModule`, of the class: what runs the format.
        precisions: tuple of strings, of the class: in what it can compute, where the
            processor can.
        path: `pathlib.Path` of the file or folder.
        description: `Description`, read from inside the file.
    """

    package: ClassVar[OptionalModule]
    precisions: ClassVar[tuple[str, ...]] = ("float32",)
    path: pathlib.Path
    description: Description

    @abc.abstractmethod
    def run(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Runs the network; several threads may call it at a time.

        Args:
            images: float32 array `[B, H, W, 3]`, letterboxed pixels 0-255. Where
                `description.batch_size` is a number, `B` must be it.

        Returns:
            Dict of float32 arrays, as `description.outputs` says:
            - "raw": `class_logits` `[B, N, C]` and `box_deltas` `[B, N, 4]`; of a
              segmentation head `segmentation_logits` `[B, h, w, K]`
            - "detections": as `Postprocess` returns, boxes in pixels of the input; of a
              segmentation head `class_map` `[B, H, W]`, uint8
        """


def open_runtime(
    path: str | os.PathLike[str],
    num_threads: int | None = None,
    precision: str = "float32",
) -> Runtime:
    """Opens an exported file in the runtime of its format.

    Args:
        path: folder of a SavedModel, or a `.tflite`, `.onnx` or `.xml` (OpenVINO)
            file.
        precision: in what the runtime computes what the file has as floats: "float32",
            or "bfloat16", which OpenVINO has where the processor has.
    """
    path = local_path(path, "The path of an exported model")
    format = format_of_file(path)
    runtime = format.load_runtime()
    runtime.package.require(f"Running '{path}'")
    if precision not in runtime.precisions:
        raise InvalidValueError(
            f"What runs {format.title} computes in {' or '.join(runtime.precisions)}. "
            f"Received: precision={precision!r}, path='{path}'"
        )
    options = {} if precision == "float32" else {"precision": precision}
    return runtime(path, num_threads=num_threads, **options)


# --- An exported file, used as the model it was made of: in NumPy, without Keras.


class ExportedDetector:
    """What `detect` and the evaluation need of a model, from a `Runtime`.

    Attributes:
        config, class_names, category_ids, seg_class_names, postprocess,
            score_settings: of the exported model.
    """

    def __init__(self, runtime):
        description = runtime.description
        self.runtime = runtime
        self.config = description.config
        self.class_names = description.class_names
        self.category_ids = description.category_ids
        self.seg_class_names = description.seg_class_names
        self.postprocess = description.postprocess
        self.score_settings = description.score_settings
        self._is_raw = description.outputs == "raw"
        has_anchors = self._is_raw and self.config.has_detection
        self._anchors = anchors_of(self.config) if has_anchors else None

    def predict_on_batch(self, images, content_sizes=None):
        """Detections of letterboxed images, in pixels of the input.

        Args:
            images: float32 array `[B, H, W, 3]`, any `B`.
            content_sizes: float32 array `[B, 2]`, see `Postprocess`; or None. A file
                with detections cannot be told it: what such a file found beside the
                images is left out afterwards.
        """
        size = self.runtime.description.batch_size or len(images)
        parts = []
        for start in range(0, len(images), size):
            batch = images[start : start + size]
            count = len(batch)
            if count < size:
                missing = np.zeros((size - count, *batch.shape[1:]), batch.dtype)
                batch = np.concatenate([batch, missing])
            sizes = None
            if content_sizes is not None:
                sizes = np.resize(content_sizes[start : start + count], (size, 2))
            outputs = self.detect_outputs(self.runtime.run(batch), sizes)
            parts.append({name: value[:count] for name, value in outputs.items()})
        return {n: np.concatenate([part[n] for part in parts]) for n in parts[0]}

    def detect_outputs(self, outputs, content_sizes=None):
        """What the runtime returned to detections, in pixels of the input."""
        if self._is_raw:
            return finished_outputs(
                outputs, self.postprocess, self._anchors, self.config, content_sizes
            )
        if not self.config.has_detection:
            nothing = nothing_found(len(outputs["class_map"]), np)
            outputs = {**nothing, **outputs}
        outputs = {name: np.asarray(value) for name, value in outputs.items()}
        if content_sizes is not None:
            return {**outputs, **_without_empty(outputs, content_sizes)}
        return outputs


def _without_empty(outputs, content_sizes):
    """Detections of which something lies inside of the images, first."""
    boxes = clip_boxes(np.array(outputs["boxes"]), content_sizes[:, None])
    unused = np.arange(boxes.shape[1]) >= outputs["num_detections"][:, None]
    unused |= area(boxes) <= 0
    order = np.argsort(unused, axis=1, kind="stable")
    unused = np.take_along_axis(unused, order, 1)
    nothing = {"boxes": 0, "scores": 0, "labels": -1}
    rows = {
        name: np.where(
            unused.reshape(unused.shape + (1,) * (outputs[name].ndim - 2)),
            outputs[name].dtype.type(nothing[name]),
            np.stack([v[o] for v, o in zip(values, order)]),
        )
        for name, values in {**outputs, "boxes": boxes}.items()
        if name in nothing
    }
    counts = (~unused).sum(axis=1).astype(outputs["num_detections"].dtype)
    return {**rows, "num_detections": counts}
