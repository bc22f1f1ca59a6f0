"""Likely errors of annotations, by hand."""

import pytest
from support.image_results import image_result

from effdet_keras.evaluate.error_kinds import Suspect, find_suspects

BOX, FAR = (0, 0, 10, 10), (50, 50, 60, 60)
LOOSE = (0, 0, 10, 6)  # IoU 0.6


def kinds_of(truth, found, *, crowds=None):
    one = image_result(truth, found, crowds=crowds)
    return [suspect.kind for suspect in find_suspects([one])]


def test_where_detector_and_annotations_agree_nothing_is_suspicious():
    assert kinds_of([(0, *BOX)], [(0, 0.9, *BOX)]) == []
    assert find_suspects([]) == []
    assert find_suspects([image_result()]) == []


def test_a_confident_detection_where_nothing_is_annotated():
    [suspect] = find_suspects([image_result([], [(2, 0.9, *FAR)], image_id=7)])
    assert suspect == Suspect(
        image_id=7,
        name="7.jpg",
        kind="missing",
        suspicion=0.9,
        box=FAR,
        label=None,
        found_box=FAR,
        found_label=2,
        score=0.9,
        iou=0.0,
    )


def test_a_detection_that_is_not_confident_tells_nothing_of_missing_annotations():
    assert kinds_of([], [(2, 0.49, *FAR)]) == []


def test_near_an_annotation_of_any_class_nothing_is_missing():
    truth, found = [(0, *BOX)], [(0, 0.95, *BOX), (1, 0.9, 0, 0, 10, 2)]  # IoU 0.2
    assert kinds_of(truth, found) == []
    found = [(0, 0.95, *BOX), (1, 0.9, 0, 9.9, 10, 12)]
    assert kinds_of(truth, found) == ["missing"]


def test_of_several_detections_in_one_place_the_best_is_listed():
    found = [(0, 0.7, *FAR), (1, 0.9, *FAR), (1, 0.8, *BOX)]
    suspects = find_suspects([image_result([], found)])
    assert [(x.score, x.box) for x in suspects] == [(0.9, FAR), (0.8, BOX)]


def test_nothing_of_its_class_is_missing_in_a_crowd():
    truth, crowds = [(0, 0, 0, 100, 100)], [True]
    assert kinds_of(truth, [(0, 0.9, *BOX)], crowds=crowds) == []
    assert kinds_of(truth, [(1, 0.9, *BOX)], crowds=crowds) == ["missing"]


def test_an_annotation_where_the_detector_sees_nothing():
    [suspect] = find_suspects([image_result([(1, *FAR)], [(0, 0.05, *FAR)])])
    assert (suspect.kind, suspect.box, suspect.label) == ("unfound", FAR, 1)
    assert suspect.suspicion == pytest.approx(0.95)
    assert (suspect.found_label, suspect.score, suspect.iou) == (0, 0.05, 1)
    [suspect] = find_suspects([image_result([(1, *FAR)])])
    assert (suspect.suspicion, suspect.found_box, suspect.score) == (1, None, 0)


def test_an_annotation_that_a_detection_comes_near_is_seen():
    assert kinds_of([(0, *BOX)], [(0, 0.2, 0, 0, 10, 2)]) == []  # IoU 0.2
    assert kinds_of([(0, *BOX)], [(0, 0.05, *BOX)]) == []  # found
    assert kinds_of([(0, *BOX)], [(1, 0.05, *BOX)]) == ["unfound"]


def test_a_detection_of_another_object_does_not_see_this_one():
    beside = (0, 0, 10, 40)  # IoU with BOX 0.25
    truth = [(0, *beside), (0, *BOX)]
    suspects = find_suspects([image_result(truth, [(0, 0.9, *beside)])])
    assert [(x.kind, x.box) for x in suspects] == [("unfound", BOX)]


def test_a_crowd_is_never_suspicious():
    assert kinds_of([(0, *BOX)], [], crowds=[True]) == []
    assert kinds_of([(0, *BOX)], [(1, 0.9, *BOX)], crowds=[True]) == []
    truth, crowds = [(0, *BOX), (0, *FAR)], [True, False]
    assert kinds_of(truth, [(1, 0.9, *BOX), (0, 0.9, *FAR)], crowds=crowds) == []


def test_a_confident_detection_of_another_class_in_the_place_of_an_annotation():
    found = [(1, 0.8, *LOOSE), (2, 0.7, *BOX), (0, 0.3, *BOX)]
    [suspect] = find_suspects([image_result([(0, *BOX)], found)])
    assert (suspect.kind, suspect.label, suspect.found_label) == ("wrong class", 0, 1)
    assert suspect.suspicion == pytest.approx(0.8 - 0.3)
    assert suspect.iou == pytest.approx(0.6)
    assert (suspect.box, suspect.found_box) == (BOX, LOOSE)


def test_where_the_own_class_has_the_better_score_no_class_is_wrong():
    assert kinds_of([(0, *BOX)], [(1, 0.9, *BOX), (0, 0.95, *BOX)]) == []


def test_the_annotation_that_another_class_overlaps_most_is_the_one_it_is_about():
    below = (0, 0, 10, 9)
    truth = [(0, *LOOSE), (0, *below), (1, *BOX)]
    found = [(1, 0.9, *BOX), (1, 0.8, *BOX)]  # the first finds the third object
    suspects = find_suspects([image_result(truth, found)])
    assert [x.box for x in suspects if x.kind == "wrong class"] == [below]
    assert kinds_of([(0, *BOX)], [(1, 0.9, 0, 0, 10, 3)]) == []  # IoU 0.3


def test_a_confident_detection_with_another_box_than_its_annotation():
    [suspect] = find_suspects([image_result([(0, *BOX)], [(0, 0.9, *LOOSE)])])
    assert (suspect.kind, suspect.box, suspect.found_box) == ("loose box", BOX, LOOSE)
    assert suspect.suspicion == pytest.approx(0.9 * 0.4)
    assert suspect.iou == pytest.approx(0.6)
    assert kinds_of([(0, *BOX)], [(0, 0.9, 0, 0, 10, 8)]) == []  # IoU 0.8
    assert kinds_of([(0, *BOX)], [(0, 0.4, *LOOSE)]) == []


def test_the_most_suspicious_come_first_over_all_images():
    images = [
        image_result([], [(0, 0.6, *FAR)], image_id=1),
        image_result([(0, *BOX)], [], image_id=2),
        image_result([], [(0, 0.9, *FAR)], image_id=3),
    ]
    assert [x.image_id for x in find_suspects(images)] == [2, 3, 1]
