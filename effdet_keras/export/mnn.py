"""MNN: files of MNN's converter, and their runtime on the CPU."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import numpy as np

from effdet_keras._internal.optional_imports import mnn, onnx
from effdet_keras.errors import InvalidStateError
from effdet_keras.export.onnx_network import network_of_planes
from effdet_keras.export.runtime import Runtime, read_description, write_description

# The command `mnnconvert` sends data about the conversion to its makers. The underlying
# module only converts. It returns True even if it fails, and a failure can end the
# process, so it runs in a separate process.
_CONVERT = "import _tools, sys; _tools.mnnconvert(sys.argv)"
_LAST_LINES = 20  # lines of its log to show if it fails


def write_mnn(model, path, *, precision="float32"):
    """Writes a `.mnn` file, and the description in a `.json` file next to it.

    The input `images` is `[1, 3, H, W]`. The outputs are the raw outputs.
    """
    mnn.require("MNN export")
    file, description = network_of_planes(model)
    description = dataclasses.replace(description, precision=precision)
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "network.onnx"
        onnx.save(file, source)
        _convert(source, path, ["--fp16"] if precision == "float16" else [])
    write_description(path.with_suffix(".json"), description, [path])
    return description


def _convert(source, path, options):
    """Converts an ONNX file to a `.mnn` file with MNN's converter."""
    files = "-f", "ONNX", "--modelFile", source, "--MNNModel", path
    done = subprocess.run(
        [sys.executable, "-c", _CONVERT, *files, "--bizCode", "effdet_keras", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode or not path.is_file():
        log = "\n".join(done.stdout.splitlines()[-_LAST_LINES:])
        raise InvalidStateError(
            f"MNN did not convert the network (status {done.returncode}):\n{log}"
        )


# --- The runtime.


class MNNRuntime(Runtime):
    """Runs a `.mnn` file of `EfficientDet.export`, in float32 whatever it stores."""

    package = mnn

    def __init__(self, path, num_threads=None):
        self.path = pathlib.Path(path)
        about = self.path.with_suffix(".json")
        self.other_files = (about,)
        self.description = read_description(about, [self.path])
        heads = self.description.config
        self._names = ["class_logits", "box_deltas"] if heads.has_detection else []
        if heads.has_segmentation:
            self._names.append("segmentation_logits")
        self._network = mnn.nn.load_module_from_file(
            os.fspath(self.path),
            ["images"],
            self._names,
            precision_mode=mnn.expr.PrecisionMode.High,
            thread_num=num_threads or os.cpu_count(),
        )
        self._lock = threading.Lock()  # a module has one set of buffers

    def run(self, images):
        """See `Runtime.run`."""
        planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2), "float32")
        with self._lock:
            given = mnn.expr.const(planes, planes.shape, mnn.expr.NCHW)
            found = self._network.forward([given])
            return {n: np.array(v.read()) for n, v in zip(self._names, found)}
