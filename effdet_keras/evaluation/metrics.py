"""The public names of evaluation: `ek.metrics`."""

from effdet_keras.evaluation.coco_metric import METRIC_NAMES, COCOMetric

__all__ = ["METRIC_NAMES", "COCOMetric"]
