"""OpenVINO: files converted from the ONNX model, and their runtime on the CPU."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import tempfile
import threading

import numpy as np

from effdet_keras._internal.checksum import (
    CHECKSUM_NAME,
    WITHOUT_CHECKSUM,
    write_checksum,
)
from effdet_keras._internal.optional_imports import openvino
from effdet_keras.errors import require
from effdet_keras.export.onnx import write_onnx
from effdet_keras.export.runtime import (
    DESCRIPTION_NAME,
    Description,
    Runtime,
    as_input,
    require_sealed,
)


def write_openvino(
    model,
    path,
    *,
    outputs="detections",
    batch_size=None,
    precision="float32",
    postprocess=None,
    input_dtype="float32",
):
    """Writes the model of `write_onnx` as `.xml`, with weights in `.bin` next to it."""
    openvino.require("OpenVINO export")
    with tempfile.TemporaryDirectory() as folder:
        onnx_path = pathlib.Path(folder) / "model.onnx"
        description = write_onnx(
            model,
            onnx_path,
            outputs=outputs,
            batch_size=batch_size,
            postprocess=postprocess,
            input_dtype=input_dtype,
        )
        description = dataclasses.replace(description, precision=precision)
        # `convert_model` gives the same network, but sends usage data over the network.
        network = openvino.Core().read_model(onnx_path)
        network.set_rt_info(description.to_json(), [DESCRIPTION_NAME])
        network.set_rt_info(WITHOUT_CHECKSUM, [CHECKSUM_NAME])
        openvino.save_model(network, path, compress_to_fp16=precision == "float16")
    write_checksum(path, [path.with_suffix(".bin")])


# --- The runtime.

# On processors that support bfloat16, OpenVINO uses it by default. It is faster, but so
# inexact that a check could not distinguish its errors from a fault.
_PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}


class OpenVINORuntime(Runtime):
    """Runs an OpenVINO model of `EfficientDet.export`, on the CPU."""

    package = openvino

    def __init__(self, path, num_threads=None, precision="float32"):
        self.path = pathlib.Path(path)
        self._core = openvino.Core()
        self._options = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": _PRECISIONS[precision],
        }
        if num_threads is not None:
            self._options["INFERENCE_NUM_THREADS"] = num_threads
        able = self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        rule = "This processor cannot compute in bfloat16: leave `precision` out"
        is_able = precision == "float32" or "BF16" in able
        require(is_able, rule, precision=precision, able=able)
        self.precision = None if precision == "float32" else precision
        self.other_files = (self.path.with_suffix(".bin"),)
        require_sealed(self.path, self.other_files)
        network = self._core.read_model(os.fspath(self.path))
        text = network.get_rt_info([DESCRIPTION_NAME]).astype(str)
        self.description = Description.from_json(text)
        self._network = network
        (source,) = network.inputs
        kind = source.get_element_type()
        self.input_dtype = "uint8" if kind == openvino.Type.u8 else "float32"
        # Compiled models by batch size. A fixed batch size takes 0.85 of the time of a
        # variable one.
        self._models = {}
        self._lock = threading.Lock()  # a model has only one request when called

    def run(self, images):
        """See `Runtime.run`."""
        images = as_input(images, self.input_dtype)
        with self._lock:
            model = self._model_for(len(images))
            results = model(images)
            return {
                output.get_any_name(): np.array(results[output])
                for output in model.outputs
            }

    def _model_for(self, count):
        """Returns the model for a batch size, compiled at its first use."""
        if count not in self._models:
            network = self._network.clone()
            network.reshape([count, *self.description.config.image_size, 3])
            compiled = self._core.compile_model(network, "CPU", self._options)
            self._models[count] = compiled
        return self._models[count]
