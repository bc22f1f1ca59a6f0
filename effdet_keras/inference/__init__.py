"""Detection in datasets, large images and several views, with any detector."""

from typing import TYPE_CHECKING

from effdet_keras._internal.lazy_names import lazy_names

# Imported when they are first used: `image_results` needs datasets, `detect` does not.
if TYPE_CHECKING:
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

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)
