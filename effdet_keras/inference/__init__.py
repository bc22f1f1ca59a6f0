"""Detection in datasets, large images and several views, with any detector."""

from effdet_keras.inference.augmented import detect_augmented
from effdet_keras.inference.image_results import image_results
from effdet_keras.inference.tiles import detect_tiled, tile_grid
from effdet_keras.inference.weighted_box_fusion import weighted_box_fusion

__all__ = [
    "detect_augmented",
    "detect_tiled",
    "image_results",
    "tile_grid",
    "weighted_box_fusion",
]
