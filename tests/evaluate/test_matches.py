"""Which detection found which object, against hand cases and pycocotools."""

import numpy as np
import pytest
from support.image_results import image_result

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
    with pytest.raises(ValueError, match=r"same length.*boxes=1, scores=2, labels=1"):
        ImageResult(3, [], [], [[0, 0, 1, 1]], [0.5, 0.4], [0])
