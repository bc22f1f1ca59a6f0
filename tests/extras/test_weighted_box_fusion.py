"""Weighted box fusion: the reference's numbers, the paper's definition, properties."""

import numpy as np
import pytest

from effdet_keras import Detections
from effdet_keras.box_ops import pairwise_iou
from effdet_keras.extras.fusion import weighted_box_fusion

SQUARE = [0.0, 0.0, 10.0, 10.0]


def found(boxes, scores, labels=None, **fields):
    labels = np.zeros(len(boxes)) if labels is None else labels
    return Detections(np.reshape(boxes, (-1, 4)), scores, labels, **fields)


def random_lists(rng, num_lists=3, num_boxes=40, num_classes=3):
    """Lists that see the same objects, each a little wrong."""
    corner = rng.uniform(0, 80, (num_boxes, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(5, 40, (num_boxes, 2))], 1)
    labels = rng.integers(0, num_classes, num_boxes)
    lists = []
    for _ in range(num_lists):
        kept = rng.random(num_boxes) < 0.8
        moved = boxes[kept] + rng.normal(0, 1.5, (kept.sum(), 4))
        lists.append(found(moved, rng.uniform(0.05, 1, kept.sum()), labels[kept]))
    return lists


def by_definition(lists, iou_threshold, weights):
    """Section 3 of the paper, with lists of boxes and no sums kept between steps."""
    weights = np.array(weights) * len(weights) / sum(weights)
    items = [
        (float(w * score), float(w), box.astype("float64"), int(label))
        for w, part in zip(weights, lists)
        for box, score, label in zip(part.boxes, part.scores, part.labels)
    ]
    clusters = []
    for item in sorted(items, key=lambda item: -item[0]):
        best, best_iou = None, -1.0
        for cluster in clusters:
            if cluster[0][3] == item[3]:
                box = average(cluster)
                iou = pairwise_iou(item[2][None], box[None])[0, 0]
                if iou > best_iou:
                    best, best_iou = cluster, iou
        if best is not None and best_iou >= iou_threshold:
            best.append(item)
        else:
            clusters.append([item])
    rows = []
    for cluster in clusters:
        trust, total = sum(i[0] for i in cluster), sum(i[1] for i in cluster)
        score = trust / total * min(1, total / len(lists))
        rows.append([*average(cluster), score, cluster[0][3]])
    return np.array(sorted(rows, key=lambda row: -row[4]))


def average(cluster):
    return np.average([i[2] for i in cluster], axis=0, weights=[i[0] for i in cluster])


def as_rows(detections):
    columns = (detections.boxes, detections.scores[:, None], detections.labels[:, None])
    return np.concatenate(columns, axis=1)


@pytest.mark.smoke
def test_weights_are_how_far_a_list_is_trusted():
    lists = [found([SQUARE], [0.5]), found([[0, 2, 10, 12]], [0.5])]
    fused = weighted_box_fusion(lists, weights=[3, 1])
    np.testing.assert_allclose(fused.boxes, [[0, 0.5, 10, 10.5]], atol=1e-6)
    lists[1] = found([], [])
    assert weighted_box_fusion(lists, weights=[3, 1]).scores[0] == pytest.approx(0.375)
    assert weighted_box_fusion(lists, weights=[1, 3]).scores[0] == pytest.approx(0.125)


@pytest.mark.parametrize("weights", [(1, 1, 1), (3, 1, 2)])
@pytest.mark.parametrize("iou_threshold", [0.3, 0.55, 0.9])
def test_equal_to_the_definition(weights, iou_threshold):
    rng = np.random.default_rng(3)
    lists = random_lists(rng)
    fused = weighted_box_fusion(lists, iou_threshold, weights)
    expected = by_definition(lists, iou_threshold, weights)
    np.testing.assert_allclose(as_rows(fused), expected, rtol=1e-5, atol=1e-4)
    assert len(fused) < sum(map(len, lists))


def reference_case(golden, classes, models):
    """Ours on the reference's input, and the reference's answer, as rows."""
    arrays = golden("wbf.npz")
    rows = arrays["detections"]
    lists = [found(rows[:, 1:5], rows[:, 5], rows[:, 6])]
    # The reference has one list, and is told how many models it is of.
    lists += [found([], [])] * (models - 1)
    return as_rows(weighted_box_fusion(lists)), arrays[
        f"ensemble/nc{classes}_m{models}"
    ][:, 1:]


@pytest.mark.parametrize("models", [1, 2, 4])
@pytest.mark.parametrize("classes", [5, 90])
def test_equal_to_the_reference(golden, classes, models):
    ours, reference = reference_case(golden, classes, models)
    np.testing.assert_allclose(ours, reference, rtol=2e-5)  # float32 there


@pytest.mark.parametrize("models", [1, 2, 4])
def test_the_last_class_is_fused_too(golden, models):
    ours, reference = reference_case(golden, 4, models)
    lost = ours[:, 5] == 4
    np.testing.assert_allclose(ours[~lost], reference, rtol=2e-5)
    rows = golden("wbf.npz")["detections"]
    last = rows[rows[:, 6] == 4]
    expected = by_definition(
        [found(last[:, 1:5], last[:, 5], last[:, 6])] + [found([], [])] * (models - 1),
        0.55,
        [1] * models,
    )
    np.testing.assert_allclose(ours[lost], expected, rtol=1e-5)


def test_a_score_of_zero_gives_no_nan():
    fused = weighted_box_fusion([found([SQUARE] * 2, [0.0, 0.0])])
    np.testing.assert_allclose(as_rows(fused), [[*SQUARE, 0, 0]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "one list"),
        (([found([], [])], 1.5), "iou_threshold=1.5"),
        (([found([], [])], 0.5, [1, 2]), r"weights=\[1.0, 2.0\]"),
        (([found([], [])], 0.5, [0]), "above 0"),
        (
            ([found([], [], class_names=("a",)), found([], [], class_names=("b",))],),
            "same classes",
        ),
    ],
)
def test_what_cannot_be_fused_is_told(arguments, message):
    with pytest.raises(ValueError, match=message):
        weighted_box_fusion(*arguments)
