"""The layer of an EfficientDet that other networks can use."""

from effdet_keras.model.bifpn import BiFPN

__all__ = ["BiFPN"]
