"""ONNX files in ONNX Runtime."""

import os
import pathlib

from effdet_keras._internal.optional_imports import OptionalModule, onnxruntime
from effdet_keras._internal.seal import check_seal
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.description import DESCRIPTION_NAME, Description
from effdet_keras.export.runtime import Runtime

_errors = OptionalModule(
    "onnxruntime.capi.onnxruntime_pybind11_state", install="effdet-keras[onnx]"
)
_PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")  # best first


class ONNXRuntime(Runtime):
    """An ONNX file of `EfficientDet.export`, on the GPU where onnxruntime has one."""

    package = onnxruntime

    def __init__(self, path, num_threads=None):
        self.path = pathlib.Path(path)
        check_seal(self.path)
        self._session = _session(self.path, num_threads)
        properties = self._session.get_modelmeta().custom_metadata_map
        if DESCRIPTION_NAME not in properties:
            raise InvalidValueError(
                f"'{self.path}' is an ONNX file, but not one that "
                f"`EfficientDet.export` wrote: '{DESCRIPTION_NAME}' is not among its "
                "metadata. Run it with onnxruntime itself."
            )
        self.description = Description.from_json(
            properties[DESCRIPTION_NAME], self.path
        )
        self._names = [output.name for output in self._session.get_outputs()]

    def run(self, images):
        """See `Runtime.run`."""
        return dict(zip(self._names, self._session.run(None, {"images": images})))


def _session(path, num_threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads or 0
    options.log_severity_level = 3  # errors
    available = onnxruntime.get_available_providers()
    providers = [name for name in _PROVIDERS if name in available]
    try:
        return onnxruntime.InferenceSession(
            os.fspath(path), options, providers=providers
        )
    except (
        _errors.Fail,
        _errors.InvalidArgument,
        _errors.InvalidGraph,
        _errors.InvalidProtobuf,
        _errors.NotImplemented,
        _errors.RuntimeException,
    ) as error:
        raise InvalidValueError(
            f"'{path}' cannot be read as an ONNX file ({error}). It is damaged, or "
            "not ONNX: export the model again."
        ) from error
