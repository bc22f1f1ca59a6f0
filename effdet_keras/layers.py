"""Layers of an EfficientDet that other networks can use."""

from effdet_keras.model.bifpn import BiFPN, WeightedFusion
from effdet_keras.model.mbconv import MBConv

__all__ = ["BiFPN", "MBConv", "WeightedFusion"]
