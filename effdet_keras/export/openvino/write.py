"""OpenVINO files, made of the ONNX model."""

import pathlib
import tempfile

from effdet_keras.errors import InvalidValueError, MissingPackageError
from effdet_keras.export.description import DESCRIPTION_NAME, describe
from effdet_keras.export.onnx.write import write_onnx

_PRECISIONS = ("float32", "float16")


def write_openvino(
    model,
    path,
    *,
    outputs="detections",
    batch_size=None,
    precision="float32",
    postprocess=None,
):
    """Writes an OpenVINO model: the `.xml` at `path`, weights in a `.bin` beside it.

    Input and outputs are as in `write_onnx`.

    Args:
        model: float32 `EfficientDet`.
        path: `pathlib.Path` of the `.xml` file to write.
        outputs, batch_size, postprocess: see `write_onnx`.
        precision: "float32" or "float16", of the weights in the file, which is half
            as large then. In what precision a device computes is its own affair.

    Raises:
        ValueError: If an option is none of these.
        ImportError: If openvino, onnx or tf2onnx is not installed.
    """
    if precision not in _PRECISIONS:
        raise InvalidValueError(
            f"`precision` must be one of {_PRECISIONS}. Received: {precision!r}"
        )
    openvino = _package()
    description = describe(
        model,
        outputs=outputs,
        precision=precision,
        batch_size=batch_size,
        postprocess=postprocess or model.postprocess,
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
        openvino.save_model(network, path, compress_to_fp16=precision == "float16")


def _package():
    try:
        import openvino
    except ImportError as error:
        raise MissingPackageError(
            'OpenVINO export needs openvino: pip install "effdet-keras[openvino]"'
        ) from error
    return openvino
