"""What is wrong with a dataset, and how well a model's anchors cover its boxes."""

from effdet_keras.inspection.anchors import AnchorFit, Coverage, fit_anchors
from effdet_keras.inspection.check import CheckReport, check, check_splits

__all__ = [
    "AnchorFit",
    "CheckReport",
    "Coverage",
    "check",
    "check_splits",
    "fit_anchors",
]
