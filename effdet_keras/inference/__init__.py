"""Detection in large images and in several views, with any model that detects."""

from effdet_keras.inference.augmented import detect_augmented
from effdet_keras.inference.tiles import detect_tiled, tile_grid
from effdet_keras.inference.weighted_box_fusion import weighted_box_fusion

__all__ = ["detect_augmented", "detect_tiled", "tile_grid", "weighted_box_fusion"]
