"""An `Evaluation` as what JSON can hold."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from effdet_keras.evaluation.class_table import class_rows, row_of_all
from effdet_keras.evaluation.interpolated_ap import COCO_RECALLS

if TYPE_CHECKING:
    from effdet_keras.evaluation.evaluation import Evaluation

_LISTED = 200  # of the worst images and of the suspects


def evaluation_to_dict(evaluation: Evaluation) -> dict[str, Any]:
    """See `Evaluation.to_dict`."""
    calibration = evaluation.calibration
    return _plain(
        {
            "images": evaluation.num_images,
            "objects": evaluation.num_objects,
            "detections": evaluation.num_detections,
            "coco": evaluation.coco,
            "voc": {"07": evaluation.voc_07.mean, "10": evaluation.voc_10.mean},
            "class_agnostic_ap": evaluation.class_agnostic_ap,
            "all_classes": row_of_all(evaluation)._asdict(),
            "classes": [row._asdict() for row in class_rows(evaluation)],
            "curves": {
                "recall": COCO_RECALLS,
                "precision": {
                    curve.name: _at_recalls(curve) for curve in evaluation.curves
                },
                "class_agnostic_precision": _at_recalls(
                    evaluation.class_agnostic_curve
                ),
            },
            "shown_score": evaluation.shown_score,
            "confusion": {
                "classes": [*evaluation.class_names, "background"],
                "counts": evaluation.confusion,
            },
            "calibration": {
                **_fields(calibration),
                "expected_error": calibration.expected_error,
                "temperature": evaluation.temperature,
            },
            "errors": _fields(evaluation.errors),
            "shown_errors": _fields(evaluation.shown_errors),
            "slices": {
                "object size": [_fields(x) for x in evaluation.by_object_size],
                "image size": [_fields(x) for x in evaluation.by_image_size],
                "columns": {
                    name: [_fields(x) for x in slices]
                    for name, slices in evaluation.by_column.items()
                },
            },
            "worst_images": [_fields(x) for x in evaluation.worst_images[:_LISTED]],
            "num_suspects": dict(Counter(x.kind for x in evaluation.suspects)),
            "suspects": [_fields(x) for x in evaluation.suspects[:_LISTED]],
            "findings": evaluation.findings,
        }
    )


def _fields(value):
    return None if value is None else dataclasses.asdict(value)


def _at_recalls(curve):
    """The best precision at COCO's recalls; None where there are no objects."""
    if not curve.num_objects:
        return None
    return curve.best_precision_at(COCO_RECALLS)


def _plain(value):
    """The value as Python's own dicts, lists, strings, and finite numbers."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
