"""COCOMetric: by hand, by pycocotools itself, by reference."""

import contextlib
import copy
import io

import numpy as np
import pytest
from support.image_results import random_results

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras.evaluate import coco as coco_backends
from effdet_keras.evaluate.coco import METRIC_NAMES, COCOMetric, metric_of


def truth(boxes_xywh=((10, 20, 40, 40),), image_ids=(7,), **extra):
    """Ground truth of one category: the boxes lie on the first image."""
    return {
        "images": [{"id": i, "height": 200, "width": 200} for i in image_ids],
        "categories": [{"id": 3, "name": "car"}],
        "annotations": [
            {"id": n, "image_id": image_ids[0], "category_id": 3, "bbox": box, **extra}
            for n, box in enumerate(boxes_xywh)
        ],
    }


PERFECT = [[20, 10, 60, 50]], [0.5], [3]  # of `truth()`


def fill(metric, detections):
    for image_id, (boxes_xywh, scores, category_ids) in detections.items():
        x, y, w, h = np.asarray(boxes_xywh).T
        boxes = np.stack([y, x, y + h, x + w], axis=-1)
        metric.update(image_id, boxes, scores, category_ids)
    return metric


# --- by hand


def test_a_perfect_detection_scores_1_and_what_is_absent_minus_1(capsys):
    metric = COCOMetric(truth(area=500))
    metric.update(7, *PERFECT)
    expected = dict.fromkeys(METRIC_NAMES, 1.0) | {"AP/car": 1.0}
    expected |= {"APm": -1, "APl": -1, "ARm": -1, "ARl": -1}  # area 500 is small
    assert metric.result() == pytest.approx(expected)
    assert capsys.readouterr().out == ""
    nothing = COCOMetric(truth([]))
    nothing.update(7, *PERFECT)
    assert set(nothing.result().values()) == {-1}


def test_an_image_of_which_nothing_is_known_counts():
    metric = COCOMetric(truth(image_ids=(7, 8)))
    metric.update(7, *PERFECT)
    metric.update(8, [[20, 10, 60, 50]], [0.9], [3])  # a false alarm
    assert metric.result()["AP"] == pytest.approx(0.5)
    data = truth(image_ids=(7, 8))
    data["annotations"].append({**data["annotations"][0], "image_id": 8})
    metric = COCOMetric(data)
    metric.update(7, *PERFECT)  # all of image 8 is missed
    assert metric.result()["ARmax100"] == pytest.approx(0.5)


def test_an_annotation_with_id_0_is_matched_and_padding_rows_do_not_count():
    data = truth()
    assert data["annotations"][0]["id"] == 0
    metric = COCOMetric(data)
    metric.update(7, [[20, 10, 60, 50], [0, 0, 0, 0]], [0.5, 0.9], [3, -1])
    assert metric.result()["AP"] == pytest.approx(1)


