"""PyTorch: `.pt2` programs of `torch.export`, and their runtime."""

from __future__ import annotations

import io
import json
import pathlib
import warnings
import zipfile

import numpy as np

from effdet_keras._internal.checksum import WITHOUT_CHECKSUM, write_checksum
from effdet_keras._internal.optional_imports import torch
from effdet_keras.errors import check_argument
from effdet_keras.export.runtime import (
    DESCRIPTION_NAME,
    Description,
    Runtime,
    require_sealed,
)
from effdet_keras.export.torch_graph import torch_network

_MAX_BATCH = 2**31 - 2  # some operations of torch count images in 32 bits
_OUTPUTS_NAME = "outputs.json"  # entry with the names of the outputs, in their order


def write_torch(model, path, *, batch_size=None):
    """Writes a program from `images` `[B, 3, H, W]` to raw outputs, sorted by name."""
    is_size = batch_size is None or batch_size >= 1
    check_argument(is_size, "batch_size", batch_size, "1 or more, or None for any")
    torch.require("PyTorch export")
    module, outputs, description = torch_network(model, batch_size)
    # torch treats a batch size of one as constant.
    example = torch.zeros((batch_size or 2, 3, *model.config.image_size))
    batch = torch.export.Dim("batch", max=_MAX_BATCH)
    free = {"images": {0: batch}} if batch_size is None else None
    with warnings.catch_warnings(action="ignore"):  # torch warns about its own code
        program = torch.export.export(module, (example,), dynamic_shapes=free)
        notes = {
            DESCRIPTION_NAME: description.to_json(),
            _OUTPUTS_NAME: json.dumps(outputs),
        }
        torch.export.save(program, path, extra_files=notes)
    # Entries of the archive have their own checksums, but the comment at the end has
    # none. So our checksum is in the comment.
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = WITHOUT_CHECKSUM.encode()
    write_checksum(path)
    return description


# --- The runtime.


class TorchRuntime(Runtime):
    """Runs a PyTorch program of `EfficientDet.export`, on the CPU."""

    package = torch

    def __init__(self, path, num_threads=None):
        self.path = pathlib.Path(path)
        require_sealed(self.path)
        if num_threads is not None:
            warnings.warn(
                "torch uses the threads of the process, so `num_threads` has no "
                "effect. Call `torch.set_num_threads`",
                stacklevel=2,
            )
        notes = {DESCRIPTION_NAME: "", _OUTPUTS_NAME: ""}
        content = io.BytesIO(self.path.read_bytes())
        self._module = torch.export.load(content, extra_files=notes).module()
        self.description = Description.from_json(notes[DESCRIPTION_NAME])
        self._names = json.loads(notes[_OUTPUTS_NAME])

    def run(self, images):
        """See `Runtime.run`."""
        planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2), "float32")
        with torch.no_grad():
            values = self._module(torch.from_numpy(planes))
        return {name: value.numpy() for name, value in zip(self._names, values)}
