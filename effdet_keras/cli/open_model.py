"""From the argument MODEL of a command to the model."""

from __future__ import annotations

import argparse
import importlib
import os
import pathlib
from typing import TYPE_CHECKING

from effdet_keras._internal.optional_imports import keras
from effdet_keras.detect.predictor import Predictor
from effdet_keras.model.config import MODEL_NAMES

if TYPE_CHECKING:
    from effdet_keras.model.efficientdet import EfficientDet


_WITHOUT_KERAS = (".tflite", ".onnx", ".xml")


def open_predictor(arguments: argparse.Namespace) -> Predictor:
    """Opens a live or exported model, by what `add_runtime` adds to the arguments."""
    return open_any_model(
        arguments.model,
        arguments.threads,
        runtime=arguments.runtime,
        precision=arguments.precision,
    )


def open_any_model(
    model: str,
    threads: int | None = None,
    *,
    runtime: str | None = None,
    precision: str = "float32",
) -> Predictor:
    """Opens a model of any kind, or fetches a published one by its name."""
    if is_published(model):
        live = open_live_model(model)
        if runtime is None:
            return Predictor(live)
        return Predictor(
            live, runtime=runtime, num_threads=threads, precision=precision
        )
    is_file_of_runtime = os.fspath(model).lower().endswith(_WITHOUT_KERAS)
    if not is_file_of_runtime and keras.is_installed():
        # Registers the classes that an archive is made of: see `effdet_keras`.
        importlib.import_module("effdet_keras.model.efficientdet")
    return Predictor.load(model, threads, runtime=runtime, precision=precision)


def open_live_model(model: str) -> EfficientDet:
    """Opens an archive or a run, or fetches a published model by its name."""
    from effdet_keras.model.efficientdet import EfficientDet

    if is_published(model):
        return EfficientDet.from_preset(model, weights="coco")
    return EfficientDet.from_archive(model)


def is_published(model):
    return model in MODEL_NAMES and not pathlib.Path(model).exists()
