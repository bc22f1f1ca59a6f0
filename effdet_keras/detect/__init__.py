"""Detection in datasets, large images and several views, with any detector."""

from typing import TYPE_CHECKING

from effdet_keras._internal.lazy_names import lazy_names

if TYPE_CHECKING:
    from effdet_keras.detect.evaluate import image_results
    from effdet_keras.extras.fusion import weighted_box_fusion
    from effdet_keras.extras.tiles import detect_tiled

__all__ = [
    "detect_tiled",
    "image_results",
    "weighted_box_fusion",
]

_PLACES = {
    "detect_tiled": "extras.tiles",
    "image_results": "detect.evaluate",  # it needs datasets, and they need Keras
    "weighted_box_fusion": "extras.fusion",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
