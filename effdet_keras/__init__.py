"""EfficientDet for Keras 3: train with `fit`, evaluate with COCO, detect, ship.

Example:
    >>> import effdet_keras as ek
    >>> model = ek.EfficientDet.from_preset("efficientdet-d0", num_classes=3)
    >>> model.name
    'efficientdet-d0'
"""

import sys
from typing import TYPE_CHECKING

from effdet_keras._internal.lazy_names import (
    keras_is_imported,
    lazy_names,
    started_as_command,
    when_keras_comes,
)
from effdet_keras._version import __version__

# Each name is imported when it is first used (`lazy_names`): a `Predictor` of a LiteRT,
# ONNX or OpenVINO file needs neither Keras nor TensorFlow.
if TYPE_CHECKING:
    from effdet_keras import (
        augment,
        box_ops,
        callbacks,
        data,
        distribution,
        errors,
        inspection,
        layers,
        visualize,
    )
    from effdet_keras import detect as inference
    from effdet_keras.detect.detections import Detections
    from effdet_keras.detect.postprocess import Postprocess
    from effdet_keras.detect.predictor import Predictor
    from effdet_keras.evaluate import metrics
    from effdet_keras.export.check import ExportReport
    from effdet_keras.extras import bulk
    from effdet_keras.extras.selftest.self_test import self_test
    from effdet_keras.extras.selftest.stages import SelfTestReport
    from effdet_keras.model import anchors
    from effdet_keras.model.config import MODEL_NAMES, EfficientDetConfig
    from effdet_keras.model.efficientdet import EfficientDet
    from effdet_keras.report.evaluation_report import EvaluationReport
    from effdet_keras.runs.configuration import RunConfiguration
    from effdet_keras.runs.fine_tune import fine_tune
    from effdet_keras.runs.train import FineTuned
    from effdet_keras.train import losses, matching, schedules
    from effdet_keras.train.advprop import AdvProp
    from effdet_keras.train.distillation import distill
    from effdet_keras.train.losses import DetectionLoss
    from effdet_keras.train.rate_test import LearningRates, find_learning_rate
    from effdet_keras.weights.archive import read_archive_info, store_score_settings
    from effdet_keras.weights.assign import LoadReport
    from effdet_keras.weights.presets import COCO_CLASS_NAMES, list_presets

__all__ = [
    "COCO_CLASS_NAMES",
    "MODEL_NAMES",
    "AdvProp",
    "DetectionLoss",
    "Detections",
    "EfficientDet",
    "EfficientDetConfig",
    "EvaluationReport",
    "ExportReport",
    "FineTuned",
    "LearningRates",
    "LoadReport",
    "Postprocess",
    "Predictor",
    "RunConfiguration",
    "SelfTestReport",
    "__version__",
    "anchors",
    "augment",
    "box_ops",
    "bulk",
    "callbacks",
    "data",
    "distill",
    "distribution",
    "errors",
    "find_learning_rate",
    "fine_tune",
    "inference",
    "inspection",
    "layers",
    "list_presets",
    "losses",
    "matching",
    "metrics",
    "read_archive_info",
    "schedules",
    "self_test",
    "store_score_settings",
    "visualize",
]


def _import_all() -> None:
    for name in __all__:
        getattr(sys.modules[__name__], name)


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)

    # `keras.saving.load_model` knows only classes that have been registered. So with
    # Keras everything is imported that registers a class. The command `effdet-keras` is
    # the one exception: there each command imports the modules that it uses.
    if keras_is_imported():
        _import_all()
    elif not started_as_command():
        when_keras_comes(_import_all)
