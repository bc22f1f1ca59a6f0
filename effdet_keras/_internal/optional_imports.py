"""Optional packages, imported on first use.

A module names them at its top, like any import. TensorFlow is optional because Keras
also runs on JAX and torch, and because `effdet-keras --help` must not wait for it.
Keras is optional in the modules that a `Predictor` needs: LiteRT, ONNX and OpenVINO
files run without either.
"""

import importlib.util

from effdet_keras._internal.tensorflow_log import import_module
from effdet_keras.errors import MissingPackageError


class OptionalModule:
    """Stands for a module, and imports it when one of its attributes is read."""

    def __init__(self, name, install):
        self._name, self._install = name, install

    def is_installed(self):
        """Returns whether the package is installed, without importing it."""
        return importlib.util.find_spec(self._name.partition(".")[0]) is not None

    def require(self, purpose="This"):
        """Imports the module; raises `MissingPackageError` with the `pip` command."""
        try:
            return import_module(self._name)
        except ImportError as error:
            packages = " ".join(f'"{package}"' for package in self._install.split())
            is_absent = f"{self._name}.".startswith(f"{error.name}.")
            reason = "" if is_absent else f" ({error})"
            raise MissingPackageError(
                f"{purpose} needs {self._name}{reason}: pip install {packages}"
            ) from error

    def __getattr__(self, attribute):
        if attribute.startswith("__"):  # asked by tools that inspect every object
            raise AttributeError(attribute)
        return getattr(self.require(), attribute)


tensorflow = OptionalModule("tensorflow", install="tensorflow")
keras = OptionalModule("keras", install="keras tensorflow")
keras_ops = OptionalModule("keras.ops", install="keras tensorflow")
jax = OptionalModule("jax", install="jax")
torch = OptionalModule("torch", install="torch")

# Exports.
ai_edge_litert = OptionalModule(
    "ai_edge_litert.interpreter", install="effdet-keras[litert]"
)
coremltools = OptionalModule("coremltools", install="effdet-keras[coreml]")
coreml_models = OptionalModule(
    "coremltools.proto.Model_pb2", install="effdet-keras[coreml]"
)
mil = OptionalModule("coremltools.converters.mil", install="effdet-keras[coreml]")
mil_files = OptionalModule(
    "coremltools.converters.mil.frontend.milproto.load",
    install="effdet-keras[coreml]",
)
executorch = OptionalModule("executorch.runtime", install="effdet-keras[executorch]")
executorch_exir = OptionalModule("executorch.exir", install="effdet-keras[executorch]")
executorch_xnnpack = OptionalModule(
    "executorch.backends.xnnpack.partition.xnnpack_partitioner",
    install="effdet-keras[executorch]",
)
flatbuffers = OptionalModule("flatbuffers", install="tensorflow")
flexbuffers = OptionalModule("flatbuffers.flexbuffers", install="effdet-keras[litert]")
tflite_schema = OptionalModule(
    "ai_edge_litert.schema_py_generated", install="effdet-keras[litert]"
)
tflite_files = OptionalModule(
    "ai_edge_litert.tools.flatbuffer_utils", install="effdet-keras[litert]"
)
mnn = OptionalModule("MNN", install="effdet-keras[mnn]")
ncnn = OptionalModule("ncnn", install="effdet-keras[ncnn]")
onnx = OptionalModule("onnx", install="effdet-keras[onnx]")
onnxruntime = OptionalModule("onnxruntime", install="effdet-keras[onnx]")
openvino = OptionalModule("openvino", install="effdet-keras[openvino]")
openvino_ops = OptionalModule("openvino.opset8", install="effdet-keras[openvino]")
pnnx = OptionalModule("pnnx", install="effdet-keras[ncnn]")
tf2onnx = OptionalModule("tf2onnx", install="effdet-keras[onnx]")

# Videos, cameras and plots.
trackers = OptionalModule("trackers", install="effdet-keras[track]")
supervision = OptionalModule("supervision", install="effdet-keras[track]")
cv2 = OptionalModule("cv2", install="effdet-keras[video]")
matplotlib_figure = OptionalModule("matplotlib.figure", install="effdet-keras[plot]")
pyplot = OptionalModule("matplotlib.pyplot", install="effdet-keras[plot]")

# Photos taken by phones.
pillow_heif = OptionalModule("pillow_heif", install="effdet-keras[heif]")

# PyTorch weights.
safetensors = OptionalModule("safetensors", install="effdet-keras[safetensors]")

# Datasets of other libraries.
datumaro = OptionalModule("datumaro", install="effdet-keras[datumaro]")
hf_datasets = OptionalModule("datasets", install="effdet-keras[datasets]")
parquet = OptionalModule("pyarrow.parquet", install="effdet-keras[parquet]")
