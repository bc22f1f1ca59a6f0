"""The public names of evaluation: `ek.metrics`."""

from effdet_keras.evaluation.coco_metric import METRIC_NAMES, COCOMetric
from effdet_keras.evaluation.confusion import confusion_matrix
from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.precision_recall import (
    PrecisionRecallCurve,
    class_agnostic_average_precision,
    class_agnostic_curve,
    precision_recall_curves,
)
from effdet_keras.evaluation.slices import (
    COCO_SIZES,
    FINE_SIZES,
    Slice,
    slice_by_class,
    slice_by_column,
    slice_by_image_size,
    slice_by_object_size,
)
from effdet_keras.evaluation.thresholds import (
    BestThreshold,
    best_common_threshold,
    best_thresholds,
)
from effdet_keras.evaluation.voc import VOCAveragePrecision, voc_average_precision

__all__ = [
    "COCO_SIZES",
    "FINE_SIZES",
    "METRIC_NAMES",
    "BestThreshold",
    "COCOMetric",
    "ImageResult",
    "PrecisionRecallCurve",
    "Slice",
    "VOCAveragePrecision",
    "best_common_threshold",
    "best_thresholds",
    "class_agnostic_average_precision",
    "class_agnostic_curve",
    "confusion_matrix",
    "precision_recall_curves",
    "slice_by_class",
    "slice_by_column",
    "slice_by_image_size",
    "slice_by_object_size",
    "voc_average_precision",
]
