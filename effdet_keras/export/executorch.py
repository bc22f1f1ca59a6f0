"""ExecuTorch: `.pte` programs for XNNPACK, and their runtime."""

from __future__ import annotations

import json
import pathlib
import threading
import warnings

import numpy as np

from effdet_keras._internal.checksum import (
    CHECKSUM_NAME,
    WITHOUT_CHECKSUM,
    write_checksum,
)
from effdet_keras._internal.optional_imports import (
    executorch,
    executorch_exir,
    executorch_xnnpack,
    torch,
)
from effdet_keras.export.runtime import (
    DESCRIPTION_NAME,
    Description,
    Runtime,
    require_sealed,
)
from effdet_keras.export.torch_graph import torch_network

_ABOUT = "effdet_keras"  # the program's method that returns the description as text


def write_executorch(model, path):
    """Writes a program whose `forward` maps `[1, 3, H, W]` to the raw outputs."""
    for package in (executorch_exir, executorch_xnnpack):
        package.require("ExecuTorch export")
    module, outputs, description = torch_network(model)
    example = torch.zeros((1, 3, *model.config.image_size))
    about = {
        DESCRIPTION_NAME: description.to_json(),
        CHECKSUM_NAME: WITHOUT_CHECKSUM,
        "outputs": outputs,
    }
    with warnings.catch_warnings(action="ignore"):  # torch warns about its own code
        exported = torch.export.export(module, (example,))
        program = executorch_exir.to_edge_transform_and_lower(
            exported,
            partitioner=[executorch_xnnpack.XnnpackPartitioner()],
            constant_methods={_ABOUT: json.dumps(about)},
        )
        path.write_bytes(program.to_executorch().buffer)
    write_checksum(path)
    return description


# --- The runtime.


class ExecuTorchRuntime(Runtime):
    """Runs an ExecuTorch program of `EfficientDet.export`."""

    package = executorch

    def __init__(self, path, num_threads=None):
        self.path = pathlib.Path(path)
        require_sealed(self.path)
        if num_threads is not None:
            warnings.warn(
                "ExecuTorch uses the threads of the process, so `num_threads` has no "
                "effect",
                stacklevel=2,
            )
        program = executorch.Runtime.get().load_program(self.path.read_bytes())
        (text,) = program.load_method(_ABOUT).execute([])
        about = json.loads(text)
        self.description = Description.from_json(about[DESCRIPTION_NAME])
        self._names = about["outputs"]
        self._program, self._method = program, program.load_method("forward")
        self._lock = threading.Lock()  # a method has one set of buffers

    def run(self, images):
        """See `Runtime.run`."""
        planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2), "float32")
        with self._lock:
            values = self._method.execute([torch.from_numpy(planes)])
            return {n: np.array(v) for n, v in zip(self._names, values)}
