"""A whole training as one thing: its configuration, its folder, and `fine_tune`."""

from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.fine_tune import fine_tune
from effdet_keras.runs.train import FineTuned

__all__ = ["FineTuned", "RunConfiguration", "fine_tune"]
