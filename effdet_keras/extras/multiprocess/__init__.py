"""Training on several devices and in several processes: `start`."""

from __future__ import annotations

import importlib
import os
from typing import Any

import keras

from effdet_keras._internal.processes import ENGINES, current_processes, set_processes
from effdet_keras.errors import (
    InvalidStateError,
    InvalidValueError,
    check_choice,
    require,
)
from effdet_keras.extras.multiprocess.launch import launch_of

__all__ = ["current_processes", "start"]

_started: dict[str, Any] = {}  # at most one entry: a process has one engine


def start(distribute: str) -> Any:
    """Prepares this process to train on several devices, or with other processes.

    Call it before anything else runs on TensorFlow or JAX, and make the model in the
    `scope()` of the returned engine. From then on, training batches, evaluations and
    checkpoints are divided among the processes. `fine_tune(distribute=...)` and
    `effdet-keras train --distribute` do all of this.

    Args:
        distribute: string. "mirrored" trains on all devices of this machine, with
            TensorFlow. "multiworker" trains with the processes that a launcher has
            started, with TensorFlow. "jax" trains on all devices, and also with the
            processes that a launcher has started, if any, with JAX.

    Returns:
        The engine, which has `processes` and `scope()`. A second call returns the same
        engine.

    Raises:
        ValueError: If there is no such engine, if Keras runs on another backend, or if
            the launcher's environment variables are missing or wrong.
        RuntimeError: If this process has already started another engine.

    Example:
        >>> start("rockets")
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `distribute` must be one of 'mirrored', \
'multiworker', 'jax'. Received: distribute='rockets'
    """
    check_choice("distribute", distribute, ENGINES)
    if distribute in _started:
        return _started[distribute]
    if _started:
        raise InvalidStateError(
            f"This process already trains with distribute={next(iter(_started))!r} "
            f"and cannot change to {distribute!r}: start a new process."
        )
    backend, ours = ENGINES[distribute], keras.backend.backend()
    rule = f"`distribute={distribute!r}` needs Keras to run on {backend}: set "
    require(ours == backend, f"{rule}KERAS_BACKEND={backend}", backend=ours)
    launch = None if distribute == "mirrored" else launch_of(os.environ)
    if launch is None and distribute == "multiworker":
        raise InvalidValueError(
            f"`distribute={distribute!r}` trains with processes that a launcher "
            "starts, but no launcher has set its environment variables: TF_CONFIG; "
            "or JAX_PROCESS_ID, JAX_NUM_PROCESSES and JAX_COORDINATOR_ADDRESS; or "
            "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; or those of Slurm's "
            "`srun`. docs/distributed.md has an example of each."
        )
    # Imported by name, because only one of the backends may be installed.
    module = importlib.import_module(f"effdet_keras.extras.multiprocess.{backend}")
    engine = _started[distribute] = module.engine(distribute, launch)
    set_processes(engine.processes)
    return engine
