"""What an engine offers that trains on several devices or processes."""

from __future__ import annotations

import contextlib
from typing import Protocol

from effdet_keras.distribution.processes import Processes


class Engine(Protocol):
    """One way to train on several devices; a file of this folder for each.

    Such a file has a function `engine(name, launch)` that returns one, where `launch`
    is a `Launch`, or None where no other process takes part.
    """

    processes: Processes

    def scope(self) -> contextlib.AbstractContextManager:
        """The context in which a model is made, compiled and loaded."""
