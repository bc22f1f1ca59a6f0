"""The public names of evaluation: `ek.metrics`."""

from effdet_keras.evaluate.coco import COCOMetric
from effdet_keras.evaluate.evaluation import Evaluation, analyze_results
from effdet_keras.evaluate.image_result import ImageResult
from effdet_keras.evaluate.thresholds import ScoreSettings

__all__ = [
    "COCOMetric",
    "Evaluation",
    "ImageResult",
    "ScoreSettings",
    "analyze_results",
]
