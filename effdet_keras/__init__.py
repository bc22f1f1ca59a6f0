"""EfficientDet for Keras 3: train with `fit`, evaluate with COCO, detect, ship.

Example:
    >>> import effdet_keras as ek
    >>> model = ek.EfficientDet.from_preset("efficientdet-d0", num_classes=3)
    >>> model.name
    'efficientdet-d0'
"""

from typing import TYPE_CHECKING

from effdet_keras._internal.keras_classes import register_keras_classes
from effdet_keras._internal.lazy_names import lazy_names, started_as_command
from effdet_keras._internal.optional_imports import keras as _keras
from effdet_keras._version import __version__

if TYPE_CHECKING:
    from effdet_keras import augment, callbacks, data, errors, visualize
    from effdet_keras.detect.detections import Detections
    from effdet_keras.detect.postprocess import Postprocess
    from effdet_keras.evaluate import metrics
    from effdet_keras.extras.advprop import AdvProp
    from effdet_keras.extras.distillation import distill
    from effdet_keras.extras.report.evaluation_report import EvaluationReport
    from effdet_keras.model.efficientdet import EfficientDet
    from effdet_keras.network.config import EfficientDetConfig
    from effdet_keras.predictor import Predictor
    from effdet_keras.runs.configuration import RunConfiguration
    from effdet_keras.runs.fine_tune import fine_tune
    from effdet_keras.train import matching, schedules
    from effdet_keras.train.losses import DetectionLoss
    from effdet_keras.train.recipe import Recipe
    from effdet_keras.weights.archive import read_archive_info
    from effdet_keras.weights.presets import COCO_CLASS_NAMES, list_presets

__all__ = [
    "COCO_CLASS_NAMES",
    "AdvProp",
    "DetectionLoss",
    "Detections",
    "EfficientDet",
    "EfficientDetConfig",
    "EvaluationReport",
    "Postprocess",
    "Predictor",
    "Recipe",
    "RunConfiguration",
    "__version__",
    "augment",
    "callbacks",
    "data",
    "distill",
    "errors",
    "fine_tune",
    "list_presets",
    "matching",
    "metrics",
    "read_archive_info",
    "schedules",
    "visualize",
]


# The module of each name, imported when the name is first used. So a `Predictor` of a
# LiteRT, ONNX or OpenVINO file needs neither Keras nor TensorFlow.
_PLACES = {
    "AdvProp": "extras.advprop",
    "COCO_CLASS_NAMES": "weights.presets",
    "DetectionLoss": "train.losses",
    "Detections": "detect.detections",
    "EfficientDet": "model.efficientdet",
    "EfficientDetConfig": "network.config",
    "EvaluationReport": "extras.report.evaluation_report",
    "Postprocess": "detect.postprocess",
    "Predictor": "predictor",
    "Recipe": "train.recipe",
    "RunConfiguration": "runs.configuration",
    "augment": "augment",
    "callbacks": "callbacks",
    "data": "data",
    "distill": "extras.distillation",
    "errors": "errors",
    "fine_tune": "runs.fine_tune",
    "list_presets": "weights.presets",
    "matching": "train.matching",
    "metrics": "evaluate.metrics",
    "read_archive_info": "weights.archive",
    "schedules": "train.schedules",
    "visualize": "visualize",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)

    # `keras.saving` knows only registered classes. Without Keras no model can be
    # loaded. The command registers them when it loads a model: see
    # `_internal/keras_classes`.
    if _keras.is_installed() and not started_as_command():
        register_keras_classes()
