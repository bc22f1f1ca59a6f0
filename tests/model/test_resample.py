"""Resampling between levels, against the reference and by hand."""

import numpy as np
import pytest
from keras import ops

from effdet_keras.model.basic_layers import BatchNormOptions, PyramidOptions
from effdet_keras.model.resample import Resample

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


def test_rows_of_a_larger_map_repeat_by_hand():
    column = np.arange(4, dtype="float32").reshape(1, 4, 1, 1)
    up = ops.convert_to_numpy(Resample(1, (7, 1))(column)).ravel()
    assert up.tolist() == [0, 0, 1, 1, 2, 2, 3]
    doubled = ops.convert_to_numpy(Resample(1, (8, 1))(column)).ravel()
    assert doubled.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_pools_a_window_of_three_by_hand():
    row = np.array([5.0, 1.0, 2.0, 9.0], "float32").reshape(1, 1, 4, 1)
    pooled = Resample(1, (1, 2))(row)
    # SAME padding puts the spare pixel last: windows 0-2 and 2-3.
    assert ops.convert_to_numpy(pooled).ravel().tolist() == [5.0, 9.0]


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


def test_has_weights_only_where_channels_differ():
    same, other = Resample(4, (2, 2)), Resample(8, (2, 2))
    same.build((None, 4, 4, 4))
    other.build((None, 4, 4, 4))
    assert same.weights == []
    assert [w.path.split("/", 1)[1] for w in other.weights] == [
        "conv2d/kernel",
        "conv2d/bias",
        "bn/gamma",
        "bn/beta",
        "bn/moving_mean",
        "bn/moving_variance",
    ]


def test_batch_norm_options_reach_the_layer():
    norm = BatchNormOptions(frozen=True, momentum=0.5)
    layer = Resample(8, (2, 2), PyramidOptions(batch_norm=norm))
    layer.build((None, 4, 4, 4))
    assert (layer.bn.trainable, layer.bn.momentum) == (False, 0.5)


@pytest.mark.parametrize(
    "shape, target, message",
    [
        ((1, 4, 8, 2), (8, 4), "cannot shrink one side and grow the other"),
        ((1, None, 8, 2), (8, 8), "known height, width"),
    ],
)
def test_wrong_sizes_are_named(shape, target, message):
    with pytest.raises(ValueError, match=message):
        Resample(2, target).build(shape)


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


def test_a_side_of_one_row_is_pooled_as_it_is():
    values = np.float32([[[[1.0], [5.0], [3.0], [2.0]]]])  # one row
    layer = Resample(1, (1, 2), SYMMETRIC)
    assert ops.convert_to_numpy(layer(values)).ravel().tolist() == [5.0, 5.0]


@pytest.mark.parametrize("size, target", [(4, 2), (5, 3), (2, 4), (4, 7), (1, 2)])
def test_bilinear_interpolation_by_definition(size, target):
    values = np.random.default_rng(0).normal(size=(1, size, 1, 1)).astype("float32")
    places = (np.arange(target) + 0.5) * size / target - 0.5
    expected = np.interp(places, np.arange(size), values.ravel())  # flat at the ends
    layer = Resample(1, (target, 1), BILINEAR)
    found = ops.convert_to_numpy(layer(values)).ravel()
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_what_symmetric_pooling_cannot_do_is_told():
    with pytest.raises(ValueError, match="can halve a size.*target_size=.2, 2."):
        Resample(1, (2, 2), SYMMETRIC).build((1, 6, 6, 1))
    for field in ("downsampling", "upsampling", "padding"):
        with pytest.raises(ValueError, match=f"`{field}` must be one of .*'area'"):
            Resample(1, (2, 2), PyramidOptions(**{field: "area"}))
