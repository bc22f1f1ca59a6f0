"""The public names of evaluation: `ek.metrics`."""

from effdet_keras.evaluation.calibration import (
    Calibration,
    apply_temperature,
    find_temperature,
    measure_calibration,
)
from effdet_keras.evaluation.coco_metric import METRIC_NAMES, COCOMetric
from effdet_keras.evaluation.compare import Difference, compare_detectors
from effdet_keras.evaluation.confusion import confusion_matrix
from effdet_keras.evaluation.error_kinds import ErrorKinds, decompose_errors
from effdet_keras.evaluation.evaluation import Evaluation, analyze_results
from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.mean_iou import MeanIoU
from effdet_keras.evaluation.precision_recall import (
    PrecisionRecallCurve,
    class_agnostic_average_precision,
    class_agnostic_curve,
    precision_recall_curves,
)
from effdet_keras.evaluation.results_of_coco import read_detections, results_of_coco
from effdet_keras.evaluation.results_to_coco import detections_to_coco
from effdet_keras.evaluation.score_settings import ScoreSettings
from effdet_keras.evaluation.slices import (
    COCO_SIZES,
    FINE_SIZES,
    Slice,
    slice_by_class,
    slice_by_column,
    slice_by_image_size,
    slice_by_object_size,
)
from effdet_keras.evaluation.suspects import Suspect, find_suspects
from effdet_keras.evaluation.thresholds import (
    BestThreshold,
    best_common_threshold,
    best_thresholds,
)
from effdet_keras.evaluation.voc import VOCAveragePrecision, voc_average_precision
from effdet_keras.evaluation.worst_images import ImageErrors, worst_images

__all__ = [
    "COCO_SIZES",
    "FINE_SIZES",
    "METRIC_NAMES",
    "BestThreshold",
    "COCOMetric",
    "Calibration",
    "Difference",
    "ErrorKinds",
    "Evaluation",
    "ImageErrors",
    "ImageResult",
    "MeanIoU",
    "PrecisionRecallCurve",
    "ScoreSettings",
    "Slice",
    "Suspect",
    "VOCAveragePrecision",
    "analyze_results",
    "apply_temperature",
    "best_common_threshold",
    "best_thresholds",
    "class_agnostic_average_precision",
    "class_agnostic_curve",
    "compare_detectors",
    "confusion_matrix",
    "decompose_errors",
    "detections_to_coco",
    "find_suspects",
    "find_temperature",
    "measure_calibration",
    "precision_recall_curves",
    "read_detections",
    "results_of_coco",
    "slice_by_class",
    "slice_by_column",
    "slice_by_image_size",
    "slice_by_object_size",
    "voc_average_precision",
    "worst_images",
]
