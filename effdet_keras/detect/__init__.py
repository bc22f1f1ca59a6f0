"""Detection in datasets, large images and several views, with any detector."""

from typing import TYPE_CHECKING

from effdet_keras._internal.lazy_names import lazy_names

if TYPE_CHECKING:
    from effdet_keras.detect.evaluate import image_results
    from effdet_keras.extras.fusion import detect_augmented, weighted_box_fusion
    from effdet_keras.extras.tiles import detect_tiled, tile_grid

__all__ = [
    "detect_augmented",
    "detect_tiled",
    "image_results",
    "tile_grid",
    "weighted_box_fusion",
]

_PLACES = {
    "detect_augmented": "extras.fusion",
    "detect_tiled": "extras.tiles",
    "image_results": "detect.evaluate",  # it needs datasets, and they need Keras
    "tile_grid": "extras.tiles",
    "weighted_box_fusion": "extras.fusion",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
