"""Thresholds and temperature put into an archive, whose weights stay as they are."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import zipfile
from typing import Any

from effdet_keras._internal.local_paths import local_path
from effdet_keras._internal.whole_files import replacing
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluation.score_settings import ScoreSettings
from effdet_keras.weights.archive import ARCHIVE_ENTRY, checkpoint_file, read_entry
from effdet_keras.weights.checkpoint_files import BEST_FILE, is_archive

_CONFIG = "config.json"
_CLASS = "effdet_keras>EfficientDet"


def store_score_settings(
    path: str | os.PathLike[str], settings: ScoreSettings
) -> pathlib.Path:
    """Stores thresholds and temperature in a `.keras` file of an `EfficientDet`.

    The model that `from_archive` or `Predictor.load` makes of the file then has them as
    its `score_settings`, and so has its export. Nothing else in the file changes:
    weights, averages and optimizer are copied byte by byte. It is replaced whole or not
    at all.

    Args:
        path: path of a `.keras` file, or of a folder of `CheckpointArchive` or of a
            run, of which `best.keras` is meant.
        settings: `ScoreSettings`, in the order of the model's labels.

    Returns:
        `pathlib.Path` of the file.

    Raises:
        ValueError: If the file is of another kind, damaged, or has another number of
            classes than `settings`.
        FileNotFoundError: If it is not there.

    Example:
        >>> import tempfile
        >>> from effdet_keras.models import EfficientDet
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, class_names=["cat"])
        >>> path = f"{tempfile.mkdtemp()}/cats.keras"
        >>> model.save(path)
        >>> _ = store_score_settings(path, ScoreSettings([0.4], temperature=1.5))
        >>> EfficientDet.from_archive(path).score_settings
        ScoreSettings(thresholds=(0.4,), temperature=1.5)
    """
    path = file_for_score_settings(path)
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read(_CONFIG))
    info = read_entry(path, check_all=True)  # what is damaged is not copied
    num_classes = config["config"]["config"]["num_classes"]
    if len(settings.thresholds) != num_classes:
        raise InvalidValueError(
            f"The model in '{path}' has {num_classes} classes, and needs a threshold "
            f"for each. Received: {len(settings.thresholds)} thresholds"
        )
    config["config"]["score_settings"] = settings.to_dict()
    changed = {_CONFIG: json.dumps(config)}
    if info is not None:
        info["score_settings"] = settings.to_dict()
        changed[ARCHIVE_ENTRY] = json.dumps(info, indent=1)
    with replacing(path) as partial:
        _copy(path, partial, changed)
    return path


def file_for_score_settings(path: str | os.PathLike[str]) -> pathlib.Path:
    """Finds the file that `store_score_settings` would change.

    Args:
        path: as of `store_score_settings`.

    Returns:
        `pathlib.Path`.

    Raises:
        ValueError: If it can store no thresholds.
        FileNotFoundError: If it is not there.

    Example:
        >>> file_for_score_settings("cats.tflite")
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: Thresholds are stored in a `.keras` ...
    """
    path = local_path(path, "The path of an archive")
    if not is_archive(path):
        raise InvalidValueError(
            "Thresholds are stored in a `.keras` file, or in the best checkpoint of a "
            f"run or a folder of `CheckpointArchive`. Received: '{path}'. Store them "
            "in the model that it was made of, and export that again."
        )
    path = checkpoint_file(path, BEST_FILE)
    read_entry(path)  # refuses what is no file of Keras
    with zipfile.ZipFile(path) as archive:
        if not _is_ours(archive.read(_CONFIG)):
            raise InvalidValueError(
                f"'{path}' holds another model than an `EfficientDet` of this package, "
                "so it cannot store thresholds."
            )
    return path


def _is_ours(text: bytes) -> bool:
    try:
        config: Any = json.loads(text)
        arguments = config["config"]["config"]
        return config["registered_name"] == _CLASS and "num_classes" in arguments
    except (ValueError, KeyError, TypeError):
        return False


def _copy(source, target, changed):
    """Copies a zip file with other contents of some of its entries."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            copy = zipfile.ZipInfo(entry.filename, entry.date_time)
            copy.compress_type = entry.compress_type
            copy.external_attr = entry.external_attr
            if entry.filename in changed:
                new.writestr(copy, changed[entry.filename])
                continue
            copy.file_size = entry.file_size  # by which it knows whether to be large
            with old.open(entry) as read, new.open(copy, "w") as written:
                shutil.copyfileobj(read, written, 2**20)
