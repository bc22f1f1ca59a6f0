"""Pascal VOC's average precision: by hand, and against a slow second definition."""

import numpy as np
import pytest
from support.image_results import image_result, random_results

from effdet_keras.evaluate.curves import precision_recall_curves, voc_average_precision


def test_both_rules_by_hand():
    """Right, wrong, right: precision 1, 1/2, 2/3 at the recall 1/3, 1/3, 2/3."""
    one = image_result(
        [(0, 0, 0, 10, 10), (0, 20, 20, 30, 30), (0, 50, 50, 60, 60)],
        [
            (0, 0.9, 0, 0, 10, 10),
            (0, 0.8, 70, 70, 80, 80),
            (0, 0.7, 20, 20, 30, 30),
        ],
    )
    area = voc_average_precision([one], 1, rule="10")
    assert area.mean == pytest.approx(1 / 3 * 1 + 1 / 3 * 2 / 3)
    # 1 at the recalls 0 to 0.3, 2/3 at 0.4 to 0.6, 0 at the four above.
    eleven = voc_average_precision([one], 1, rule="07")
    assert eleven.mean == pytest.approx((4 * 1 + 3 * 2 / 3) / 11)


def test_three_objects_of_ten_reach_a_recall_of_three_tenths():
    truth = [(0, 20 * row, 0, 20 * row + 9, 9) for row in range(10)]
    one = image_result(truth, [(0, 0.9, *box) for _, *box in truth[:3]])
    found = voc_average_precision([one], 1, rule="07").mean
    assert found == pytest.approx(4 / 11)


def test_a_detection_looks_only_at_what_it_overlaps_most():
    """COCO's rule would give the second one the other object, IoU 2 / 3."""
    truth = [(0, 0, 0, 10, 10), (0, 0, 3, 10, 13)]
    found = [(0, 0.9, 0, 0, 10, 10), (0, 0.8, 0, 1, 10, 11)]
    one = image_result(truth, found)
    assert voc_average_precision([one], 1).mean == pytest.approx(0.5)
    [coco] = precision_recall_curves([one], ["a"])
    assert coco.recall.tolist() == [0.5, 1]


def test_difficult_objects_are_neither_found_nor_missed():
    truth = [(0, 0, 0, 10, 10), (0, 20, 20, 30, 30)]
    found = [
        (0, 0.9, 20, 20, 30, 30),
        (0, 0.8, 20, 20, 30, 29),
        (0, 0.7, 22, 22, 26, 26),  # inside, but does not overlap it by half
        (0, 0.6, 0, 0, 10, 10),
    ]
    one = image_result(truth, found, crowds=[False, True])
    assert voc_average_precision([one], 1).mean == pytest.approx(0.5)


def test_boxes_have_no_extra_pixel():
    """4 x 4 of 4 x 9: IoU 0.444; with VOC's extra pixel it is 5 x 5 of 5 x 10, 0.5."""
    one = image_result([(0, 0, 0, 4, 9)], [(0, 0.9, 0, 0, 4, 4)])
    assert voc_average_precision([one], 1).mean == 0
    assert voc_average_precision([one], 1, iou_threshold=4 / 9).mean == 1


def test_classes_without_objects_are_no_part_of_the_mean():
    one = image_result([(0, 0, 0, 9, 9)], [(0, 0.9, 0, 0, 9, 9), (1, 0.9, 0, 0, 9, 9)])
    for rule in ("07", "10"):
        found = voc_average_precision([one], 2, rule=rule)
        assert found.per_class.tolist() == pytest.approx([1, -1])
        assert found.mean == pytest.approx(1)
        assert voc_average_precision([], 2, rule=rule).mean == -1


@pytest.mark.parametrize("threshold", [0.5, 0.7])
@pytest.mark.parametrize("rule", ["07", "10"])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_slow_definition(seed, rule, threshold):
    results = random_results(seed)
    found = voc_average_precision(results, 3, rule=rule, iou_threshold=threshold)
    expected = [slow_ap(results, label, rule, threshold) for label in range(3)]
    assert found.per_class.tolist() == pytest.approx(expected)
    assert found.mean == pytest.approx(np.mean(expected[:2]))


def slow_ap(results, label, rule, threshold):
    """From the paper, detection by detection and recall by recall."""
    detections, num_objects = [], 0
    for result in sorted(results, key=lambda result: result.image_id):
        objects = [
            {"box": box, "difficult": difficult, "taken": False}
            for box, true_label, difficult in zip(
                result.truth_boxes.tolist(), result.truth_labels, result.truth_is_crowd
            )
            if true_label == label
        ]
        num_objects += sum(not one["difficult"] for one in objects)
        for box, score, said in zip(
            result.boxes.tolist(), result.scores, result.labels
        ):
            if said == label:
                detections.append((score, box, objects))
    if not num_objects:
        return -1
    right, wrong, points = 0, 0, []
    for _, box, objects in sorted(detections, key=lambda one: -one[0]):
        nearest = max(objects, key=lambda one: slow_iou(box, one["box"]), default=None)
        if nearest is None or slow_iou(box, nearest["box"]) < threshold:
            wrong += 1
        elif nearest["difficult"]:
            continue
        elif nearest["taken"]:
            wrong += 1
        else:
            nearest["taken"] = True
            right += 1
        points.append((right, right / (right + wrong)))

    def best_from(num_right):
        return max((p for reached, p in points if reached >= num_right), default=0)

    if rule == "10":  # each object adds a step of 1 / num_objects to the recall
        return sum(best_from(k) for k in range(1, num_objects + 1)) / num_objects
    needed = [-(-k * num_objects // 10) for k in range(11)]  # rounded up
    return sum(best_from(number) for number in needed) / 11


def slow_iou(first, second):
    height = min(first[2], second[2]) - max(first[0], second[0])
    width = min(first[3], second[3]) - max(first[1], second[1])
    if height <= 0 or width <= 0:
        return 0
    areas = [(y2 - y1) * (x2 - x1) for y1, x1, y2, x2 in (first, second)]
    return height * width / (sum(areas) - height * width)
