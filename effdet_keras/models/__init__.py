"""Models: `EfficientDet`."""

from effdet_keras.models.efficientdet import EfficientDet

__all__ = ["EfficientDet"]
