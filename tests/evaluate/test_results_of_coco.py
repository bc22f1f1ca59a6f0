"""Ground truth and detections in COCO's formats, brought together."""

import json

import numpy as np
import pytest

from effdet_keras.evaluate.coco import read_detections, results_of_coco

TRUTH = {
    "images": [{"id": 9, "file_name": "b.jpg", "height": 40, "width": 60}, {"id": 2}],
    "categories": [{"id": 5, "name": "dog"}, {"id": 3, "name": "cat"}],
    "annotations": [
        {"image_id": 2, "category_id": 3, "bbox": [1, 2, 10, 20], "iscrowd": 1},
        {"image_id": 2, "category_id": 5, "bbox": [5, 6, 7, 8], "area": 30},
    ],
}
FOUND = [
    {"image_id": 2, "category_id": 3, "bbox": [0, 0, 4, 2], "score": 0.25},
    {"image_id": 2, "category_id": 5, "bbox": [1, 1, 3, 3], "score": 0.75},
    {"image_id": 2, "category_id": 77, "bbox": [1, 1, 3, 3], "score": 0.5},
]


def test_each_image_has_its_own_in_the_order_of_the_ground_truth():
    empty, full = results_of_coco(TRUTH, FOUND)
    assert (empty.image_id, empty.name, empty.size) == (9, "b.jpg", (40, 60))
    assert empty.boxes.shape == empty.truth_boxes.shape == (0, 4)
    assert (full.image_id, full.name, full.size) == (2, "", None)
    np.testing.assert_array_equal(full.truth_boxes, [[2, 1, 22, 11], [6, 5, 14, 12]])
    assert full.truth_labels.tolist() == [1, 0]
    assert full.truth_is_crowd.tolist() == [True, False]
    assert full.truth_areas.tolist() == [200, 30]
    # Best first, and without the category that nobody knows.
    np.testing.assert_array_equal(full.boxes, [[1, 1, 4, 4], [0, 0, 2, 4]])
    assert full.labels.tolist() == [0, 1]
    assert full.scores.tolist() == [0.75, 0.25]


def test_a_detection_of_another_image_is_refused():
    with pytest.raises(ValueError, match=r"such as \[2, 9\].*image_id=1"):
        results_of_coco(TRUTH, [{**FOUND[0], "image_id": 1}])


@pytest.mark.parametrize("content", [FOUND, {"annotations": FOUND, "images": []}])
def test_a_list_and_a_coco_file_with_scores_are_read(content, tmp_path):
    path = tmp_path / "found.json"
    path.write_text(json.dumps(content))
    assert read_detections(path) == FOUND


@pytest.mark.parametrize(
    "content",
    [
        {"images": []},
        [3],
        [FOUND[0], {"image_id": 1}],
        [{**FOUND[0], "bbox": [0, 0, 1]}],
        [{**FOUND[0], "bbox": [0, 0, 1, float("nan")]}],
        [{**FOUND[0], "bbox": None}],
        [{**FOUND[0], "bbox": [0, 0, 1, "4"]}],
        [{**FOUND[0], "score": "0.9"}],
        [{**FOUND[0], "score": None}],
        [{**FOUND[0], "image_id": [2]}],
    ],
    ids=str,
)
def test_other_files_are_refused_by_name(content, tmp_path):
    path = tmp_path / "found.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"found\.json' must be a list of detections"):
        read_detections(path)


@pytest.mark.parametrize("content", ["image,score\n1,2\n", "", "[" * 100_000])
def test_a_file_that_is_no_json_is_named(content, tmp_path):
    (tmp_path / "found.csv").write_text(content)
    with pytest.raises(ValueError, match=r"found\.csv' is not valid json"):
        read_detections(tmp_path / "found.csv")


def test_an_image_id_as_text_is_told_from_a_number():
    with pytest.raises(ValueError, match="A number and a string .* image_id='2'"):
        results_of_coco(TRUTH, [{**FOUND[0], "image_id": "2"}])
