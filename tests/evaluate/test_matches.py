"""Which detection found which object, against hand cases and pycocotools."""

import contextlib
import io

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from support.image_results import image_result

from effdet_keras.evaluate.coco import metric_of
from effdet_keras.evaluate.image_result import ImageResult, match_detections

BOX, RIGHT = (0, 0, 0, 10, 10), (0, 0, 4, 10, 14)
# Objects, detections, best first, and which object each of these finds.
CASES = {
    "the best score chooses first, and takes what it overlaps most, by 9/11": (
        [BOX, RIGHT],
        [(0, 0, 3, 10, 13), RIGHT, BOX],
        [1, -1, 0],
    ),
    "of objects that it overlaps alike it takes the last": ([BOX] * 2, [BOX], [1]),
    "nothing is true": ([], [BOX], [-1]),
    "nothing is found": ([BOX], [], []),
    "neither": ([], [], []),
}


def scored(boxes):
    scores = np.linspace(0.9, 0.1, len(boxes))
    return [(label, score, *box) for score, (label, *box) in zip(scores, boxes)]


@pytest.mark.parametrize("case", CASES)
def test_matches_by_hand(case):
    truth, found, expected = CASES[case]
    matches = match_detections(image_result(truth, scored(found)))
    assert matches.truth.tolist() == expected
    assert matches.is_true.tolist() == [x >= 0 for x in expected]
    assert matches.is_false.tolist() == [x < 0 for x in expected]
    finders = [expected.index(i) if i in expected else -1 for i in range(len(truth))]
    assert matches.detection.tolist() == finders
    if "9/11" in case:
        assert matches.iou.round(3).tolist() == [0.818, 0.0, 1.0]


def test_what_lies_in_a_crowd_is_ignored_and_finds_nothing():
    truth = [(0, 0, 0, 40, 40), (0, 50, 50, 60, 60)]
    found = scored([(0, 2, 2, 6, 6), (0, 8, 8, 12, 12), (1, 8, 8, 12, 12)])
    matches = match_detections(image_result(truth, found, crowds=[True, False]))
    assert matches.truth.tolist() == [-1, -1, -1]
    assert matches.is_ignored.tolist() == [True, True, False]
    assert matches.detection.tolist() == [-1, -1]


def with_areas(areas):
    return ImageResult(1, [[0, 0, 10, 12]], [0], [], [], [], truth_areas=areas)


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"one length.*boxes=1, scores=2, labels=1"):
        ImageResult(3, [], [], [[0, 0, 1, 1]], [0.5, 0.4], [0])


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_matching_of_pycocotools(seed):
    rng = np.random.default_rng(seed)

    def rows(count):
        corner = rng.integers(0, 30, (count, 2))
        side = rng.integers(5, 20, (count, 2))
        labels = rng.integers(0, 2, (count, 1))
        return np.concatenate([labels, corner, corner + side], axis=1)

    one = image_result(rows(12), scored(rows(40)), crowds=rng.random(12) < 0.2)
    metric = metric_of([one], "ab")
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = metric._ground_truth
        coco.createIndex()
        evaluation = COCOeval(coco, coco.loadRes(list(metric._records())), "bbox")
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
