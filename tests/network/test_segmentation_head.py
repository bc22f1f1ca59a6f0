"""The segmentation head, beside a plain definition, and at sizes that are not even."""

import numpy as np
import pytest
from keras import ops

from effdet_keras.extras.segmentation_head import SegmentationHead


def maps(*sizes, channels=3):
    rng = np.random.default_rng(5)
    return [rng.normal(size=(2, h, w, channels)).astype("float32") for h, w in sizes]


def doubled(x, kernel):
    """A transposed convolution of stride 2, 3 x 3, SAME: each input spreads a kernel.

    Of the `2n + 1` rows and columns that the kernels reach, the last is cut off.
    """
    batch, height, width, _ = x.shape
    out = np.zeros((batch, 2 * height + 1, 2 * width + 1, kernel.shape[2]))
    for i in range(height):
        for j in range(width):
            patch = np.einsum("bc,uvoc->buvo", x[:, i, j], kernel)
            out[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += patch
    return out[:, : 2 * height, : 2 * width]


@pytest.mark.parametrize("sizes", [((4, 8), (2, 4), (1, 2)), ((5, 7), (3, 4), (2, 2))])
def test_it_equals_a_plain_definition(sizes):
    head = SegmentationHead(2, filters=3, activation="relu")
    levels = maps(*sizes)
    found = ops.convert_to_numpy(head(levels))
    kernels = [ops.convert_to_numpy(c.kernel) for c in [*head.convs, head.predict_conv]]
    x = levels[-1]
    for kernel, skip in zip(kernels, levels[-2::-1]):
        x = doubled(x, kernel)[:, : skip.shape[1], : skip.shape[2]]
        x = np.maximum(x / np.sqrt(1 + head.bns[0].epsilon), 0)  # new batch norms
        x = np.concatenate([x, skip], axis=-1)
    expected = doubled(x, kernels[-1])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_output_ends_where_the_image_does():
    head = SegmentationHead(2, filters=3, output_size=(9, 14))
    levels = maps((5, 7), (3, 4))
    whole = SegmentationHead(2, filters=3)
    whole.build([x.shape for x in levels])
    head.build([x.shape for x in levels])
    whole.set_weights(head.get_weights())
    assert head(levels).shape == (2, 9, 14, 2)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(head(levels)), ops.convert_to_numpy(whole(levels))[:, :9]
    )
