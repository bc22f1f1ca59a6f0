"""What is wrong with a dataset, and how well a model's anchors cover its boxes."""

from effdet_keras.inspection.check import CheckReport, check, check_splits
from effdet_keras.inspection.coverage import Coverage

__all__ = ["CheckReport", "Coverage", "check", "check_splits"]
