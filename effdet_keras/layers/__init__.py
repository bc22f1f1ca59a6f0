"""The layers that an EfficientDet is made of."""

from effdet_keras.layers.activation import get_activation
from effdet_keras.layers.batch_norm import BatchNormalization
from effdet_keras.layers.bifpn import (
    BiFPN,
    BiFPNCell,
    BiFPNNode,
    ConvBN,
    bifpn_nodes,
    pyramid_nodes,
    qufpn_nodes,
)
from effdet_keras.layers.drop_path import DropPath
from effdet_keras.layers.fused_mbconv import FusedMBConv
from effdet_keras.layers.fusion import WeightedFusion
from effdet_keras.layers.heads import PredictionHead
from effdet_keras.layers.mbconv import MBConv, SqueezeExcite
from effdet_keras.layers.normalize import Normalize
from effdet_keras.layers.options import BatchNormOptions, PyramidOptions
from effdet_keras.layers.resample import Resample

__all__ = [
    "BatchNormOptions",
    "BatchNormalization",
    "BiFPN",
    "BiFPNCell",
    "BiFPNNode",
    "ConvBN",
    "DropPath",
    "FusedMBConv",
    "MBConv",
    "Normalize",
    "PredictionHead",
    "PyramidOptions",
    "Resample",
    "SqueezeExcite",
    "WeightedFusion",
    "bifpn_nodes",
    "get_activation",
    "pyramid_nodes",
    "qufpn_nodes",
]
