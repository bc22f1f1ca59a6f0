"""Non-maximum suppression: by hand, by definition, by property, by reference."""

import json

import numpy as np
import pytest
from keras import ops

from effdet_keras.detect.postprocess import non_max_suppression

GOLDEN_CASES = [
    "default",
    "gauss_s03_t02",
    "gauss_iou09",
    "gauss_t07",
    "hard",
    "hard_03_02",
    "hard_max500",
    "hard_t08",
    "none_method",
]


def run(boxes, scores, labels=None, **options):
    """Calls with NumPy in and out."""
    result = non_max_suppression(
        ops.convert_to_tensor(np.asarray(boxes, "float32")),
        ops.convert_to_tensor(np.asarray(scores, "float32")),
        None if labels is None else ops.convert_to_tensor(labels),
        **options,
    )
    return tuple(ops.convert_to_numpy(x) for x in result)


def iou(a, b):
    height = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    width = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    shared = height * width
    return shared / (areas - shared) if areas > shared else 0.0


def slow_one_class(boxes, scores, options):
    """One class of one image, from the definition: [(score, index)]."""
    scores = dict(enumerate(scores.astype("float64")))
    picked = []
    while scores and len(picked) < options["max_detections"]:
        best = max(scores, key=lambda i: (scores[i], -i))
        score = scores.pop(best)
        if not score > options["score_threshold"]:
            break
        picked.append((score, best))
        for i in list(scores):
            overlap = iou(boxes[i], boxes[best])
            if options["method"] == "gaussian":
                scores[i] *= np.exp(-(overlap**2) / options["sigma"])
            elif overlap > options["iou_threshold"]:
                del scores[i]
    return picked


def slow(boxes, scores, labels, options):
    """Class after class, then merged by score, as the reference does."""
    picked = []
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        found = slow_one_class(boxes[own], scores[own], options)
        picked += [(score, own[i]) for score, i in found]
    return sorted(picked, reverse=True)[: options["max_detections"]]


# --- by hand


def test_hard_drops_a_box_above_the_threshold_and_keeps_one_at_it():
    # The second box shares 5 x 10 of 15 x 10 with the first: IoU 1/3.
    boxes = [[[0, 0, 10, 10], [0, 5, 10, 15]]]
    scores = [[0.9, 0.8]]
    options = {"method": "hard", "max_detections": 2}
    third = np.float32(50) / np.float32(150)
    assert run(boxes, scores, iou_threshold=0.33, **options)[2] == [1]
    assert run(boxes, scores, iou_threshold=float(third), **options)[2] == [2]


def test_a_score_must_be_above_the_threshold():
    boxes = [[[0, 0, 1, 1], [5, 5, 6, 6], [9, 9, 10, 10]]]
    scores = [[0.75, 0.5, 0.25]]
    for method in ("hard", "gaussian"):
        found = run(boxes, scores, score_threshold=0.5, method=method, max_detections=3)
        np.testing.assert_array_equal(found[0], [[0, 0, 0]])
        np.testing.assert_array_equal(found[1], [[0.75, 0, 0]])
        assert found[2] == [1]


def test_default_threshold_is_low_for_gaussian_and_absent_for_hard():
    boxes = [[[0, 0, 1, 1], [5, 5, 6, 6], [9, 9, 10, 10]]]
    scores = [[0.0011, 0.0009, 0.0]]
    assert run(boxes, scores, method="gaussian", max_detections=5)[2] == [1]
    assert run(boxes, scores, method="hard", max_detections=5)[2] == [3]


def test_equal_scores_take_the_earlier_box_first():
    boxes = [[[0, 0, 1, 1], [5, 5, 6, 6], [9, 9, 10, 10]]]
    indices, _, _ = run(boxes, [[0.5, 0.5, 0.5]], max_detections=3)
    np.testing.assert_array_equal(indices, [[0, 1, 2]])


def test_one_finished_image_does_not_stop_the_others():
    boxes = np.zeros((2, 3, 4), "float32")
    boxes[1] = [[0, 0, 1, 1], [5, 5, 6, 6], [9, 9, 10, 10]]
    _, scores, count = run(boxes, [[0, 0, 0], [0.9, 0.8, 0.7]], max_detections=3)
    np.testing.assert_array_equal(count, [0, 3])
    np.testing.assert_array_equal(scores[0], [0, 0, 0])


@pytest.mark.parametrize("method", ["gaussian", "hard"])
def test_bad_numbers_take_no_place_and_harm_no_other_box(method):
    empty = [3, 3, 3, 3]
    boxes = [[[0, 0, 10, 10], empty, empty, [5, 5, 9, 9], [50, 50, 60, 60]]]
    scores = [[0.9, 0.8, 0.75, np.nan, 0.7]]
    indices, scores, count = run(boxes, scores, method=method, max_detections=5)
    np.testing.assert_array_equal(indices[0, :4], [0, 1, 2, 4])
    np.testing.assert_allclose(scores, [[0.9, 0.8, 0.75, 0.7, 0]], rtol=1e-6)
    assert count == [4]


def test_tiny_sigma_gives_no_nan():
    boxes = [[[0, 0, 10, 10], [0, 0, 10, 10], [50, 50, 60, 60]]]
    _, scores, count = run(boxes, [[0.9, 0.8, 0.7]], sigma=1e-4, max_detections=3)
    np.testing.assert_allclose(scores, [[0.9, 0.7, 0]], rtol=1e-6)
    assert count == [2]


# --- by reference


@pytest.mark.parametrize("name", GOLDEN_CASES)
@pytest.mark.parametrize("kind", ["global_padded", "per_class"])
def test_equals_the_reference(golden, name, kind):
    arrays = golden("nms.npz")
    config = json.loads(str(arrays[f"tf/{name}/cfg"]))
    boxes, scores, labels = arrays["boxes"], arrays["scores"], arrays["classes"]
    options = {
        "method": config["method"] or "hard",
        "max_detections": config["max_output_size"],
        "score_threshold": config["score_thresh"] or None,  # 0 is "not set" there
        "iou_threshold": config["iou_thresh"] or 0.5,
        "sigma": config["sigma"] or 0.5,
    }
    own = labels[None] if kind == "per_class" else None
    indices, found, count = run(boxes[None], scores[None], own, **options)

    expected = {
        key: arrays[f"tf/{name}/{kind}/{key}"].reshape(shape)
        for key, shape in [("boxes", (-1, 4)), ("scores", -1), ("classes", -1)]
    }
    valid = int(arrays[f"tf/{name}/{kind}/valid"].item())
    assert count[0] == valid
    # Scores in order; the boxes and classes in order too, as no two of this
    # file's scores are closer than the rounding of the decay.
    n = slice(None, valid)
    np.testing.assert_allclose(found[0, n], expected["scores"][n], rtol=1e-5)
    image_scale = 2 if kind == "per_class" else 1  # as the arrays were made
    np.testing.assert_array_equal(
        boxes[indices[0, n]] * image_scale, expected["boxes"][n]
    )
    np.testing.assert_array_equal(
        labels[indices[0, n]] + 1, expected["classes"][n].astype("int32")
    )
