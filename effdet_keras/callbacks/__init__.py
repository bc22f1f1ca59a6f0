"""Callbacks of `fit`: evaluation, averages, archive and images."""

from effdet_keras.callbacks.checkpoint_archive import CheckpointArchive
from effdet_keras.callbacks.coco_evaluation import COCOEvaluation
from effdet_keras.callbacks.image_summary import ImageSummary
from effdet_keras.train.averages import SwapEMA

__all__ = ["COCOEvaluation", "CheckpointArchive", "ImageSummary", "SwapEMA"]
