"""Class maps in the HTML report of an evaluation."""

import dataclasses

import numpy as np

from effdet_keras.data import from_arrays
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.evaluate.evaluation import analyze_results
from effdet_keras.evaluate.image_result import ImageResult
from effdet_keras.extras.report.evaluation_report import EvaluationReport


def test_the_report_has_numbers_and_pictures_of_class_maps():
    image, mask = np.full((32, 48, 3), 99, "uint8"), np.zeros((32, 48), "uint8")
    plain = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
    records = [dataclasses.replace(r, mask=mask) for r in plain.records]
    dataset = DetectionDataset(records, ["cat"], seg_class_names=["road", "<grass>"])
    results = [
        ImageResult(
            1, [[4, 8, 20, 40]], [0], [[4, 8, 20, 20]], [0.9], [0], size=(32, 48)
        )
    ]
    evaluation = analyze_results(results, dataset.class_names)
    without = EvaluationReport("Cats", evaluation, results, dataset).html()
    numbers = {"mIoU": 0.625, "IoU/road": 0.75, "IoU/<grass>": 0.5}
    page = EvaluationReport(
        *("Cats", evaluation, results, dataset),
        segmentation=numbers,
        class_maps={1: mask + 1, 7: mask},
    ).html()
    assert "Classes of pixels" in page and "Classes of pixels" not in without
    assert all(text in page for text in ("0.625", "0.75", "&lt;grass&gt;"))
    assert page.count("<img") == without.count("<img") + 2  # image 7 is not there
