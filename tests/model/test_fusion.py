"""Weighted fusion, against the reference and by hand."""

import numpy as np
import pytest
from keras import ops

from effdet_keras.model.bifpn import WeightedFusion
from effdet_keras.model.config import FUSION_METHODS


def fuse(method, inputs, weights=None):
    layer = WeightedFusion(method)
    layer.build([x.shape for x in inputs])
    if weights is not None and method != "sum":
        for variable, value in zip(layer.fusion_weights, weights):
            variable.assign(value)
    return ops.convert_to_numpy(layer(inputs))


@pytest.mark.parametrize("count, prefix", [(3, "fuse"), (2, "fuse2")])
@pytest.mark.parametrize("method", FUSION_METHODS)
def test_equals_the_reference(golden, method, count, prefix):
    arrays = golden("layers.npz")
    inputs = [arrays[f"fuse/node{i}"] for i in range(count)]
    kind = "channel" if "channel" in method else "scalar"
    weights = arrays[f"fuse/{kind}_weights"][:count]
    np.testing.assert_allclose(
        fuse(method, inputs, weights),
        arrays[f"{prefix}/{method}"],
        rtol=1e-5,
        atol=1e-6,  # the order of three additions
    )


def test_negative_weights_are_cut_and_the_rest_normalised_by_hand():
    inputs = [np.full((1, 1, 1, 1), v, "float32") for v in (10.0, 20.0, 30.0)]
    fused = fuse("fastattn", inputs, [1.0, -5.0, 3.0])
    assert fused.ravel()[0] == pytest.approx((10 + 90) / 4.0001)


def test_all_weights_negative_give_zero_and_not_nan():
    inputs = [np.ones((1, 2, 2, 3), "float32")] * 2
    np.testing.assert_array_equal(fuse("fastattn", inputs, [-1.0, -2.0]), 0.0)


def test_scale_of_the_weights_does_not_matter():
    inputs = list(np.random.default_rng(0).normal(size=(2, 1, 3, 3, 4)))
    inputs = [x.astype("float32") for x in inputs]
    np.testing.assert_allclose(
        fuse("fastattn", inputs, [1.0, 3.0]),
        fuse("fastattn", inputs, [100.0, 300.0]),
        rtol=1e-4,  # epsilon weighs less beside larger weights
    )


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="one of fastattn.*method='mean'"):
        WeightedFusion("mean")
    with pytest.raises(ValueError, match="two or more inputs of one shape"):
        WeightedFusion().build([(1, 2, 2, 3), (1, 4, 4, 3)])
    with pytest.raises(ValueError, match="two or more inputs of one shape"):
        WeightedFusion().build([(1, 2, 2, 3)])
