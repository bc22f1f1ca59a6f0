"""The public names of evaluation: `ek.metrics`."""

from effdet_keras.evaluation.calibration import (
    Calibration,
    apply_temperature,
    find_temperature,
    measure_calibration,
)
from effdet_keras.evaluation.coco_metric import METRIC_NAMES, COCOMetric
from effdet_keras.evaluation.compare import Difference, compare_detectors
from effdet_keras.evaluation.error_kinds import ErrorKinds, decompose_errors
from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.suspects import Suspect, find_suspects
from effdet_keras.evaluation.worst_images import ImageErrors, worst_images

__all__ = [
    "METRIC_NAMES",
    "COCOMetric",
    "Calibration",
    "Difference",
    "ErrorKinds",
    "ImageErrors",
    "ImageResult",
    "Suspect",
    "apply_temperature",
    "compare_detectors",
    "decompose_errors",
    "find_suspects",
    "find_temperature",
    "measure_calibration",
    "worst_images",
]
