"""Detections of all pairs, limits per class, and boxes beside the image."""

import numpy as np
import pytest
from keras import ops

from effdet_keras.detect import postprocess
from effdet_keras.detect.postprocess import Postprocess


def grid(num_anchors, num_classes, seed=0):
    """Random outputs on anchors of 8 x 8 pixels, 4 apart."""
    rng = np.random.default_rng(seed)
    side = int(num_anchors**0.5)
    corners = 4.0 * np.stack(np.meshgrid(range(side), range(side)), -1).reshape(-1, 2)
    anchors = np.concatenate([corners, corners + 8], axis=-1).astype("float32")
    outputs = {
        "class_logits": rng.normal(size=(2, side**2, num_classes)).astype("float32"),
        "box_deltas": rng.normal(size=(2, side**2, 4)).astype("float32") / 10,
    }
    return outputs, anchors, (4 * side + 4,) * 2


def found_by(rule, outputs, anchors, size, **options):
    tensors = {name: ops.convert_to_tensor(x) for name, x in outputs.items()}
    found = arrays_of(rule(tensors, anchors, size, **options))
    arrays = rule(outputs, anchors, size, **options)  # NumPy finds the same
    for name, value in arrays.items():
        np.testing.assert_allclose(value, found[name], rtol=1e-4, atol=1e-4)
    return found


def arrays_of(found):
    return {name: ops.convert_to_numpy(value) for name, value in found.items()}


@pytest.mark.parametrize("method", ["hard", "gaussian"])
def test_the_best_pairs_give_what_all_give(monkeypatch, method):
    outputs, anchors, size = grid(100, 4)
    whole = Postprocess(method=method, score_threshold=1e-8, pre_nms_top_k=None)
    expected = found_by(whole, outputs, anchors, size)  # 400 pairs are few
    # 300 pairs hold all detections, 20 do not, and then all are looked at.
    for first in (300, 20):
        monkeypatch.setattr(postprocess, "_FIRST_TOP_K", first)
        found = found_by(whole, outputs, anchors, size)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)


def test_a_class_has_at_most_so_many():
    outputs, anchors, size = grid(100, 3)
    rule = Postprocess(
        method="hard", max_detections=9, max_detections_per_class=2, pre_nms_top_k=None
    )
    found = found_by(rule, outputs, anchors, size)
    assert found["num_detections"].tolist() == [6, 6]
    assert sorted(found["labels"][0, :6].tolist()) == [0, 0, 1, 1, 2, 2]


def test_what_lies_beside_the_image_makes_room_for_others():
    anchors = np.float32([[0, 0, 8, 8], [16, 0, 24, 8], [0, 4, 8, 12], [0, 20, 8, 28]])
    outputs = {
        "class_logits": np.float32([[[1.0], [3.0], [2.0], [0.0]]]),
        "box_deltas": np.zeros((1, 4, 4), "float32"),
    }
    rule = Postprocess(method="hard", max_detections=2, drop_empty=True)
    content = np.float32([[12, 32]])  # the second anchor is below it
    found = found_by(rule, outputs, anchors, (32, 32), content_sizes=content)
    assert found["boxes"][0].tolist() == [[0, 4, 8, 12], [0, 0, 8, 8]]
    # Without the size of the image the input counts.
    whole = found_by(rule, outputs, anchors, (32, 32))
    assert whole["boxes"][0, 0].tolist() == [16, 0, 24, 8]
    # Those that are left out count for the limit.
    limited = Postprocess(
        method="hard", max_detections=2, drop_empty=True, max_detections_per_class=2
    )
    found = found_by(limited, outputs, anchors, (32, 32), content_sizes=content)
    assert found["num_detections"].tolist() == [1]


def test_a_wrong_limit_is_named():
    with pytest.raises(ValueError, match="`max_detections_per_class` must be at least"):
        Postprocess(max_detections_per_class=0)
