"""The layers that an EfficientDet is made of."""

from effdet_keras.model.basic_layers import (
    BatchNormOptions,
    DropPath,
    Normalize,
    PyramidOptions,
    get_activation,
)
from effdet_keras.model.batch_norm import BatchNormalization
from effdet_keras.model.bifpn import (
    BiFPN,
    BiFPNCell,
    BiFPNNode,
    ConvBN,
    WeightedFusion,
    bifpn_nodes,
    pyramid_nodes,
    qufpn_nodes,
)
from effdet_keras.model.heads import PredictionHead, SegmentationHead
from effdet_keras.model.mbconv import FusedMBConv, MBConv, SqueezeExcite
from effdet_keras.model.resample import Resample

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
    "SegmentationHead",
    "SqueezeExcite",
    "WeightedFusion",
    "bifpn_nodes",
    "get_activation",
    "pyramid_nodes",
    "qufpn_nodes",
]