@pytest.mark.parametrize(
    "objects, max_detections, recall", [(20, 10, 0.5), (20, 20, 1), (120, 120, 1)]
)
def test_only_the_best_detections_of_a_category_count(objects, max_detections, recall):
    boxes = [(15 * i % 180, 15 * (i // 12), 10, 10) for i in range(objects)]
    metric = COCOMetric(truth(boxes), max_detections=max_detections)
    scores = np.linspace(1, 0.1, objects)
    fill(metric, {7: (np.array(boxes, float), scores, [3] * objects)})
    assert metric.result()[f"ARmax{max_detections}"] == pytest.approx(recall)
    assert len(list(metric._records())) == max_detections


def test_the_categories_are_named_and_a_repeated_name_gets_its_id():
    data = truth()
    data["categories"] += [{"id": 9, "name": "car"}, {"id": 1, "name": "bus"}]
    result = COCOMetric(data).result()
    assert list(result)[12:] == ["AP/bus", "AP/car", "AP/car (9)"]
    assert result["AP/bus"] == -1 and result["AP/car"] == 0


def test_table_names_every_number_and_writes_a_dash_for_absent_ones():
    metric = COCOMetric(truth(image_ids=(7, 8)))
    metric.update(7, *PERFECT)
    lines = metric.table().splitlines()
    assert lines[0] == "1 of 2 images evaluated, 1 annotations"
    table = {line.split()[0]: line.split()[1] for line in lines[1:]}
    assert list(table) == list(metric.result())
    assert (table["AP"], table["AP/car"], table["APs"]) == ("1.0000", "1.0000", "-")


# --- by definition: pycocotools on its own way


def random_case(seed):
    """Truth and detections: `(dict, {image_id: (boxes_xywh, ...)})`."""
    metric = metric_of(random_results(seed, num_images=30), "abc")
    categories = [{"id": i, "name": name} for i, name in enumerate("abc", 1)]
    detections = {i: found for i, (*found, _) in metric._detections.items()}
    return {**metric._ground_truth, "categories": categories}, detections


@pytest.mark.parametrize("seed", range(3))
def test_equals_pycocotools(seed):
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    data, detections = random_case(seed)
    result = fill(COCOMetric(data), detections).result()
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = copy.deepcopy(data)
        coco.createIndex()
        rows = [
            {"image_id": i, "bbox": box.tolist(), "score": score, "category_id": int(c)}
            for i, (boxes, scores, category_ids) in detections.items()
            for box, score, c in zip(boxes, scores, category_ids)
        ]
        evaluation = COCOeval(coco, coco.loadRes(rows), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    np.testing.assert_allclose(
        [result[name] for name in METRIC_NAMES], evaluation.stats, atol=1e-9
    )
    assert 0 < result["AP"] < 1 and result["AP/c"] == -1


@pytest.mark.parametrize("max_detections", [10, 100, 300])
@pytest.mark.parametrize("seed", range(2))
def test_hotcoco_gives_the_same_numbers(seed, max_detections):
    pytest.importorskip("hotcoco", reason="extra `fast-eval` is not installed")
    data, detections = random_case(seed)
    judge, fast = (COCOMetric(data, max_detections=max_detections) for _ in range(2))
    judge.backend, fast.backend = "pycocotools", "hotcoco"
    assert fill(judge, detections).result() == fill(fast, detections).result()
    assert 0 < judge.result()["AP"] < 1 and judge.result()["AP/c"] == -1


def set_hotcoco(monkeypatch, name):
    module = OptionalModule(name, install="effdet-keras[fast-eval]")
    monkeypatch.setattr(coco_backends, "_hotcoco", module)


def test_hotcoco_is_used_where_it_is_installed(monkeypatch):
    set_hotcoco(monkeypatch, "json")  # a package that is there
    assert COCOMetric(truth()).backend == "hotcoco"
    set_hotcoco(monkeypatch, "no_such_module")
    assert COCOMetric(truth()).backend == "pycocotools"


# --- by reference


@pytest.mark.smoke
def test_equals_the_reference(golden, golden_path):
    arrays = golden("coco_metric.npz")
    metric = COCOMetric(golden_path("coco_metric_truth.json"))
    for rows in arrays["detections"]:
        fill(metric, {int(rows[0, 0]): (rows[:, 1:5], rows[:, 5], rows[:, 6])})
    result = metric.result()
    names = [str(name) for name in arrays["metric_names"]]
    assert tuple(names) == METRIC_NAMES
    np.testing.assert_allclose([result[n] for n in names], arrays["json"], atol=1e-6)
    classes = [f"AP/{name}" for name in ("person", "car", "train", "dog")]
    np.testing.assert_allclose(
        [result[name] for name in classes], arrays["json_per_class"][12:], atol=1e-6
    )


# --- wrong arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((5, [], [], []), r"such as \[7\].*image_id=5"),
        ((7, [], [], []), r"each image once.*reset.*image_id=7"),
        (
            (7, [[0, 0, 1, 1]], [0.5, 0.6], [3]),
            "the same length.*boxes=1, scores=2, category_ids=1",
        ),
    ],
)
def test_an_update_that_cannot_be_right_is_refused(arguments, message):
    metric = COCOMetric(truth(image_ids=(7,)))
    if "once" in message:
        metric.update(7, [], [], [])
    with pytest.raises(ValueError, match=message):
        metric.update(*arguments)


def test_labels_in_place_of_category_ids_give_a_warning():
    metric = COCOMetric(truth())
    metric.update(7, [[20, 10, 60, 50]], [0.5], [0])
    with pytest.warns(UserWarning, match=r"such as \[3\], .*none of the 1 detections"):
        metric.result()


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (truth(category_id=44), {}, "category_id=44"),
        (truth(), {"max_detections": 5}, "`max_detections` must be 10 or more.*5"),
    ],
)
def test_arguments_out_of_range_are_refused(data, options, message):
    with pytest.raises(ValueError, match=message):
        COCOMetric(data, **options)
