"""The public names of evaluation: `ek.metrics`."""

from effdet_keras.evaluate.coco import METRIC_NAMES, COCOMetric
from effdet_keras.evaluate.coco_results import (
    detections_to_coco,
    read_detections,
    results_of_coco,
)
from effdet_keras.evaluate.compare import Difference, compare_detectors
from effdet_keras.evaluate.curves import (
    PrecisionRecallCurve,
    VOCAveragePrecision,
    class_agnostic_average_precision,
    class_agnostic_curve,
    precision_recall_curves,
    voc_average_precision,
)
from effdet_keras.evaluate.error_kinds import (
    ErrorKinds,
    confusion_matrix,
    decompose_errors,
)
from effdet_keras.evaluate.evaluation import Evaluation, analyze_results
from effdet_keras.evaluate.image_result import ImageResult
from effdet_keras.evaluate.mean_iou import MeanIoU
from effdet_keras.evaluate.slices import (
    COCO_SIZES,
    FINE_SIZES,
    Slice,
    slice_by_class,
    slice_by_column,
    slice_by_image_size,
    slice_by_object_size,
)
from effdet_keras.evaluate.suspects import (
    ImageErrors,
    Suspect,
    find_suspects,
    worst_images,
)
from effdet_keras.evaluate.thresholds import (
    BestThreshold,
    Calibration,
    ScoreSettings,
    apply_temperature,
    best_common_threshold,
    best_thresholds,
    find_temperature,
    measure_calibration,
)

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
