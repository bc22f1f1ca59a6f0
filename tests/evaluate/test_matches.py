"""Which detection found which object, against hand cases and pycocotools."""

import contextlib
import io

import numpy as np
import pytest

from effdet_keras.evaluate.image_result import ImageResult, match_detections


def result(truth, found, *, crowds=None, areas=None):
    """Rows are `(label, y1, x1, y2, x2)`, those of `found` best first."""
    truth, found = (np.float64(rows).reshape(-1, 5) for rows in (truth, found))
    return ImageResult(
        1,
        truth_boxes=truth[:, 1:],
        truth_labels=truth[:, 0],
        truth_is_crowd=crowds,
        truth_areas=areas,
        boxes=found[:, 1:],
        scores=np.linspace(0.9, 0.1, len(found)),
        labels=found[:, 0],
    )


def test_the_best_score_chooses_first_and_takes_what_it_overlaps_most():
    truth = [(0, 0, 0, 10, 10), (0, 0, 4, 10, 14)]
    found = [(0, 0, 3, 10, 13), (0, 0, 4, 10, 14), (0, 0, 0, 10, 10)]
    matches = match_detections(result(truth, found))
    # The first overlaps the second object by 9/11, so that the second gets none.
    assert matches.truth.tolist() == [1, -1, 0]
    assert matches.detection.tolist() == [2, 0]
    assert matches.iou.round(3).tolist() == [0.818, 0.0, 1.0]
    assert matches.is_true.tolist() == [True, False, True]
    assert matches.is_false.tolist() == [False, True, False]


def test_of_objects_that_it_overlaps_alike_a_detection_takes_the_last():
    """As in pycocotools."""
    truth = [(0, 0, 0, 10, 10), (0, 0, 0, 10, 10)]
    found = [(0, 0, 0, 10, 10), (0, 0, 0, 10, 10)]
    assert match_detections(result(truth, found)).truth.tolist() == [1, 0]


def test_what_lies_in_a_crowd_is_ignored_and_finds_nothing():
    truth = [(0, 0, 0, 40, 40), (0, 50, 50, 60, 60)]
    found = [(0, 2, 2, 6, 6), (0, 8, 8, 12, 12), (1, 8, 8, 12, 12)]
    matches = match_detections(result(truth, found, crowds=[True, False]))
    assert matches.truth.tolist() == [-1, -1, -1]
    assert matches.is_ignored.tolist() == [True, True, False]
    assert matches.detection.tolist() == [-1, -1]


@pytest.mark.parametrize("truth", [[], [(0, 0, 0, 4, 4)]])
@pytest.mark.parametrize("found", [[], [(0, 0, 0, 4, 4)]])
def test_nothing_true_or_nothing_found(truth, found):
    matches = match_detections(result(truth, found))
    both = bool(truth) and bool(found)
    assert matches.is_true.sum() == both
    assert matches.is_false.sum() == len(found) - both


def test_the_area_of_an_object_is_that_of_its_box_if_none_is_given():
    assert result([(0, 0, 0, 10, 12)], []).truth_areas.tolist() == [120]
    assert result([(0, 0, 0, 10, 12)], [], areas=[7]).truth_areas.tolist() == [7]
    assert result([(0, 0, 0, 1, 1)], [], areas=[7]).above(0.5).truth_areas == [7]


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="`truth_areas` must have one length"):
        result([(0, 0, 0, 10, 12)], [], areas=[7, 8])
    with pytest.raises(ValueError, match="`boxes` and `scores` and `labels` must"):
        ImageResult(3, [], [], [[0, 0, 1, 1]], [0.5, 0.4], [0])


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_matching_of_pycocotools(seed):
    coco_module = pytest.importorskip("pycocotools.coco")
    from pycocotools.cocoeval import COCOeval

    rng = np.random.default_rng(seed)

    def rows(count):
        corner = rng.integers(0, 30, (count, 2))
        side = rng.integers(5, 20, (count, 2))
        labels = rng.integers(0, 2, (count, 1))
        return np.concatenate([labels, corner, corner + side], axis=1)

    crowds = rng.random(12) < 0.2
    areas = rng.integers(20, 300, 12)
    one = result(rows(12), rows(40), crowds=crowds, areas=areas)
    truth = [
        {
            **{"id": i + 1, "image_id": 1, "category_id": int(label) + 1},
            **{"bbox": xywh(box), "area": int(areas[i])},
            "iscrowd": int(crowds[i]),
        }
        for i, (box, label) in enumerate(zip(one.truth_boxes, one.truth_labels))
    ]
    found = [
        {
            **{"image_id": 1, "category_id": int(label) + 1},
            **{"bbox": xywh(box), "score": score},
        }
        for box, score, label in zip(one.boxes, one.scores.tolist(), one.labels)
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        coco = coco_module.COCO()
        coco.dataset = {
            "images": [{"id": 1}],
            "annotations": truth,
            "categories": [{"id": 1}, {"id": 2}],
        }
        coco.createIndex()
        evaluation = COCOeval(coco, coco.loadRes(found), "bbox")
        evaluation.params.areaRng = [(0, 1e10)]
        evaluation.params.areaRngLbl = ["all"]
        evaluation.params.iouThrs = np.array([0.5])
        evaluation.evaluate()
    true, ignored = np.zeros(40, int), np.zeros(40, bool)
    for images in evaluation.evalImgs:
        rows_of = np.array(images["dtIds"]) - 1
        true[rows_of] = images["dtMatches"][0]
        ignored[rows_of] = images["dtIgnore"][0]
    matches = match_detections(one)
    assert matches.is_ignored.tolist() == ignored.tolist()
    expected = np.where(ignored, -1, true.astype(int) - 1)
    assert matches.truth.tolist() == expected.tolist()


def xywh(box):
    y_min, x_min, y_max, x_max = box.tolist()
    return [x_min, y_min, x_max - x_min, y_max - y_min]
