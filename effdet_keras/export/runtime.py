"""Exported files of every format behind one call."""

from __future__ import annotations

import abc
import os
import pathlib
from typing import ClassVar

import numpy as np

from effdet_keras._internal.local_paths import local_path
from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.description import Description
from effdet_keras.export.registry import format_of_file


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
        num_threads: int, or None for the runtime's own choice.
        precision: in what the runtime computes what the file has as floats: "float32",
            or "bfloat16", which OpenVINO has where the processor has.

    Returns:
        `Runtime`.

    Raises:
        FileNotFoundError: If there is nothing at `path`.
        ValueError: If the file is of no known format, damaged, or not one that
            `EfficientDet.export` wrote; or the runtime or the processor does not
            compute in `precision`.
        ImportError: If the runtime is not installed.
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
