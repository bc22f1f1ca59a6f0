"""`Evaluation`: all analyses of some results in one, as text, as JSON, in sentences."""

import dataclasses
import json

import numpy as np
import pytest
from support.image_results import image_result, random_results

from effdet_keras.evaluate import coco
from effdet_keras.evaluate.evaluation import analyze_results
from effdet_keras.evaluate.image_result import ImageResult
from effdet_keras.extras import analysis
from effdet_keras.extras.analysis import curves
from effdet_keras.extras.analysis.compare import compare_evaluations

NAMES = ("cat", "dog", "bird", "<b>fish")


@pytest.fixture(scope="module")
def results():
    return random_results(4, num_images=20, num_classes=4)


@pytest.fixture(scope="module")
def evaluation(results):
    return analyze_results(results, NAMES)


def test_every_analysis_is_of_these_results(results, evaluation):
    shown = [result.above(evaluation.shown_score) for result in results]
    assert evaluation.shown_score == evaluation.common_threshold.threshold
    assert evaluation.shown_errors == analysis.decompose_errors(shown)
    assert evaluation.errors == analysis.decompose_errors(results)
    matrix = analysis.confusion_matrix(shown, 4)
    np.testing.assert_array_equal(evaluation.confusion, matrix)
    assert evaluation.voc_10.mean == curves.voc_average_precision(results, 4).mean
    assert evaluation.suspects == tuple(analysis.find_suspects(results))
    assert len(evaluation.worst_images) == evaluation.num_images == 20
    assert [one.name for one in evaluation.by_class] == list(NAMES)
    assert evaluation.num_objects == sum(x.num_objects for x in evaluation.by_class)


def test_the_text_has_every_number_and_every_class(evaluation):
    lines = str(evaluation).splitlines()
    assert lines[0].startswith("20 images, ") and " of 4 classes, " in lines[0]
    for name in coco.METRIC_NAMES:
        (line,) = [x for x in lines if x.split()[:1] == [name]]
        value = evaluation.coco[name]
        assert line.split()[1] == ("-" if value == -1 else f"{value:.4f}")
    (cat,) = [x.split() for x in lines if x.startswith("cat ")]
    assert float(cat[2]) == pytest.approx(evaluation.coco["AP/cat"], abs=6e-4)
    (fish,) = [x.split() for x in lines if x.startswith("<b>fish")]
    assert fish[2:] == ["-"] * 7  # nothing to measure
    (every,) = [x for x in lines if x.startswith("all classes")]
    assert f"{evaluation.common_threshold.f1:.3f}" in every
    assert [x for x in lines if "localization" in x]


@pytest.mark.smoke
def test_json_holds_it_all(evaluation):
    numbers = json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))
    assert numbers["coco"] == evaluation.coco
    assert numbers["confusion"]["classes"] == [*NAMES, "background"]
    assert numbers["confusion"]["counts"] == evaluation.confusion.tolist()
    curve = numbers["curves"]["precision"]["cat"]
    assert np.mean(curve) == pytest.approx(evaluation.curves[0].average_precision)
    assert numbers["curves"]["precision"]["<b>fish"] is None
    assert [row["name"] for row in numbers["classes"]] == list(NAMES)
    assert numbers["classes"][3]["threshold"] is None
    assert sum(numbers["num_suspects"].values()) == len(evaluation.suspects)
    assert len(numbers["worst_images"]) == 20 and numbers["findings"]


def test_the_sentences_say_what_is_wrong():
    truth = [(label, 20 * k, 0, 20 * k + 15, 15) for k in range(12) for label in (0,)]
    taken = [(1, 0.9, *row[1:]) for row in truth[:4]]
    right = [(0, 0.8, *row[1:]) for row in truth[4:]]
    result = image_result(truth, taken + right)
    result = dataclasses.replace(result, name="street.jpg")
    words = "\n".join(analyze_results([result], ["cat", "dog"]).findings)
    assert "Detections from score 0.80 on have the best F1, 0.67" in words
    assert "67 % of them are right, and they find 67 % of the objects" in words
    assert "4 of 12 objects of 'cat' are taken for 'dog'" in words
    assert "lost to classification errors" in words
    assert "may be wrong: 4 wrong class" in words and "street.jpg" in words


