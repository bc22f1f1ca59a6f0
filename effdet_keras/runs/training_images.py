"""Finds again which images a run trained on, and which it held out."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import warnings

from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.shared_images import shared_images
from effdet_keras.errors import EffDetError
from effdet_keras.runs.components import Splits, choose_splits
from effdet_keras.runs.configuration import FILE_PATTERNS, RunConfiguration
from effdet_keras.runs.run_folder import RunFolder, fingerprint
from effdet_keras.weights.checkpoint_files import ARCHIVE_FOLDER

# Subfolders of a run that hold models.
_INSIDE = (ARCHIVE_FOLDER, "export", "followed")


def run_of_model(model: str | os.PathLike) -> RunFolder | None:
    """Returns the run that a model belongs to; None if it belongs to no run.

    Args:
        model: path of a run's folder, or of a checkpoint or export inside it.

    Example:
        >>> run_of_model("efficientdet-d0")
    """
    if is_remote(model):
        return None
    path = pathlib.Path(model)
    inside = [p for p in (path, *path.parents) if p.name in _INSIDE]
    for place in (path, *(p.parent for p in inside)):
        folder = RunFolder(place)
        if folder.has_run:
            return folder
    return None


# A run may be old or damaged, or a package that reads its data may be missing.
_NOT_READ = (EffDetError, ValueError, OSError)


def configuration_of_run(folder: RunFolder) -> RunConfiguration | None:
    """Returns the configuration of a run; None if this version cannot read it."""
    try:
        return folder.read_configuration()
    except _NOT_READ:
        return None


def splits_of_run(
    folder: RunFolder, data: str | None = None, format: str | None = None
) -> Splits | None:
    """Returns the splits of a run: the images it trained on, and those it held out.

    The images are read from `data`, or from the run's own path if `data` is None. The
    result is None if they cannot be read, or if images or annotations have changed
    since the run: `data.json` has digests of its splits.
    """
    configuration = configuration_of_run(folder)
    if configuration is None:
        return None
    if data is not None:
        where = {"data": os.fspath(data), "format": format}
        configuration = configuration.replace(**where, **dict.fromkeys(FILE_PATTERNS))
    # The training itself printed the problems of the data and how it was divided.
    quiet = contextlib.redirect_stdout(io.StringIO())
    with quiet, warnings.catch_warnings(action="ignore"):
        try:
            described = folder.read_splits()
            splits = choose_splits(configuration)
        except _NOT_READ:
            return None
    for role in ("train", "validation"):
        digest = described.get(role, {}).get("sha256")
        if digest != fingerprint(splits.by_role()[role]):
            return None
    return splits


def trained_on_too(train: DetectionDataset, dataset: DetectionDataset) -> str | None:
    """Returns a caution if images of a dataset were trained on; else None."""
    shared = len(shared_images(train.records, dataset.records))
    if not shared:
        return None
    return (
        f"{shared:,} of these {len(dataset):,} images "
        f"{'was' if shared == 1 else 'were'} trained on: the metrics are too good and "
        "say nothing about other images."
    )
