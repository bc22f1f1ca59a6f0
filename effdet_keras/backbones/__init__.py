"""Backbones: images to feature maps."""

from effdet_keras.backbones.efficientnet import EfficientNet, block_table

__all__ = ["EfficientNet", "block_table"]
