"""Which images a run trained on and which it held out, found again in its data."""

from __future__ import annotations

import contextlib
import io
import json
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

# Folders of a run that have models in them.
_INSIDE = (ARCHIVE_FOLDER, "export", "followed")


def run_of_model(model: str | os.PathLike) -> RunFolder | None:
    """The run that a model is of, or whose checkpoint or export it is; else None.

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


# Of a run that is old or damaged, or whose data needs a package that is not here.
_NOT_READ = (EffDetError, ValueError, OSError)


def configuration_of_run(folder: RunFolder) -> RunConfiguration | None:
    """What a run began with; None where it cannot be read, as of another version."""
    try:
        return folder.read_configuration()
    except _NOT_READ:
        return None


def splits_of_run(
    folder: RunFolder, data: str | None = None, format: str | None = None
) -> Splits | None:
    """What a run trained on and held out: of `data`, or of its own path.

    None where that cannot be read, or has other images or annotations than the run had:
    `data.json` has digests of its splits.
    """
    configuration = configuration_of_run(folder)
    if configuration is None:
        return None
    if data is not None:
        where = {"data": os.fspath(data), "format": format}
        configuration = configuration.replace(**where, **dict.fromkeys(FILE_PATTERNS))
    # What is wrong with the data, and how it is divided, was said when it was trained.
    quiet = contextlib.redirect_stdout(io.StringIO())
    with quiet, warnings.catch_warnings(action="ignore"):
        try:
            described = json.loads((folder.path / "data.json").read_text("utf-8"))
            splits = choose_splits(configuration)
        except _NOT_READ:
            return None
    for role in ("train", "validation"):
        digest = described["splits"].get(role, {}).get("sha256")
        if digest != fingerprint(splits.by_role()[role]):
            return None
    return splits


def trained_on_too(train: DetectionDataset, dataset: DetectionDataset) -> str | None:
    """A sentence where images of a dataset were trained on; None where none was."""
    shared = len(shared_images(train.records, dataset.records))
    if not shared:
        return None
    return (
        f"{shared:,} of these {len(dataset):,} images were trained on: the numbers "
        "are too good, and say nothing of other images."
    )
