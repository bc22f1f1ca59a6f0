"""The trainer of the backend that runs: the one place that asks which it is."""

import importlib

import keras

Trainer = importlib.import_module(
    f"effdet_keras.training.{keras.backend.backend()}_trainer"
).Trainer
