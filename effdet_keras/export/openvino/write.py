"""OpenVINO files, made of the ONNX model."""

from __future__ import annotations

import errno
import os
import pathlib
import tempfile
from typing import TYPE_CHECKING, Literal

from effdet_keras._internal.optional_imports import openvino
from effdet_keras._internal.seal import SEAL_NAME, UNSEALED, seal
from effdet_keras.export.description import DESCRIPTION_NAME, describe
from effdet_keras.export.onnx.write import postprocess_of_file, write_onnx

if TYPE_CHECKING:
    from effdet_keras.detect.postprocess import Postprocess
    from effdet_keras.model.efficientdet import EfficientDet


def write_openvino(
    model: EfficientDet,
    path: pathlib.Path,
    *,
    outputs: Literal["detections", "raw"] = "detections",
    batch_size: int | None = None,
    precision: Literal["float32", "float16"] = "float32",
    postprocess: Postprocess | None = None,
) -> None:
    """Writes an OpenVINO model: the `.xml` at `path`, weights in a `.bin` beside it.

    Input and outputs are as in `write_onnx`.

    Args:
        model: float32 `EfficientDet`.
        path: `pathlib.Path` of the `.xml` file to write.
        outputs: what the file returns: "detections", with NMS inside; "raw", class
            logits and box deltas of all anchors.
        batch_size: images at once, or None for a file that takes any number.
        precision: of the weights: "float32", or "float16" for a file of half the
            size. In what precision a device computes is its own affair.
        postprocess: `Postprocess` of the file, or None for the model's own.

    Raises:
        ValueError: If `batch_size` is below 1.
        OSError: If the disk is full.
        ImportError: If openvino, onnx or tf2onnx is not installed.
    """
    openvino.require("OpenVINO export")
    description = describe(
        model,
        outputs=outputs,
        precision=precision,
        batch_size=batch_size,
        postprocess=postprocess_of_file(postprocess or model.postprocess, outputs),
    )
    with tempfile.TemporaryDirectory() as folder:
        onnx_path = pathlib.Path(folder) / "model.onnx"
        write_onnx(
            model,
            onnx_path,
            outputs=outputs,
            batch_size=batch_size,
            postprocess=postprocess,
        )
        # The same network as of `convert_model`, which reports its use over the net.
        network = openvino.Core().read_model(onnx_path)
        network.set_rt_info(description.to_json(), [DESCRIPTION_NAME])
        network.set_rt_info(UNSEALED, [SEAL_NAME])
        try:
            openvino.save_model(network, path, compress_to_fp16=precision == "float16")
        except RuntimeError as error:
            if "iostream" not in str(error):
                raise
            reason = os.strerror(errno.ENOSPC)  # most likely; it gives none
            raise OSError(errno.ENOSPC, reason, os.fspath(path)) from error
    seal(path, [path.with_suffix(".bin")])
