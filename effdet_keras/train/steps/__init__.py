"""What a training step does on each backend: the one place that asks which runs."""

import importlib

import keras

from effdet_keras.train.steps.contract import BackendStep


def step_of_backend(model) -> BackendStep:
    """Returns the step of the backend that Keras runs on, for one model."""
    # Imported by name, because only one of the three backends may be installed.
    backend = importlib.import_module(f"{__name__}.{keras.backend.backend()}")
    return backend.Step(model)
