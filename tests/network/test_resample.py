"""Resampling between levels, against the reference and by hand."""

import numpy as np
import pytest
from keras import ops

from effdet_keras.network.layers import PyramidOptions
from effdet_keras.network.resample import Resample

NO_NORM = {"apply_bn_for_resampling": False}
SYMMETRIC = PyramidOptions(padding="symmetric")
BILINEAR = PyramidOptions(downsampling="bilinear", upsampling="bilinear")


def reference_cases(golden):
    arrays = golden("layers.npz")
    return [k for k in arrays.files if k.startswith("resample/") and "_to_" in k]


@pytest.mark.slow_elsewhere
def test_equals_the_reference_for_all_sizes(golden, refweights):
    arrays = golden("layers.npz")
    names = reference_cases(golden)
    assert len(names) == 26
    for name in names:
        size, target = map(int, name.split("/")[1].split("_to_"))
        x = refweights.image(100 + size, (1, size, size, 2))
        ours = Resample(2, (target, target))(x)
        np.testing.assert_array_equal(
            ops.convert_to_numpy(ours), arrays[name], err_msg=name
        )


@pytest.mark.parametrize(
    ("values", "target", "options", "expected"),
    [
        ([[0], [1], [2], [3]], (7, 1), None, [0, 0, 1, 1, 2, 2, 3]),
        ([[0], [1], [2], [3]], (8, 1), None, [0, 0, 1, 1, 2, 2, 3, 3]),
        # SAME padding puts the spare pixel last: windows 0-2 and 2-3.
        ([[5, 1, 2, 9]], (1, 2), None, [5, 9]),
        ([[1, 5, 3, 2]], (1, 2), SYMMETRIC, [5, 5]),  # and a side of one row
    ],
)
def test_by_hand(values, target, options, expected):
    x = np.array(values, "float32")[None, :, :, None]
    found = Resample(1, target, options)(x)
    assert ops.convert_to_numpy(found).ravel().tolist() == expected


def test_order_of_pooling_and_convolution():
    x = np.array([-1.0, -3.0], "float32").reshape(1, 1, 2, 1)
    for after, expected in ((False, 6.0), (True, 2.0)):
        layer = Resample(
            2, (1, 1), PyramidOptions(**NO_NORM, conv_after_downsample=after)
        )
        layer.build(x.shape)
        layer.conv.kernel.assign(np.full((1, 1, 1, 2), -2.0))
        # Minus two times the largest, or the largest of minus two times.
        assert ops.convert_to_numpy(layer(x)).ravel().tolist() == [expected] * 2


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_symmetric_pooling_by_definition(size):
    values = np.random.default_rng(size).normal(size=(1, size, size, 2))
    values = values.astype("float32")
    target = (size + 1) // 2
    padded = np.pad(values, [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=-np.inf)
    expected = np.stack(
        [
            [
                padded[0, 2 * y : 2 * y + 3, 2 * x : 2 * x + 3].max((0, 1))
                for x in range(target)
            ]
            for y in range(target)
        ]
    )
    layer = Resample(2, (target, target), SYMMETRIC)
    found = ops.convert_to_numpy(layer(values))[0]
    np.testing.assert_array_equal(found, expected)
    differs = size == 4  # of odd sizes, and where one window has all, it is the same
    same = ops.convert_to_numpy(Resample(2, (target, target))(values))[0]
    assert np.array_equal(found, same) != differs


@pytest.mark.parametrize("size, target", [(4, 2), (5, 3), (2, 4), (4, 7), (1, 2)])
def test_bilinear_interpolation_by_definition(size, target):
    values = np.random.default_rng(0).normal(size=(1, size, 1, 1)).astype("float32")
    places = (np.arange(target) + 0.5) * size / target - 0.5
    expected = np.interp(places, np.arange(size), values.ravel())  # flat at the ends
    layer = Resample(1, (target, 1), BILINEAR)
    found = ops.convert_to_numpy(layer(values)).ravel()
    np.testing.assert_allclose(found, expected, atol=1e-6)
