"""From the argument MODEL of a command to the model."""

import argparse
import os
import pathlib

from effdet_keras._internal.local_paths import is_remote
from effdet_keras._internal.remote_path import path_of
from effdet_keras.config import MODEL_NAMES
from effdet_keras.models import EfficientDet
from effdet_keras.predictor import Predictor
from effdet_keras.runs.run_folder import RunFolder


def open_predictor(arguments: argparse.Namespace) -> Predictor:
    """Opens a live or exported model, by `model` and `threads` of the arguments."""
    return open_any_model(arguments.model, arguments.threads)


def open_any_model(model: str, threads: int | None = None) -> Predictor:
    """Opens a model of any kind, or fetches a published one by its name.

    Args:
        model: path of what `Predictor.load` opens, path of the folder of a run, whose
            best checkpoint is meant, or name of a published model.
        threads: int, of the runtime of an exported model; None for its own choice.

    Returns:
        `Predictor`.

    Raises:
        OSError, ValueError, ImportError: As of `Predictor.load`.
    """
    if is_published(model):
        return Predictor(open_live_model(model))
    return Predictor.load(archive_of(model), num_threads=threads)


def open_live_model(model: str) -> EfficientDet:
    """Opens an archive, or that of a run, or fetches a published model by its name."""
    if is_published(model):
        return EfficientDet.from_preset(model, weights="coco")
    return EfficientDet.from_archive(archive_of(model))


def archive_of(model: str) -> str | os.PathLike:
    """The folder of checkpoints, where `model` is the folder of a run."""
    if is_remote(model):
        address = path_of(model)
        is_run = (address / "configuration.yaml").is_file()
        return address / "archive" if is_run else model
    folder = RunFolder(model)
    return folder.archive if folder.has_run else model


def is_published(model):
    return model in MODEL_NAMES and not pathlib.Path(model).exists()
