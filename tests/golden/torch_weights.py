"""Weights for models of PyTorch effdet, made from their names; NumPy alone is needed.

The side that runs effdet and the side that runs this package fill their models with the
same numbers. `RandomState` is used because NumPy promises never to change its stream.
"""

import hashlib

import numpy as np


def value(name, shape):
    """The value of an entry of effdet's state dict, float32.

    Kernels are such that activations keep their scale, and statistics of batch norms
    are far from their first values.

    Args:
        name: string, the entry's name.
        shape: tuple of ints, in torch's order of axes.

    Example:
        >>> value("backbone.bn1.running_var", (2,)).dtype
        dtype('float32')
    """
    digest = hashlib.sha256(f"effdet|{name}".encode()).digest()
    rng = np.random.RandomState(int.from_bytes(digest[:4], "little"))
    if name.endswith("running_var"):
        array = rng.uniform(0.5, 1.5, shape)
    elif name.endswith("edge_weights"):
        array = rng.uniform(-0.2, 2.0, shape)
    elif len(shape) == 4:
        fan_in = shape[1] * shape[2] * shape[3]
        # Projections of residual branches are small, the last layers large.
        gain = 0.1 if "conv_pwl" in name else 6.0 if "predict" in name else 1.5
        array = rng.standard_normal(shape) * np.sqrt(gain / fan_in)
    elif name.endswith("weight"):  # the scale of a batch norm
        array = rng.uniform(0.5, 1.5, shape)
    else:  # biases, and means
        array = 0.1 * rng.standard_normal(shape)
    return np.asarray(array, "float32")


def image(shape):
    """An image that is normalised already, `[B, H, W, 3]`, float32."""
    return np.random.RandomState(17).standard_normal(shape).astype("float32")
