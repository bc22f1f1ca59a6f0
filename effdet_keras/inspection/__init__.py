"""What is wrong with a dataset, and how well anchors cover it: found and shown."""

from effdet_keras.inspection.check import CheckReport, check, check_splits

__all__ = ["CheckReport", "check", "check_splits"]
