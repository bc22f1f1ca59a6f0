"""EfficientDet for Keras 3: train with `fit`, evaluate with COCO, detect, ship.

Example:
    >>> import effdet_keras as ek
    >>> model = ek.EfficientDet.from_preset("efficientdet-d0", num_classes=3)
    >>> model.name
    'efficientdet-d0'
"""

import importlib

from effdet_keras import errors, layers, losses, visualize
from effdet_keras._version import __version__
from effdet_keras.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.detections import Detections
from effdet_keras.evaluation import metrics
from effdet_keras.export.check import ExportReport
from effdet_keras.geometry import anchors, box_ops
from effdet_keras.losses import DetectionLoss
from effdet_keras.models import EfficientDet
from effdet_keras.postprocess import Postprocess
from effdet_keras.predictor import Predictor
from effdet_keras.presets import COCO_CLASS_NAMES, list_presets
from effdet_keras.training import schedules
from effdet_keras.weights.archive import read_archive_info
from effdet_keras.weights.report import LoadReport

# These import TensorFlow, which the network does without.
_ON_TENSORFLOW = ("callbacks", "data")

__all__ = [
    "COCO_CLASS_NAMES",
    "MODEL_NAMES",
    "DetectionLoss",
    "Detections",
    "EfficientDet",
    "EfficientDetConfig",
    "ExportReport",
    "LoadReport",
    "Postprocess",
    "Predictor",
    "__version__",
    "anchors",
    "box_ops",
    "callbacks",
    "data",
    "errors",
    "layers",
    "list_presets",
    "losses",
    "metrics",
    "read_archive_info",
    "schedules",
    "visualize",
]


def __getattr__(name):
    if name in _ON_TENSORFLOW:
        return importlib.import_module(f"effdet_keras.{name}")
    raise AttributeError(f"module 'effdet_keras' has no attribute {name!r}")
