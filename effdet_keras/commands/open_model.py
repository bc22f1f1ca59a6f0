"""From the argument MODEL of a command to the model."""

import argparse
import pathlib

from effdet_keras.config import MODEL_NAMES
from effdet_keras.models import EfficientDet
from effdet_keras.predictor import Predictor


def open_predictor(arguments: argparse.Namespace) -> Predictor:
    """Opens a live or exported model, by `model` and `threads` of the arguments."""
    if _is_published(arguments.model):
        return Predictor(open_live_model(arguments.model))
    return Predictor.load(arguments.model, num_threads=arguments.threads)


def open_live_model(model: str) -> EfficientDet:
    """Opens an archive, or fetches a published model by its name."""
    if _is_published(model):
        return EfficientDet.from_preset(model, weights="coco")
    return EfficientDet.from_archive(model)


def _is_published(model):
    return model in MODEL_NAMES and not pathlib.Path(model).exists()
