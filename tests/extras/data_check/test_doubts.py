"""How likely annotations are wrong: by hand, from how often detections are right."""

import numpy as np
import pytest

from effdet_keras.evaluate.image_result import ImageResult
from effdet_keras.extras.data_check.doubts import find_doubts

BOX, FAR = (0, 0, 10, 10), (50, 50, 60, 60)
BESIDE = (0, 6, 10, 16)  # IoU with BOX 0.25


def image(truth, found, *, image_id=1, crowds=None):
    """An image: annotations `(label, *yxyx)`, detections `(label, score, *yxyx)`."""
    return ImageResult(
        image_id,
        [row[1:] for row in truth],
        [row[0] for row in truth],
        [row[2:] for row in found],
        [row[1] for row in found],
        [row[0] for row in found],
        truth_is_crowd=crowds,
        name=f"{image_id}.jpg",
    )


def right(count, score=0.9, label=0):
    """Images whose annotation is found."""
    return [image([(label, *BOX)], [(label, score, *BOX)])] * count


def probability(agreement):
    """Of the formula, with 15 % of the annotations wrong."""
    right = min(agreement / 0.85, 1.0)
    return right * 0.15 / (right * 0.15 + 1 - right)


WRONG = {
    "missing": image([], [(0, 0.9, *FAR)], image_id=7),
    "loose box": image([(0, *BESIDE)], [(0, 0.9, *BOX)], image_id=7),
}


@pytest.mark.parametrize("kind", WRONG)
def test_of_detections_that_are_right_elsewhere_one_that_disagrees_is_a_doubt(kind):
    (doubt,) = find_doubts([*right(38), WRONG[kind]])
    assert (doubt.kind, doubt.image_id, doubt.score) == (kind, 7, 0.9)
    # 38 of 39 are right; two more count as wrong.
    assert doubt.suspicion == pytest.approx(1.0) == probability(38 / 41)
    (doubt,) = find_doubts([*right(7), WRONG[kind]])
    assert doubt.suspicion == pytest.approx(probability(7 / 10))


def test_a_class_is_doubted_by_the_detections_at_right_places_alone():
    named = image([(1, *BOX)], [(0, 0.9, *BOX)], image_id=7)
    nowhere = [image([], [(0, 0.9, *FAR)], image_id=8)] * 30
    doubts = find_doubts([*right(7), named, *nowhere])
    assert doubts[0].kind == "wrong class"
    assert (doubts[0].label, doubts[0].found_label) == (1, 0)
    assert doubts[0].suspicion == pytest.approx(probability(7 / 10))
    assert doubts[1].suspicion == pytest.approx(probability(8 / 40))  # BOX is a place


def test_a_higher_score_is_never_less_suspicious():
    sure = image([], [(0, 0.95, *FAR)], image_id=8)
    doubts = find_doubts([*right(6), *right(2, 0.3), sure, WRONG["missing"]])
    assert [doubt.score for doubt in doubts] == [0.95, 0.9]
    assert doubts[0].suspicion == doubts[1].suspicion  # 6 of 8 are pooled


def test_what_a_weak_detector_does_not_find_is_hardly_doubted():
    unseen = image([(0, *BOX)], [], image_id=7)
    (weak, *_) = find_doubts([*right(4), unseen])
    (good, *_) = find_doubts([*right(199), unseen])
    assert weak.kind == good.kind == "unfound"
    missed = 1 - 4.5 / 5
    assert weak.suspicion == pytest.approx(0.005 / (0.005 + 0.995 * missed))
    missed = 1 - 199.5 / 200
    assert good.suspicion == pytest.approx(0.005 / (0.005 + 0.995 * missed))
    assert good.suspicion > 0.5


def test_a_neighbour_of_another_class_is_another_object():
    one = image([(1, *BESIDE)], [(0, 0.9, *BOX)], image_id=7)
    (doubt,) = find_doubts([*right(38), one])
    assert (doubt.kind, doubt.label, doubt.iou) == ("missing", None, 0.0)


def test_one_place_is_doubted_once_and_weak_detections_never():
    one = image([], [(0, 0.9, *FAR), (1, 0.8, *FAR), (0, 0.09, *BOX)])
    assert len(find_doubts([*right(9), one])) == 1


def test_crowds_are_not_doubted_nor_what_lies_in_them():
    around = [(0, 0, 0, 100, 100)]
    one = image(around, [(0, 0.9, *FAR)], crowds=[True])
    assert find_doubts([*right(9), one]) == []


def test_nothing_is_doubted_where_nothing_is():
    assert find_doubts([]) == []
    assert find_doubts([image([], [])]) == []
    assert np.isfinite(find_doubts([image([(0, *BOX)], [])])[0].suspicion)