def test_the_text_of_two_objects_of_which_one_is_taken_for_another():
    boxes = [[0, 0, 8, 8], [20, 20, 28, 28]]
    result = ImageResult(1, boxes, [0, 1], boxes, [0.9, 0.8], [0, 0])
    evaluation = analyze_results([result], ["cat", "dog"], columns={"sky": {1: "blue"}})
    assert evaluation.findings == [
        "Detections from score 0.90 on have the best F1, 0.67: 100 % of them are "
        "right, and they find 50 % of the objects.",
        "Most AP is lost to classification errors (right place, wrong class): 0.500 of "
        "AP50.",
        "'dog' has the lowest AP, 0.000.",
        "The AP of classes with fewer than 10 objects is mostly chance: 'cat', 'dog'.",
        "1 annotation may be wrong: 1 wrong class.",
    ]
    lines = str(evaluation).splitlines()
    assert lines[0] == "1 image, 2 objects of 2 classes, 2 detections"
    assert lines[2] == "AP          0.5000  precision, mean over IoU 0.50 to 0.95"
    rows = [line.split() for line in lines]
    assert rows[rows.index(["sky", "images", "objects", "AP", "AP50"]) + 1] == [
        "blue",
        "1",
        "2",
        "0.500",
        "0.500",
    ]
    classes = evaluation.to_dict()["classes"]
    assert [(x["name"], x["ap"], x["threshold"]) for x in classes] == [
        ("cat", pytest.approx(1), 0.9),
        ("dog", 0, None),
    ]


@pytest.mark.parametrize("shift, accuses", [(0, True), (5, False)])
def test_a_poor_model_accuses_no_annotation(shift, accuses):
    truth = [(0, 30 * k, 0, 30 * k + 15, 15) for k in range(12)]
    found = [(0, 0.9, x + shift, y, x2 + shift, y2) for _, x, y, x2, y2 in truth[1:]]
    evaluation = analyze_results([image_result(truth, found)], ["cat"])
    words = "\n".join(evaluation.findings)
    assert evaluation.suspects and evaluation.can_judge_annotations == accuses
    assert ("may be wrong" in words) == accuses
    assert ("says more about the model" in words) != accuses


def test_without_objects_or_detections_or_sizes():
    nothing = ImageResult(1, [], [], [], [], [])
    found = ImageResult(1, [], [], [[0, 0, 9, 9]], [0.9], [0])
    missed = ImageResult(1, [[0, 0, 9, 9]], [0], [], [], [])
    for result in (nothing, found, missed):
        evaluation = analyze_results([result], ["cat"])
        json.dumps(evaluation.to_dict(), allow_nan=False)
        assert "image" in str(evaluation)
        assert evaluation.temperature is None
        assert evaluation.shown_score == 0.3
    assert "nothing can be measured" in str(analyze_results([found], ["cat"]))
    assert evaluation.findings[0] == "No detection is right at IoU 0.5."
    assert evaluation.coco["AP"] == 0.0


def test_what_cannot_be_analyzed_is_told():
    with pytest.raises(ValueError, match="nothing to analyze"):
        analyze_results([], ["cat"])
    result = ImageResult(5, [], [], [], [], [])
    with pytest.raises(ValueError, match=r"image_id=\[5\]"):
        analyze_results([result, result], ["cat"])
    one = image_result([(2, 0, 0, 9, 9)], [(3, 0.5, 0, 0, 9, 9)], image_id=7)
    for names, label in (("ab", 2), ("abc", 3)):
        with pytest.raises(ValueError, match=rf"image_id=7, labels=\[{label}"):
            analyze_results([one], names)


def test_detections_go_to_coco_and_back(results):
    ids = (7, 3, 90, 1)
    records = json.loads(json.dumps(coco.detections_to_coco(results, ids)))
    truth = {
        "images": [{"id": r.image_id} for r in results],
        "categories": [{"id": i} for i in ids],
        "annotations": [],
    }
    again = coco.results_of_coco(truth, records)
    assert sum(len(r.scores) for r in results) == len(records) > 20
    for one, other in zip(results, again):
        np.testing.assert_allclose(one.boxes, other.boxes, rtol=1e-12)
        np.testing.assert_array_equal(one.scores, other.scores)
        np.testing.assert_array_equal(one.labels, other.labels)


def test_a_comparison_shows_both_and_what_is_certain(results, evaluation):
    weaker = [
        dataclasses.replace(r, boxes=r.boxes + np.float64([0, 0, 6, 9]))
        for r in results
    ]
    other = analyze_results(weaker, NAMES)
    # Of few images the draws say too little, however far apart they lie.
    few = compare_evaluations(("a", "b"), (evaluation, other), (results, weaker))
    found = few.differences["AP"]
    assert found.high < 0
    assert "too few images" in few.conclusions[0]
    found = dataclasses.replace(few, num_images=30)
    text = str(found)
    assert "the first detector is better" in text
    assert ["AP/<b>fish", "-", "-", "-"] in [x.split() for x in text.splitlines()]
    same = compare_evaluations(("a", "a"), (other, other), (weaker, weaker))
    same = dataclasses.replace(same, num_images=30)
    assert "these images do not show which is better" in str(same)
    assert set(json.loads(json.dumps(found.to_dict()))) == {"AP", "AP50"}
