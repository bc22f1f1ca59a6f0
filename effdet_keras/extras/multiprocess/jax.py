"""Distributed training with JAX: the devices of this process, and other processes."""

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
from effdet_keras._internal.processes import SingleProcess, single_process
from effdet_keras.errors import EffDetError, first_line
from effdet_keras.extras.multiprocess.launch import (
    Engine,
    Launch,
    end_at_once,
    filled_up,
    lost_process,
)

# Seconds that all processes may take to start, and that one may be silent before the
# others end. JAX's own threads send heartbeats, even while Python is busy.
START_TIMEOUT = 300
HEARTBEAT_TIMEOUT = 60

# Parts of messages of Gloo, NCCL, and the service that coordinates processes.
_SIGNS_OF_LOSS = (
    "Gloo ",
    "gloo/",
    "NCCL operation",
    "Connection closed by peer",
    "coordination service",
    "CoordinationService",
    "heartbeat timeout",
)


class JaxProcesses(SingleProcess):
    """The processes that `jax.distributed` has connected."""

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
        for text in map(str, _with_causes(error)):
            is_of_loss = any(sign in text for sign in _SIGNS_OF_LOSS)
            if is_of_loss and not isinstance(error, EffDetError):
                return lost_process(self, first_line(text))
        return None

    @contextlib.contextmanager
    def _plain_errors(self):
        try:
            yield
        except Exception as error:
            plain = self.plain_error(error)
            raise error if plain is None else plain from error


def engine(name: str, launch: Launch | None) -> Engine:
    """Joins the launched processes; from then on, all devices hold each model."""
    if tf.is_installed():  # TensorFlow reads the images, and must not use the GPUs
        tf.config.set_visible_devices([], "GPU")
    processes = SingleProcess()
    if launch is not None and launch.num_processes > 1:
        _join(launch)
        processes = JaxProcesses()
    distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
    keras.distribution.set_distribution(distribution)
    return Engine(processes, distribution.scope)


def _join(launch):
    # This has no effect unless the devices are CPUs.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # The service would handle SIGTERM itself, on which a training saves and ends.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        launch.coordinator,
        launch.num_processes,
        launch.process_id,
        cluster_detection_method="deactivate",  # `Launch` has detected it
        initialization_timeout=START_TIMEOUT,
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT,
    )
    sys.excepthook = _leave_at_once


def _leave_at_once(kind, error, trace):
    """Ends this process after an error; JAX would first wait for all others to end."""
    traceback.print_exception(kind, error, trace)
    end_at_once()


def _with_causes(error):
    """Returns an error, and all errors that caused it, or were being handled."""
    seen = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return seen


# --- Prediction on the devices of this process only.


class LocalPrediction:
    """Runs the forward pass on the devices of this process only.

    With Keras' own `predict_on_batch`, all processes would have to predict the same
    batch. Each process has a complete copy of the weights, which is used as it is.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._function = None
        self._made_for: tuple[Any, ...] = ()

    def __call__(self, inputs: Any) -> Any:
        """Returns the outputs of `predict_step`, as NumPy arrays."""
        model = self.model
        mesh = jax.sharding.Mesh(np.array(jax.local_devices()), ("batch",))
        copied = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        shared_out = jax.sharding.NamedSharding(
            mesh, jax.sharding.PartitionSpec("batch")
        )
        state = tuple(
            [_local_copy(v.value, copied) for v in variables]
            for variables in (model.trainable_variables, model.non_trainable_variables)
        )
        rows = len(jax.tree.leaves(inputs)[0])
        inputs = jax.tree.map(
            lambda x: jax.device_put(filled_up(x, mesh.size), shared_out), inputs
        )
        with single_process():
            outputs = self._compiled()(state, inputs)
        return jax.tree.map(lambda x: np.array(x)[:rows], outputs)

    def _compiled(self):
        """Returns a cached function of `predict_step`, jitted if the model is."""
        model = self.model
        made_for = (
            getattr(model, "postprocess", None),
            model.jit_compile,
            model.run_eagerly,
        )
        if self._function is None or made_for != self._made_for:

            def predict(state, inputs):
                outputs, _ = model.predict_step(state, (inputs,))
                return outputs

            compiles = model.jit_compile and not model.run_eagerly
            self._function = jax.jit(predict) if compiles else predict
            self._made_for = made_for
        return self._function


def _local_copy(array, sharding):
    """Returns a weight as one array on all devices of this process, and no others."""
    parts = {shard.device: shard.data for shard in array.addressable_shards}
    devices = list(sharding.mesh.devices.flat)
    if not array.is_fully_replicated or not set(devices) <= set(parts):
        return jax.device_put(np.asarray(array), sharding)
    return jax.make_array_from_single_device_arrays(
        array.shape, sharding, [parts[device] for device in devices]
    )
