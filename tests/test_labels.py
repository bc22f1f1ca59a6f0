"""Category ids: one rule, and every part of the package keeps to it."""

import numpy as np
import pytest

import effdet_keras as ek
from effdet_keras.labels import category_ids_or_default, extend_category_ids


@pytest.mark.smoke
def test_without_ids_they_count_from_one_as_in_coco():
    assert category_ids_or_default(None, 3) == (1, 2, 3)
    assert category_ids_or_default([18, 1], 2) == (18, 1)


def test_new_classes_get_ids_that_nothing_has():
    assert extend_category_ids(["a", "b", "c"], {"b": 4}) == [5, 4, 6]


def test_perfect_detections_of_a_model_without_ids_score_one_against_the_dataset():
    images = [np.zeros((64, 64, 3), "uint8")] * 3
    boxes = [[[4, 4, 40, 44]], [[8, 2, 60, 50], [0, 0, 20, 30]], [[10, 10, 50, 50]]]
    labels = [[1], [0, 1], [2]]
    names = ("cat", "dog", "fox")
    dataset = ek.data.from_arrays(images, boxes, labels, names)
    model = ek.EfficientDet.from_preset(
        "efficientdet-d0", image_size=64, max_level=6, class_names=dataset.class_names
    )
    records = []
    for i, image_id in enumerate(dataset.image_ids):
        found = ek.Detections(
            boxes[i],
            np.full(len(labels[i]), 0.9),
            labels[i],
            class_names=model.class_names,
            category_ids=model.category_ids,
            image_id=image_id,
        )
        records += found.to_coco()
    assert _average_precision(dataset.to_coco(), records) == 1.0


def _average_precision(ground_truth, records):
    coco = pytest.importorskip("pycocotools.coco")
    evaluation = pytest.importorskip("pycocotools.cocoeval")
    known = coco.COCO()
    known.dataset = ground_truth
    known.createIndex()
    run = evaluation.COCOeval(known, known.loadRes(records), "bbox")
    run.evaluate()
    run.accumulate()
    run.summarize()
    return round(float(run.stats[0]), 6)
