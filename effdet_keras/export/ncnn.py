"""ncnn: files of the converter `pnnx`, and their runtime on the CPU."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import subprocess
import tempfile

import numpy as np

from effdet_keras._internal.optional_imports import ncnn, onnx, pnnx
from effdet_keras.errors import InvalidStateError
from effdet_keras.export.onnx_network import LOWEST, network_of_planes
from effdet_keras.export.runtime import (
    Runtime,
    damaged,
    read_description,
    write_description,
)

_NAME = "network"  # name of the files that pnnx reads and writes
_LAST_LINES = 20  # lines of its log to show if it fails


def write_ncnn(model, path, *, precision="float32"):
    """Writes a `.param` file, and next to it `.bin` and the description in `.json`.

    The input `images` is `[3, H, W]`. The raw outputs have no batch axis either.
    """
    pnnx.require("ncnn export")
    file, description = network_of_planes(model)
    _pad_before_pooling(file.graph)
    description = dataclasses.replace(description, precision=precision)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        onnx.save(file, folder / f"{_NAME}.onnx")
        _run_pnnx(folder, precision)
        text = (folder / f"{_NAME}.ncnn.param").read_text(encoding="utf-8")
        weights = (folder / f"{_NAME}.ncnn.bin").read_bytes()
    outputs = [output.name for output in file.graph.output]
    path.write_text(_with_names(text, outputs), encoding="utf-8")
    path.with_suffix(".bin").write_bytes(weights)
    files = [path, path.with_suffix(".bin")]
    write_description(path.with_suffix(".json"), description, files)
    return description


def _pad_before_pooling(graph):
    """Replaces the padding of max-pooling by separate nodes.

    pnnx pads wrongly if the two sides of a map need different padding. For example, a
    map of 3 x 4 needs one row above, and no column on the left.
    """
    for place in reversed(range(len(graph.node))):
        pool = graph.node[place]
        pads = [a for a in pool.attribute if a.name == "pads" and any(a.ints)]
        if pool.op_type != "MaxPool" or not pads:
            continue
        top, left, bottom, right = pads[0].ints
        pool.attribute.remove(pads[0])
        name = f"{pool.name}/padding"
        sides = np.array([0, 0, top, left, 0, 0, bottom, right])
        constants = {f"{name}/sides": sides, f"{name}/value": np.float32(LOWEST)}
        graph.initializer.extend(
            onnx.numpy_helper.from_array(np.asarray(array), key)
            for key, array in constants.items()
        )
        inputs = [pool.input[0], *constants]
        padding = onnx.helper.make_node("Pad", inputs, [name], name, mode="constant")
        pool.input[0] = name
        graph.node.insert(place, padding)


def _run_pnnx(folder, precision):
    """Converts `network.onnx` in a folder with pnnx."""
    done = subprocess.run(
        [pnnx.EXEC_PATH, f"{_NAME}.onnx", f"fp16={int(precision == 'float16')}"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode or not (folder / f"{_NAME}.ncnn.bin").is_file():
        log = "\n".join(done.stdout.splitlines()[-_LAST_LINES:])
        raise InvalidStateError(
            f"pnnx did not convert the network (status {done.returncode}):\n{log}"
        )


def _with_names(param, outputs):
    """Replaces pnnx's names of input and outputs in a `.param` text by ours."""
    names = {"in0": "images", **{f"out{i}": name for i, name in enumerate(outputs)}}
    return re.sub(r"\b(in0|out\d+)\b", lambda found: names[found[0]], param)


# --- The runtime.


class NcnnRuntime(Runtime):
    """Runs a `.param` file of `EfficientDet.export`, in float32 whatever it stores."""

    package = ncnn

    def __init__(self, path, num_threads=None):
        self.path = pathlib.Path(path)
        weights, about = self.path.with_suffix(".bin"), self.path.with_suffix(".json")
        self.other_files = weights, about
        self.description = read_description(about, [self.path, weights])
        self._net = ncnn.Net()
        options = self._net.opt
        if num_threads is not None:
            options.num_threads = num_threads
        # By default, ncnn computes in 16 bits if the processor can. The errors would be
        # as large as those of a fault.
        options.use_fp16_packed = options.use_fp16_storage = False
        options.use_fp16_arithmetic = options.use_bf16_storage = False
        status = self._net.load_param(os.fspath(self.path))
        if status or self._net.load_model(os.fspath(weights)):
            raise damaged(self.path)
        self._names = self._net.output_names()

    def run(self, images):
        """See `Runtime.run`."""
        planes = np.ascontiguousarray(images[0].transpose(2, 0, 1), "float32")
        extractor = self._net.create_extractor()
        extractor.input("images", ncnn.Mat(planes))
        found = {name: extractor.extract(name) for name in self._names}
        return {name: np.array(value)[None] for name, (_, value) in found.items()}
