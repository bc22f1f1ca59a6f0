"""Padding of windows with a stride: as TensorFlow has it, and as PyTorch."""

from __future__ import annotations

from typing import Any

from keras import ops

from effdet_keras.config import PADDINGS
from effdet_keras.errors import InvalidValueError


def check_padding(padding: str) -> str:
    """Returns `padding` if it is one of `effdet_keras.config.PADDINGS`.

    Raises:
        ValueError: If it is not.

    Example:
        >>> check_padding("symmetric")
        'symmetric'
    """
    if padding not in PADDINGS:
        raise InvalidValueError(
            f"`padding` must be one of {', '.join(PADDINGS)}. "
            f"Received: padding={padding!r}"
        )
    return padding


def rows_to_add(padding: str, kernel_size: int, stride: int) -> int:
    """Returns how many rows of zeros a convolution needs on each side before it.

    TensorFlow's "same" puts the odd row behind an image; PyTorch's models pad both
    sides alike. With an odd kernel the two differ only where there is a stride, and the
    results have the same size.

    Args:
        padding: "same" or "symmetric".
        kernel_size: int, odd.
        stride: int.

    Returns:
        Int. 0 if the convolution itself does the padding, with "same"; after any other
        number it must be "valid".

    Example:
        >>> rows_to_add("symmetric", 5, 2), rows_to_add("same", 5, 2)
        (2, 0)
    """
    symmetric = check_padding(padding) == "symmetric" and stride > 1
    return (kernel_size - 1) // 2 if symmetric else 0


def pad_with_zeros(x: Any, rows: int) -> Any:
    """Puts rows and columns of zeros around `[B, H, W, C]`, `rows` on each side."""
    if rows == 0:
        return x
    return ops.pad(x, [[0, 0], [rows, rows], [rows, rows], [0, 0]])


def repeat_edges(x: Any, times: tuple[int, int]) -> Any:
    """Repeats the outermost rows and columns of `[B, H, W, C]`.

    Before max pooling it is what padding with minus infinity is, as long as each window
    has the edge in it, and no infinity comes into a quantized model.

    Args:
        x: tensor `[B, H, W, C]`.
        times: pair of 0 or 1, whether to repeat rows, and columns.

    Returns:
        Tensor `[B, H + 2 * times[0], W + 2 * times[1], C]`.

    Example:
        >>> tuple(repeat_edges(ops.ones((1, 2, 2, 1)), (1, 0)).shape)
        (1, 4, 2, 1)
    """
    if times[0]:
        x = ops.concatenate([x[:, :1], x, x[:, -1:]], axis=1)
    if times[1]:
        x = ops.concatenate([x[:, :, :1], x, x[:, :, -1:]], axis=2)
    return x


def strided(size: int | None, stride: int) -> int | None:
    """Returns the rows of a result for those of an input, with either padding."""
    return None if size is None else -(-size // stride)
