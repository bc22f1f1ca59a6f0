"""Two groups of arrays are equal, or the error names those that are not."""

import numpy as np
from keras import ops


def assert_equal(first, second, *, rtol=0.0, atol=0.0):
    """Asserts that two groups of arrays, variables or tensors are equal.

    Each group is a mapping from names to arrays or a sequence of arrays. Both must have
    the same names, or as many arrays; each pair must have one shape. With no tolerance
    the values must be equal to the bit. NaN equals NaN.

    Args:
        first: mapping or sequence of arrays, Keras variables or tensors.
        second: the expected ones, in the same form.
        rtol: float, how far a value may be off, relative to that of `second`.
        atol: float, how far a value may be off, in the unit of the values.

    Raises:
        AssertionError: If the groups differ. It names the arrays that differ.
    """
    first, second = _arrays_by_name(first), _arrays_by_name(second)
    in_one = sorted(first.keys() ^ second.keys(), key=str)
    assert not in_one, f"{len(in_one)} arrays are in one group only: {in_one[:5]}"
    different = []
    for name, found in first.items():
        expected = second[name]
        if found.shape != expected.shape:
            different.append(f"{name}: shapes {found.shape} and {expected.shape}")
        elif rtol or atol:
            pair = found.astype("float64"), expected.astype("float64")
            if not np.allclose(*pair, rtol=rtol, atol=atol, equal_nan=True):
                different.append(_largest_difference(name, *pair))
        elif not np.array_equal(found, expected, equal_nan=True):
            pair = found.astype("float64"), expected.astype("float64")
            different.append(_largest_difference(name, *pair))
    assert not different, f"{len(different)} of {len(first)} differ: {different[:5]}"


def _arrays_by_name(group):
    """NumPy arrays by name; those of a sequence have their positions as names."""
    items = group.items() if hasattr(group, "items") else enumerate(group)
    return {name: np.asarray(ops.convert_to_numpy(value)) for name, value in items}


def _largest_difference(name, found, expected):
    return f"{name}: by up to {np.max(np.abs(found - expected)):.3g}"
