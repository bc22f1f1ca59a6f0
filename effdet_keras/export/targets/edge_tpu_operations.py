"""What `edgetpu_compiler` 16 takes, and what of it the Edge TPU runs.

The compiler (16.0.384591198, of July 2021) parses a file with the LiteRT of that time,
and refuses all of it for one operation that is newer ("Didn't find op for builtin
opcode 'CONV_2D' version '6'", https://github.com/google-coral/edgetpu/issues/631, of
TensorFlow 2.9; also QUANTIZE 3, issue 879, of 2.7). The newest versions below are those
that TensorFlow 2.5, of May 2021, had:
https://github.com/tensorflow/tensorflow/blob/v2.10.0/tensorflow/lite/tools/versioning/runtime_version.cc
What the Edge TPU runs is https://coral.ai/docs/edgetpu/models-intro/#supported-operations
"""

from effdet_keras.errors import InvalidValueError

# Operation to its newest version that the compiler parses.
NEWEST_VERSIONS = {
    "ADD": 3,
    "AVERAGE_POOL_2D": 3,
    "CONCATENATION": 3,
    "CONV_2D": 5,
    "DEPTHWISE_CONV_2D": 6,
    "DEQUANTIZE": 4,
    "EXPAND_DIMS": 1,
    "FULLY_CONNECTED": 9,
    "HARD_SWISH": 1,
    "LOGISTIC": 3,
    "MAXIMUM": 4,
    "MAX_POOL_2D": 3,
    "MEAN": 3,
    "MINIMUM": 4,
    "MUL": 4,
    "PACK": 3,
    "PAD": 3,
    "PADV2": 3,
    "QUANTIZE": 2,
    "RELU": 3,
    "RELU6": 3,
    "RESHAPE": 1,
    "RESIZE_BILINEAR": 4,
    "RESIZE_NEAREST_NEIGHBOR": 4,
    "SLICE": 5,
    "SPLIT": 4,
    "STRIDED_SLICE": 5,
    "SUB": 5,
    "SUM": 2,
    "TRANSPOSE": 5,
}

# Of these, what the Edge TPU runs itself, in 8 bits.
_ON_THE_CHIP = frozenset(NEWEST_VERSIONS) - {"DEQUANTIZE", "HARD_SWISH", "PADV2"}
_CUSTOM = "TFLite_Detection_PostProcess"  # the compiler leaves it to the CPU
# An operation on these is one in 8 bits: INT32 are biases and sizes.
_QUANTIZED = frozenset(("INT8", "UINT8", "INT32"))


def require_compilable(operations):
    """Refuses a file that `edgetpu_compiler` 16 would refuse as a whole.

    Args:
        operations: list of `Operation`.

    Raises:
        ValueError: If one is unknown or too new, or has a shape that is not fixed. It
            names all of them.
    """
    problems = []
    for operation in operations:
        known = {_CUSTOM: 1} if operation.is_custom else NEWEST_VERSIONS
        newest = known.get(operation.name)
        if newest is None:
            problems.append(f"{operation.name} is unknown to it")
        elif operation.version > newest:
            problems.append(
                f"{operation.name} is of version {operation.version}, above {newest}"
            )
        elif not operation.is_static:
            problems.append(f"{operation.name} has a shape that is not fixed")
    if problems:
        raise InvalidValueError(
            f"edgetpu_compiler 16 would refuse the file: {'; '.join(problems)}. "
            "Nothing was written. Train a plain `efficientdet-lite0` to `-lite3`, or "
            "export with an older TensorFlow."
        )


def operations_on_cpu(operations):
    """What the compiler leaves to the CPU.

    Args:
        operations: list of `Operation`.

    Returns:
        List of strings, such as "DEQUANTIZE (2)".
    """
    counts: dict = {}
    for operation in operations:
        runs = operation.name in _ON_THE_CHIP and operation.types <= _QUANTIZED
        if not runs:
            counts[operation.name] = counts.get(operation.name, 0) + operation.count
    return [f"{name} ({count})" for name, count in counts.items()]
