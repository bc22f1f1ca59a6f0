"""Mean IoU, by hand and by definition."""

import numpy as np
import pytest

from effdet_keras.evaluate.mean_iou import MeanIoU


def test_it_equals_the_definition_over_several_images():
    rng = np.random.default_rng(0)
    masks, found = rng.integers(0, 3, (2, 4, 8, 9))
    masks[rng.random(masks.shape) < 0.2] = 255
    metric = MeanIoU("abcd")  # no pixel is a d
    for mask, class_map in zip(masks, found):
        metric.update(mask, class_map)
    known = masks != 255
    of_classes = [
        ((masks == k) & (found == k))[known].sum()
        / ((masks == k) | (found == k))[known].sum()
        for k in range(3)
    ]
    result = metric.result()
    np.testing.assert_allclose(
        [result[f"IoU/{name}"] for name in "abc"], of_classes, rtol=1e-12
    )
    assert result["IoU/d"] == -1.0
    np.testing.assert_allclose(result["mIoU"], np.mean(of_classes), rtol=1e-12)
    metric.reset()
    assert metric.result()["mIoU"] == -1.0


def test_pixels_of_uint8_do_not_overflow():
    count = 200
    names = list(map(str, range(count)))
    metric = MeanIoU(names)
    pixels = np.arange(count, dtype="uint8")[None]
    metric.update(pixels, pixels)
    assert metric.result()["mIoU"] == 1.0


def test_what_cannot_be_compared_is_refused():
    metric = MeanIoU(["a", "b"])
    with pytest.raises(ValueError, match=r"the same shape.*\(1, 2\).*\(1, 3\)"):
        metric.update([[0, 1]], [[0, 1, 1]])
    with pytest.raises(ValueError, match=r"from 0 to 1.*classes=\(0, 2\)"):
        metric.update([[0, 1]], [[0, 2]])
