"""Callbacks for `fit`: evaluation, moving averages, checkpoints and images."""

from typing import TYPE_CHECKING

from effdet_keras._internal.lazy_names import lazy_names
from effdet_keras.callbacks.checkpoint_archive import CheckpointArchive
from effdet_keras.callbacks.coco_evaluation import COCOEvaluation
from effdet_keras.train.averages import SwapEMA

if TYPE_CHECKING:
    from effdet_keras.extras.image_summary import ImageSummary

__all__ = ["COCOEvaluation", "CheckpointArchive", "ImageSummary", "SwapEMA"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__, {"ImageSummary": "extras.image_summary"}
    )
