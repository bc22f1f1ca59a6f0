"""NPUs of phones with LiteRT: a `.tflite` file that runs on them completely."""

from __future__ import annotations

from collections import Counter

from effdet_keras._internal.optional_imports import tflite_files
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.litert import network_of_file
from effdet_keras.export.network import CALIBRATION_IMAGES
from effdet_keras.export.registry import FORMATS, NPU_VENDORS, Written
from effdet_keras.extras.targets.detector import HEADER_NAME, write_detector
from effdet_keras.extras.targets.tflite import MODEL_NAME, require_detection_alone

_MAX_RANK = 4  # of tensors, from MediaTek's MDLA guidelines; the lowest of all vendors
_NUMBERS_OF_INT8 = {"INT8", "INT32"}  # 32 bits are for biases and shapes
_NUMBERS_OF_FLOAT16 = {"FLOAT16", "FLOAT32", "INT32"}

# The operations that each vendor's LiteRT plugin passes to its compiler, by their names
# in TFLite's schema (https://github.com/google-ai-edge/LiteRT, 2026-11-28):
# litert/vendors/qualcomm/compiler/qnn_compose_graph.cc,
# litert/vendors/mediatek/compiler/MediaTek_Neuro_Compiler.md,
# litert/vendors/samsung/compiler/create_model.cc.
_TAKEN = {
    "qualcomm": """
        ADD AVERAGE_POOL_2D BATCH_MATMUL BROADCAST_TO CAST CONCATENATION CONV_2D COS
        CUMSUM DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE DIV DYNAMIC_UPDATE_SLICE
        EMBEDDING_LOOKUP FLOOR_DIV FULLY_CONNECTED GATHER GATHER_ND GELU GREATER
        HARD_SWISH LEAKY_RELU LESS LOGICAL_AND LOGISTIC MAXIMUM MAX_POOL_2D MEAN MINIMUM
        MUL NOT_EQUAL PACK PAD PADV2 POW QUANTIZE RELU RELU6 RESHAPE RESIZE_BILINEAR
        RESIZE_NEAREST_NEIGHBOR RSQRT SELECT SELECT_V2 SIN SLICE SOFTMAX SPACE_TO_DEPTH
        SPLIT SQUARE SQUARED_DIFFERENCE STRIDED_SLICE SUB SUM TANH TRANSPOSE
        TRANSPOSE_CONV
    """,
    "mediatek": """
        ABS ADD AVERAGE_POOL_2D BATCH_MATMUL CAST CONCATENATION CONV_2D
        DEPTHWISE_CONV_2D DEQUANTIZE DIV FULLY_CONNECTED GELU GREATER HARD_SWISH
        L2_NORMALIZATION LEAKY_RELU LESS LOGISTIC MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL
        PAD PADV2 PRELU QUANTIZE REDUCE_MAX RELU RESHAPE RESIZE_BILINEAR
        RESIZE_NEAREST_NEIGHBOR RSQRT SLICE SOFTMAX SPLIT SQRT SQUARED_DIFFERENCE
        STRIDED_SLICE SUB SUM TANH TILE TRANSPOSE TRANSPOSE_CONV UNPACK
    """,
    "samsung": """
        ABS ADD AVERAGE_POOL_2D BATCH_MATMUL CAST CEIL CONCATENATION CONV_2D COS CUMSUM
        DEPTHWISE_CONV_2D DEQUANTIZE DIV EMBEDDING_LOOKUP EQUAL EXP FLOOR FLOOR_DIV
        FULLY_CONNECTED GATHER GATHER_ND GELU GREATER GREATER_EQUAL HARD_SWISH
        L2_NORMALIZATION LEAKY_RELU LESS LOG LOGICAL_AND LOGISTIC MAXIMUM MAX_POOL_2D
        MEAN MINIMUM MIRROR_PAD MUL NOT_EQUAL PAD PADV2 POW QUANTIZE REDUCE_MAX
        REDUCE_MIN RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR
        RESIZE_NEAREST_NEIGHBOR REVERSE_V2 RSQRT SELECT SELECT_V2 SIN SLICE SOFTMAX
        SPACE_TO_DEPTH SPLIT SQRT SQUARED_DIFFERENCE STRIDED_SLICE SUB SUM TANH
        TRANSPOSE TRANSPOSE_CONV
    """,
}
# The operations that the plugin does not pass to the compiler, while it passes all
# others: litert/vendors/google_tensor/compiler/compiler_plugin.cc.
_REFUSED = {
    "google-tensor": """
        ASSIGN_VARIABLE BIDIRECTIONAL_SEQUENCE_LSTM BROADCAST_ARGS BUCKETIZE CALL_ONCE
        COMPLEX_ABS CONV_3D CONV_3D_TRANSPOSE CUSTOM DENSIFY FAKE_QUANT HASHTABLE
        HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE IMAG LOCAL_RESPONSE_NORMALIZATION
        MATRIX_DIAG MATRIX_SET_DIAG MULTINOMIAL NON_MAX_SUPPRESSION_V4
        NON_MAX_SUPPRESSION_V5 RANDOM_STANDARD_NORMAL RANDOM_UNIFORM RANK READ_VARIABLE
        REAL REDUCE_PROD REVERSE_SEQUENCE RFFT2D SEGMENT_SUM SHAPE SPARSE_TO_DENSE
        STABLEHLO_COMPOSITE STABLEHLO_REDUCE_WINDOW STABLEHLO_SCATTER SVDF
        UNIDIRECTIONAL_SEQUENCE_RNN UNIQUE UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_MIN
        UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_SUM VAR_HANDLE WHERE
    """,
}


