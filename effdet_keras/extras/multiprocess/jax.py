"""JAX: the devices of this process, and those of the processes that train with it."""

from __future__ import annotations

import contextlib
import pickle
import sys
import traceback
from typing import Any

import jax
import keras
import numpy as np
from jax.experimental import multihost_utils

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.processes import OneProcess
from effdet_keras.errors import EffDetError, InvalidStateError, first_line
from effdet_keras.extras.multiprocess.launch import (
    Engine,
    Launch,
    end_at_once,
    lost_process,
)

# Seconds: how long all processes may take to come, and how long one may be silent
# until the others end. JAX's threads answer, however busy Python is.
START_TIMEOUT = 300
HEARTBEAT_TIMEOUT = 60

# In the messages of Gloo, NCCL and the service by which processes meet.
_SIGNS_OF_LOSS = (
    "Gloo ",
    "gloo/",
    "NCCL operation",
    "Connection closed by peer",
    "coordination service",
    "CoordinationService",
    "heartbeat timeout",
)


class JaxProcesses(OneProcess):
    """Those that `jax.distributed` has brought together."""

    def __init__(self) -> None:
        self.index = jax.process_index()
        self.count = jax.process_count()

    def gather(self, value: Any) -> list[Any]:
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        with self._plain_errors():
            lengths = multihost_utils.process_allgather(np.int32(len(data)))
            padded = np.zeros(int(lengths.max()), np.uint8)
            padded[: len(data)] = data
            rows = multihost_utils.process_allgather(padded)
        return [
            pickle.loads(row[:length].tobytes()) for row, length in zip(rows, lengths)
        ]

    def plain_error(self, error: Exception) -> Exception | None:
        text = next(filter(_tells_of_loss, map(str, _with_causes(error))), None)
        if text is None or isinstance(error, EffDetError):
            return None
        return lost_process(self, first_line(text))

    @contextlib.contextmanager
    def _plain_errors(self):
        try:
            yield
        except Exception as error:
            plain = self.plain_error(error)
            raise error if plain is None else plain from error


def engine(name: str, launch: Launch | None) -> Engine:
    """Joins the launched processes; from then on all devices have each model."""
    if tf.is_installed():  # it reads the images, and is kept off graphics cards
        tf.config.set_visible_devices([], "GPU")
    processes = OneProcess()
    if launch is not None and launch.num_processes > 1:
        _join(launch)
        processes = JaxProcesses()
    distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
    keras.distribution.set_distribution(distribution)
    return Engine(processes, distribution.scope)


def _join(launch):
    # Of no account where the devices are no processors.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # It would take SIGTERM for itself, on which a training saves and ends.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            launch.coordinator,
            launch.num_processes,
            launch.process_id,
            cluster_detection_method="deactivate",  # `Launch` knows
            initialization_timeout=START_TIMEOUT,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT,
        )
    except RuntimeError as error:
        raise InvalidStateError(
            f"JAX could not join the {launch.num_processes} processes at "
            f"{launch.coordinator} as process {launch.process_id} (by "
            f"{launch.source}): {error}. It has to be the first use of JAX in this "
            "process, every process needs a number of its own, and the address must be "
            "that of process 0, where the port is free."
        ) from error
    sys.excepthook = _leave_at_once


def _leave_at_once(kind, error, trace):
    """Ends this process by its error: JAX would first wait for all others to end."""
    traceback.print_exception(kind, error, trace)
    end_at_once()


def _tells_of_loss(text):
    return any(sign in text for sign in _SIGNS_OF_LOSS)


def _with_causes(error):
    """An error, and those that it was raised for, or while they were handled."""
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return seen
