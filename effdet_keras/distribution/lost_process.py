"""What a process does when another one of the training is gone."""

from __future__ import annotations

import atexit
import os
import sys

from effdet_keras.distribution.processes import Processes
from effdet_keras.errors import InvalidStateError


def lost_process(processes: Processes, detail: str = "") -> InvalidStateError:
    """The error to raise; this process then ends without waiting for the lost one.

    Args:
        processes: `Processes`.
        detail: string, what the engine said; it is shown.
    """
    # TensorFlow and JAX would wait for the lost process when this one ends.
    atexit.register(end_at_once)
    return InvalidStateError(
        f"Process {processes.index} of {processes.count} has lost another process of "
        "the training, which was stopped or cannot be reached: see what that one "
        "wrote. Start all processes again; with `resume` (--resume) they go on from "
        f"the last checkpoint.{f' ({detail})' if detail else ''}"
    )


def end_at_once() -> None:
    """Ends this process with status 1, and runs nothing that is registered for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
