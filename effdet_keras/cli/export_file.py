"""Exports a model with what a command line can say: paths instead of datasets."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from effdet_keras.cli.dataset_source import EVALUATION_SPLITS, DatasetSource
from effdet_keras.cli.open_model import open_live_model
from effdet_keras.export.check import ExportReport

_CALIBRATION_SPLITS = ("train", "trainval")


def export_file(
    model: str,
    out: str | os.PathLike,
    format: str | None = None,
    *,
    target: str | None = None,
    images: str | None = None,
    evaluate: DatasetSource,
    calibration: DatasetSource,
    options: Mapping[str, Any],
) -> ExportReport:
    """Opens a model and exports it; see `EfficientDet.export`.

    Args:
        evaluate: the dataset on which model and export are compared, by default its
            test or validation split.
        calibration: a folder of images, or the dataset that shows int8 its ranges, by
            default its training split.
    """
    options = dict(options)
    if evaluate.path is not None:
        options["evaluate"] = evaluate.load(EVALUATION_SPLITS)
    if calibration.path is not None:
        options["calibration"] = _calibration_images(calibration)
    if target is not None:
        options["target"] = target
    return open_live_model(model).export(out, format, images=images, **options)


def _calibration_images(source):
    is_dataset = source.split is not None or source.format is not None
    if not is_dataset and source.is_folder_of_images():
        return pathlib.Path(source.path)
    return source.load(_CALIBRATION_SPLITS)
