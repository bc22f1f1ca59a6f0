"""OpenVINO: files made of the ONNX model, and their runtime on the CPU."""

from __future__ import annotations

import errno
import os
import pathlib
import tempfile
import threading

import numpy as np

from effdet_keras._internal.optional_imports import openvino
from effdet_keras._internal.seal import SEAL_NAME, UNSEALED, check_seal, seal
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.onnx import postprocess_of_file, write_onnx
from effdet_keras.export.runtime import (
    DESCRIPTION_NAME,
    Description,
    Runtime,
    describe,
)


def write_openvino(
    model,
    path,
    *,
    outputs="detections",
    batch_size=None,
    precision="float32",
    postprocess=None,
):
    """Writes the `.xml` at `path`, weights in a `.bin` beside it.

    Input and outputs are as in `write_onnx`.
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


# --- The runtime.

_PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}
_SIZES = 2  # numbers of images for each of which there is a model of its own


class OpenVINORuntime(Runtime):
    """An OpenVINO model of `EfficientDet.export`.

    It computes in float32 unless it is told otherwise. OpenVINO's own choice, where a
    processor has it, is bfloat16: faster, and further off than a check could tell from
    a mistake.

    A file for any number of images is compiled for each of the first numbers that come:
    that takes 0.3 s, and the network 0.85 of the time.
    """

    package = openvino
    precisions = tuple(_PRECISIONS)

    def __init__(self, path, num_threads=None, precision="float32"):
        self.path = pathlib.Path(path)
        self._core = openvino.Core()
        self._options = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": _PRECISIONS[precision],
        }
        if num_threads is not None:
            self._options["INFERENCE_NUM_THREADS"] = num_threads
        if precision == "bfloat16":
            self._require_bfloat16()
        try:
            check_seal(self.path, [self.path.with_suffix(".bin")])
            network = self._core.read_model(os.fspath(self.path))
            self._models = {None: self._compiled(network)}  # by the number of images
        except (RuntimeError, OSError, InvalidValueError) as error:
            raise InvalidValueError(
                f"'{self.path}' cannot be read as an OpenVINO model "
                f"({_last_line(error)}). It or the '.bin' beside it is missing or "
                "damaged: export the model again."
            ) from error
        is_ours = network.has_rt_info([DESCRIPTION_NAME])
        text = network.get_rt_info([DESCRIPTION_NAME]).astype(str) if is_ours else None
        self.description = Description.of_file(text, self.path, "OpenVINO")
        self._network = network
        self._lock = threading.Lock()  # a model called like this has one request

    def run(self, images):
        """See `Runtime.run`."""
        with self._lock:
            model = self._model_for(len(images))
            results = model(images)
            return {
                output.get_any_name(): np.array(results[output])
                for output in model.outputs
            }

    def _model_for(self, count):
        """The model of so many images, or of any number."""
        is_fixed = self.description.batch_size is not None
        if not is_fixed and count not in self._models and len(self._models) <= _SIZES:
            network = self._network.clone()
            network.reshape([count, *self.description.config.image_size, 3])
            self._models[count] = self._compiled(network)
        return self._models.get(count, self._models[None])

    def _compiled(self, network):
        return self._core.compile_model(network, "CPU", self._options)

    def _require_bfloat16(self):
        able = self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        if "BF16" not in able:
            raise InvalidValueError(
                "This processor does not compute in bfloat16: leave `precision` out. "
                f"Received: precision='bfloat16'; it has {', '.join(able)}"
            )


def _last_line(error):
    return str(error).strip().splitlines()[-1]
