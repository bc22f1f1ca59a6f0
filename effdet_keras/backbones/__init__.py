"""Backbones: images to feature maps."""

from effdet_keras.backbones.efficientnet import EfficientNet
from effdet_keras.backbones.variants import block_table

__all__ = ["EfficientNet", "block_table"]