def write_litert_npu(
    model,
    folder,
    path,
    *,
    vendor=None,
    calibration=None,
    calibration_images=CALIBRATION_IMAGES,
):
    """Writes `model.tflite` with the maps of each level, and files to decode them.

    With `calibration`, or for a model that was trained with `quantize_aware`, all
    numbers are int8, also input and outputs. Otherwise weights are float16. The
    operations are compared with the table of the `vendor`, by default with those of all
    vendors.
    """
    require_detection_alone(model, "litert-npu")
    is_int8 = calibration is not None or model.quantization is not None
    options = {"precision": "float16"}
    if is_int8:
        options = {"precision": "int8", "input_dtype": "int8"}
        options |= {"calibration": calibration}
        options |= {"calibration_images": calibration_images or CALIBRATION_IMAGES}
    file = folder / MODEL_NAME
    FORMATS["litert"].write(model, file, outputs="levels", **options)
    network = tflite_files.convert_bytearray_to_object(network_of_file(file))
    vendors = NPU_VENDORS if vendor is None else (vendor,)
    operations = require_npu_network(network, vendors, is_int8=is_int8)
    write_detector(model, folder)
    notes = (
        f"  {operations.total()} operations of {len(operations)} kinds, all of which "
        f"are in the tables of {', '.join(vendors)}",
        f"  {path / HEADER_NAME} converts the outputs to detections, in C++",
    )
    return Written(file, "litert", notes)


def require_npu_network(network, vendors, *, is_int8):
    """Raises an error unless NPU compilers support a whole network (`ModelT`).

    Each vendor must support every operation. Every tensor must have a fixed shape of at
    most four axes, and a dtype of the precision.

    Returns:
        `Counter` of the names of the operations.

    Raises:
        ValueError: If an operation or a tensor is not supported.
    """
    (graph,) = network.subgraphs
    operations = Counter(
        tflite_files.opcode_to_name(network, operator.opcodeIndex)
        for operator in graph.operators
    )
    for vendor in vendors:
        if missing := _missing(operations, vendor):
            raise InvalidValueError(
                f"LiteRT does not support {', '.join(missing)} on the NPUs of "
                f"{vendor}, so a part of the network would run on the CPU. Give the "
                f"`vendor` for which the file is made, one of {', '.join(NPU_VENDORS)}"
            )
    numbers = _NUMBERS_OF_INT8 if is_int8 else _NUMBERS_OF_FLOAT16
    for tensor in graph.tensors:
        shape, signature = tensor.shape, tensor.shapeSignature
        shape = [] if shape is None else list(shape)
        is_fixed = signature is None or min(signature, default=1) > 0
        kind = tflite_files.type_to_name(tensor.type)
        if len(shape) > _MAX_RANK or not is_fixed or kind not in numbers:
            raise InvalidValueError(
                "NPUs need tensors with a fixed shape of at most four axes, and with "
                f"numbers of the types {', '.join(sorted(numbers))}. Received: "
                f"{tensor.name.decode()}, shape={shape}, {kind}"
            )
    return operations


def _missing(operations, vendor):
    """Returns the operations that a vendor's compiler does not get, sorted."""
    if vendor in _REFUSED:
        return sorted(set(operations) & set(_REFUSED[vendor].split()))
    return sorted(set(operations) - set(_TAKEN[vendor].split()))
