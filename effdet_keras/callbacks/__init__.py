"""Callbacks of `fit`: evaluation, averages, archive, and summaries for TensorBoard."""

from typing import TYPE_CHECKING

from effdet_keras._internal.lazy_names import lazy_names
from effdet_keras.callbacks.checkpoint_archive import CheckpointArchive
from effdet_keras.callbacks.coco_evaluation import COCOEvaluation
from effdet_keras.train.averages import SwapEMA

if TYPE_CHECKING:
    from effdet_keras.extras.image_summary import ImageSummary
    from effdet_keras.extras.step_summary import GradientSummary, InputSummary

__all__ = [
    "COCOEvaluation",
    "CheckpointArchive",
    "GradientSummary",
    "ImageSummary",
    "InputSummary",
    "SwapEMA",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "GradientSummary": "extras.step_summary",
            "ImageSummary": "extras.image_summary",
            "InputSummary": "extras.step_summary",
        },
    )
