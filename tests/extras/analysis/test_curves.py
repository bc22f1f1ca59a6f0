"""Precision and recall, Pascal VOC's AP, and COCO's AP of parts of a dataset."""

import dataclasses

import numpy as np
import pytest
from support.image_results import (
    coco_numbers,
    image_result,
    of_one_class,
    random_results,
)

from effdet_keras.evaluate.coco import average_precisions
from effdet_keras.extras.analysis.curves import (
    precision_recall_curves,
    slice_by_class_and_size,
    slice_by_column,
    voc_average_precision,
)

NAMES = ["a", "b", "c"]


def test_a_curve_by_hand():
    first = image_result(
        [(0, 0, 0, 10, 10), (0, 20, 20, 30, 30), (1, 50, 50, 60, 60)],
        [(0, 0.9, 0, 0, 10, 10), (0, 0.6, 0, 0, 10, 9), (1, 0.8, 0, 0, 10, 10)],
    )
    second = image_result([(0, 0, 0, 10, 10)], [(0, 0.7, 0, 0, 10, 10)], image_id=2)
    a, b, c = precision_recall_curves([first, second], NAMES)
    assert (a.name, a.num_objects) == ("a", 3)
    assert a.scores.tolist() == [0.9, 0.7, 0.6]
    assert a.precision.tolist() == pytest.approx([1, 1, 2 / 3])
    assert a.recall.tolist() == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert a.average_precision == pytest.approx(67 / 101)  # recalls 0 to 0.66
    assert (b.precision.tolist(), b.recall.tolist()) == ([0], [0])
    assert b.average_precision == 0
    assert (c.num_objects, len(c.scores), c.average_precision) == (0, 0, -1)
    of_nothing = precision_recall_curves([], NAMES)
    assert [curve.average_precision for curve in of_nothing] == [-1, -1, -1]
    assert (average_precisions([], 1) == -1).all()


@pytest.mark.parametrize("seed", range(4))
def test_the_ap_of_a_class_is_cocos_ap50(seed):
    results = random_results(seed)
    curves = precision_recall_curves(results, NAMES)
    for label, curve in enumerate(curves):
        expected = coco_numbers(of_one_class(results, label), 1)["AP50"]
        assert curve.average_precision == pytest.approx(expected, abs=1e-9)
    assert curves[2].num_objects == 0 < len(curves[2].scores)


# --- Pascal VOC's average precision: by hand, and against a slow second definition.


AREA = 1 / 3 * 1 + 1 / 3 * 2 / 3


def test_the_rule_by_hand():
    """Right, wrong, right: precision 1, 1/2, 2/3 at the recall 1/3, 1/3, 2/3."""
    truth = [(0, 0, 0, 10, 10), (0, 20, 20, 30, 30), (0, 50, 50, 60, 60)]
    found = [truth[0], (0, 70, 70, 80, 80), truth[1]]
    rows = [(0, score, *box) for score, (_, *box) in zip((0.9, 0.8, 0.7), found)]
    mean = voc_average_precision([image_result(truth, rows)], 1).mean
    assert mean == pytest.approx(AREA)


def test_boxes_have_no_extra_pixel():
    """4 x 4 of 4 x 9: IoU 0.444; with VOC's extra pixel it is 5 x 5 of 5 x 10, 0.5."""
    one = image_result([(0, 0, 0, 4, 9)], [(0, 0.9, 0, 0, 4, 4)])
    assert voc_average_precision([one], 1).mean == 0
    assert voc_average_precision([one], 1, iou_threshold=4 / 9).mean == 1


@pytest.mark.parametrize("threshold", [0.5, 0.7])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_slow_definition(seed, threshold):
    results = random_results(seed)
    found = voc_average_precision(results, 3, iou_threshold=threshold)
    expected = [slow_ap(results, label, threshold) for label in range(3)]
    assert found.per_class.tolist() == pytest.approx(expected)
    assert found.mean == pytest.approx(np.mean(expected[:2]))


def slow_ap(results, label, threshold):
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

    # Each object adds a step of 1 / num_objects to the recall.
    return sum(best_from(k) for k in range(1, num_objects + 1)) / num_objects


def slow_iou(first, second):
    height = min(first[2], second[2]) - max(first[0], second[0])
    width = min(first[3], second[3]) - max(first[1], second[1])
    if height <= 0 or width <= 0:
        return 0
    areas = [(y2 - y1) * (x2 - x1) for y1, x1, y2, x2 in (first, second)]
    return height * width / (sum(areas) - height * width)


# --- AP of parts of a dataset: by hand, and against COCO's evaluation of each part.


def numbers(row):
    return row.ap, row.ap50


def expected_numbers(results):
    found = coco_numbers(results, 3)
    return pytest.approx((found["AP"], found["AP50"]), abs=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_each_class_and_size_has_cocos_ap(seed):
    results = random_results(seed)
    by_class, by_size = slice_by_class_and_size(results, NAMES)
    assert [row.name for row in by_class] == NAMES
    for label, row in enumerate(by_class):
        part = of_one_class(results, label)
        assert numbers(row) == expected_numbers(part)
        objects = [(~result.truth_is_crowd).sum() for result in part]
        assert row.num_objects == sum(objects)
        assert row.num_images == sum(count > 0 for count in objects)
    assert numbers(by_class[2]) == (-1, -1)
    names = ["under 32 px", "32 to 96 px", "96 px and more"]
    assert [row.name for row in by_size] == names
    coco = coco_numbers(results, 3)
    expected = [coco[name] for name in ("APs", "APm", "APl")]
    assert [row.ap for row in by_size] == pytest.approx(expected, abs=1e-9)
    objects = sum((~result.truth_is_crowd).sum() for result in results)
    assert sum(row.num_objects for row in by_size) == objects


@pytest.mark.parametrize("seed", range(2))
def test_a_column_has_the_ap_of_its_images(seed):
    results = random_results(seed)
    column = {result.image_id: result.image_id % 3 for result in results}
    column = dict(sorted(column.items(), key=lambda item: -item[1]))
    rows = slice_by_column(results, 3, {-1: "of another dataset", **column})
    assert [row.name for row in rows] == ["2", "1", "0"]  # as the column has them
    for row in rows:
        part = [r for r in results if str(r.image_id % 3) == row.name]
        assert numbers(row) == expected_numbers(part)
        assert row.num_images == len(part)
        objects = sum((~result.truth_is_crowd).sum() for result in part)
        assert row.num_objects == objects
    another = dataclasses.replace(results[0], image_id=700)
    with pytest.raises(ValueError, match=r"missing=\[700\]"):
        slice_by_column([another, *results[1:]], 3, column)


def test_images_without_a_value_are_a_part_as_well():
    """As a column of pandas with gaps has them: NaN is not equal to itself."""

    class NA:  # of pandas: neither equal to itself nor not
        def __eq__(self, other):
            return self

        __ne__, __hash__ = __eq__, None

        def __bool__(self):
            raise TypeError("boolean value of NA is ambiguous")

    results = random_results(0)
    values = [np.float64(20.5), float("nan"), None, np.float64("nan"), NA()]
    column = {result.image_id: values[k % 5] for k, result in enumerate(results)}
    rows = slice_by_column(results, 3, column)
    assert [row.name for row in rows] == ["20.5", "(empty)"]
    assert sum(row.num_images for row in rows) == len(results)
