"""`start`: this process joins those that train with it, or takes all devices."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
from typing import Protocol

import keras

from effdet_keras.distribution.launch import launch_of
from effdet_keras.distribution.processes import Processes, set_processes
from effdet_keras.errors import InvalidStateError, InvalidValueError


@dataclasses.dataclass(frozen=True)
class _Kind:
    backend: str  # of Keras, and the name of the file that has it
    needs_launch: bool


KINDS = {
    "mirrored": _Kind("tensorflow", needs_launch=False),
    "multiworker": _Kind("tensorflow", needs_launch=True),
    "jax": _Kind("jax", needs_launch=False),
}
_started: dict[str, Engine] = {}  # one at most: a process has one engine


def start(distribute: str) -> Engine:
    """Makes this process train on several devices, or with other processes.

    Call it before anything else runs on TensorFlow or JAX, and make the model in the
    `scope()` of what it returns. From then on batches to train on, evaluations and
    checkpoints are shared out among the processes. `fine_tune(distribute=...)` and
    `effdet-keras train --distribute` do all of this.

    Args:
        distribute: "mirrored" trains on all devices of this machine, with TensorFlow;
            "multiworker" with the processes that a launcher has started, with
            TensorFlow; "jax" on all devices, and with the processes that a launcher
            has started where there are some, with JAX.

    Returns:
        `Engine`, with `processes` and `scope()`. A second call returns the first.

    Raises:
        ValueError: If there is no such engine, Keras runs on another backend, or the
            variables of the launcher are missing or wrong.
        RuntimeError: If this process has started another one.

    Example:
        >>> start("rockets")
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `distribute` must be one of 'mirrored', \
'multiworker', 'jax'. Received: distribute='rockets'
    """
    if distribute not in KINDS:
        raise InvalidValueError(
            f"`distribute` must be one of {', '.join(map(repr, KINDS))}. Received: "
            f"distribute={distribute!r}"
        )
    if distribute in _started:
        return _started[distribute]
    if _started:
        raise InvalidStateError(
            f"This process trains with distribute={next(iter(_started))!r} and cannot "
            f"change to {distribute!r}: start another process."
        )
    kind = KINDS[distribute]
    if keras.backend.backend() != kind.backend:
        raise InvalidValueError(
            f"`distribute={distribute!r}` needs Keras to run on {kind.backend}: set "
            f"KERAS_BACKEND={kind.backend}. Received: "
            f"backend={keras.backend.backend()!r}"
        )
    launch = None if distribute == "mirrored" else launch_of(os.environ)
    if launch is None and kind.needs_launch:
        raise InvalidValueError(
            f"`distribute={distribute!r}` trains with processes that a launcher "
            "starts, and none has set its variables: TF_CONFIG; or JAX_PROCESS_ID, "
            "JAX_NUM_PROCESSES and JAX_COORDINATOR_ADDRESS; or RANK, WORLD_SIZE, "
            "MASTER_ADDR and MASTER_PORT; or those of Slurm's `srun`. "
            "docs/distributed.md has an example of each."
        )
    # By name, because only one of the backends may be installed.
    module = importlib.import_module(f"effdet_keras.distribution.{kind.backend}")
    engine = module.engine(distribute, launch)
    _started[distribute] = engine
    set_processes(engine.processes)
    return engine


# --- What an engine offers that trains on several devices or processes.


class Engine(Protocol):
    """One way to train on several devices; a file of this folder for each.

    Such a file has a function `engine(name, launch)` that returns one, where `launch`
    is a `Launch`, or None where no other process takes part.
    """

    processes: Processes

    def scope(self) -> contextlib.AbstractContextManager:
        """The context in which a model is made, compiled and loaded."""
