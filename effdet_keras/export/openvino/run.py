"""OpenVINO files in OpenVINO, on the CPU."""

import os
import pathlib
import threading

import numpy as np

from effdet_keras._internal.optional_imports import openvino
from effdet_keras._internal.seal import check_seal
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.description import DESCRIPTION_NAME, Description
from effdet_keras.export.runtime import Runtime


class OpenVINORuntime(Runtime):
    """An OpenVINO model of `EfficientDet.export`.

    It computes in float32. OpenVINO's own choice, where a processor has it, is
    bfloat16: faster, and further off than a check could tell from a mistake.

    Args:
        path: path of the `.xml` file; the `.bin` is beside it.
        num_threads: int, or None for OpenVINO's choice.

    Raises:
        ValueError: If a file is damaged or missing, or was written by something else.
        ImportError: If openvino is not installed.
    """

    package = openvino

    def __init__(self, path, num_threads=None):
        self.path = pathlib.Path(path)
        core = openvino.Core()
        options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        if num_threads is not None:
            options["INFERENCE_NUM_THREADS"] = num_threads
        try:
            check_seal(self.path, [self.path.with_suffix(".bin")])
            network = core.read_model(os.fspath(self.path))
            self._model = core.compile_model(network, "CPU", options)
        except (RuntimeError, OSError, InvalidValueError) as error:
            raise InvalidValueError(
                f"'{self.path}' cannot be read as an OpenVINO model "
                f"({_last_line(error)}). It or the '.bin' beside it is missing or "
                "damaged: export the model again."
            ) from error
        if not network.has_rt_info([DESCRIPTION_NAME]):
            raise InvalidValueError(
                f"'{self.path}' is an OpenVINO model, but not one that "
                f"`EfficientDet.export` wrote: it has no '{DESCRIPTION_NAME}' in its "
                "runtime information. Run it with OpenVINO itself."
            )
        text = network.get_rt_info([DESCRIPTION_NAME]).astype(str)
        self.description = Description.from_json(text, self.path)
        self._lock = threading.Lock()  # a model called like this has one request

    def run(self, images):
        """See `Runtime.run`."""
        with self._lock:
            results = self._model(images)
            return {
                output.get_any_name(): np.array(results[output])
                for output in self._model.outputs
            }


def _last_line(error):
    return str(error).strip().splitlines()[-1]
