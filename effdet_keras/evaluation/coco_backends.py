"""COCO's evaluation itself, by pycocotools or a faster package: dicts to numbers."""

from __future__ import annotations

import contextlib
import io

import numpy as np

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluation.unmeasured import mean_of_measured

_hotcoco = OptionalModule("hotcoco", install="effdet-keras[fast-eval]")

# The modules that hold the classes `COCO` and `COCOeval`. hotcoco is 16 times as fast
# (benchmarks/coco_eval.py), and its arrays are those of pycocotools, bit by bit
# (tests/evaluation/test_coco_metric.py).
BACKENDS = {
    "pycocotools": (
        OptionalModule("pycocotools.coco", install="pycocotools"),
        OptionalModule("pycocotools.cocoeval", install="pycocotools"),
    ),
    "hotcoco": (_hotcoco, _hotcoco),
}


def resolve_backend(backend):
    """The name of the backend to use; "auto" is hotcoco where it is installed.

    Raises:
        ValueError: If there is no such backend.
        ImportError: If hotcoco is asked for and not installed.
    """
    if backend != "auto" and backend not in BACKENDS:
        raise InvalidValueError(
            f"`backend` must be 'auto' or one of {', '.join(map(repr, BACKENDS))}. "
            f"Received: backend={backend!r}"
        )
    if backend == "auto":
        return "hotcoco" if _hotcoco.is_installed() else "pycocotools"
    if backend == "hotcoco":
        _hotcoco.require("`COCOMetric(backend='hotcoco')`")
    return backend


def coco_numbers(backend, ground_truth, detections, category_names, max_detections):
    """Computes COCO's numbers.

    Args:
        backend: key of `BACKENDS`.
        ground_truth: dict of `images`, `annotations` and `categories`.
        detections: list of dicts, annotations with a `score`.
        category_names: dict of category id to name.
        max_detections: int, the number of detections per image and category.

    Returns:
        Dict of floats by name: the twelve of COCO, then `AP/<category name>`; -1
        where there is nothing to measure.
    """
    coco, coco_eval = BACKENDS[backend]
    found = {**ground_truth, "annotations": detections}
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = coco_eval.COCOeval(
            _index(coco.COCO, ground_truth), _index(coco.COCO, found), "bbox"
        )
        evaluation.params.maxDets = [1, 10, max_detections]
        evaluation.evaluate()
        evaluation.accumulate()
    return _summarize(evaluation, category_names, max_detections)


def _index(coco, dataset):
    index = coco()
    index.dataset = dataset
    index.createIndex()
    return index


def _summarize(evaluation, category_names, max_detections):
    """The twelve numbers and the categories, from the arrays of pycocotools."""
    # [IoU threshold, recall, category, area, max detections] and without recall
    precision = np.asarray(evaluation.eval["precision"])
    recall = np.asarray(evaluation.eval["recall"])
    iou50, iou75 = (
        int(np.flatnonzero(np.isclose(evaluation.params.iouThrs, threshold))[0])
        for threshold in (0.5, 0.75)
    )
    everything, small, medium, large = range(4)
    result = {
        "AP": mean_of_measured(precision[..., everything, 2]),
        "AP50": mean_of_measured(precision[iou50, ..., everything, 2]),
        "AP75": mean_of_measured(precision[iou75, ..., everything, 2]),
        "APs": mean_of_measured(precision[..., small, 2]),
        "APm": mean_of_measured(precision[..., medium, 2]),
        "APl": mean_of_measured(precision[..., large, 2]),
        "ARmax1": mean_of_measured(recall[..., everything, 0]),
        "ARmax10": mean_of_measured(recall[..., everything, 1]),
        f"ARmax{max_detections}": mean_of_measured(recall[..., everything, 2]),
        "ARs": mean_of_measured(recall[..., small, 2]),
        "ARm": mean_of_measured(recall[..., medium, 2]),
        "ARl": mean_of_measured(recall[..., large, 2]),
    }
    for index, category_id in enumerate(evaluation.params.catIds):
        name = category_names[category_id]
        result[f"AP/{name}"] = mean_of_measured(precision[:, :, index, everything, 2])
    return result
