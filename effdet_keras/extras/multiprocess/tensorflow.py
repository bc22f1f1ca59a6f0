"""Distributed training with TensorFlow, by its mirrored strategies."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.processes import SingleProcess
from effdet_keras.errors import InvalidStateError
from effdet_keras.extras.multiprocess.launch import (
    Engine,
    Launch,
    filled_up,
    host_and_port,
    lost_process,
)


class Workers(SingleProcess):
    """The processes of a `MultiWorkerMirroredStrategy`."""

    def __init__(self, strategy: Any, launch: Launch) -> None:
        self.index, self.count = launch.process_id, launch.num_processes
        self._strategy = strategy
        self._gather = tf.function(
            self._gather_on_replica, input_signature=[tf.TensorSpec([None], tf.int64)]
        )

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all processes, by their index, in each process."""
        content = pickle.dumps(value)
        # Collectives do not support bytes. Padding does no harm: pickle finds the end.
        content = np.frombuffer(content + b"\0" * (-len(content) % 8), np.int64)
        try:
            sizes, gathered = (
                np.asarray(self._strategy.experimental_local_results(found)[0])
                for found in self._gather(content)
            )
        except tf.errors.OpError as error:
            plain = self.plain_error(error)
            raise error if plain is None else plain from error
        parts = np.split(gathered, np.cumsum(sizes)[:-1])
        # If a process has several devices, the first one has the values of all.
        per_process = len(parts) // self.count
        return [pickle.loads(part.tobytes()) for part in parts[::per_process]]

    def plain_error(self, error: Exception) -> Exception | None:
        kinds = tf.errors.UnavailableError, tf.errors.AbortedError
        kinds += tf.errors.DeadlineExceededError, tf.errors.CancelledError
        is_lost = isinstance(error, kinds) or "Collective ops is aborted" in str(error)
        if not is_lost:
            return None
        return lost_process(self)

    def _gather_on_replica(self, content):
        def on_replica():
            replica = tf.distribute.get_replica_context()
            mine = tf.identity(content)  # on the device of the replica
            size = tf.shape(mine, out_type=tf.int64)
            return replica.all_gather(size, 0), replica.all_gather(mine, 0)

        return self._strategy.run(on_replica)


def engine(name: str, launch: Launch | None) -> Engine:
    """Returns the engine for "mirrored" or "multiworker"."""
    tf.require(f"`distribute={name!r}`")
    if launch is None:
        return Engine(SingleProcess(), tf.distribute.MirroredStrategy().scope)
    workers = launch.workers or addresses_of_all(launch)
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": list(workers)},
            "task": {"type": "worker", "index": launch.process_id},
        }
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return Engine(Workers(strategy, launch), strategy.scope)


# --- The processes exchange the addresses at which they listen.

TIMEOUT = 300.0  # seconds: the hosts of a cluster do not start at the same time
_BETWEEN_TRIES = 0.2  # seconds
_SILENCE = 5.0  # seconds, after which a silent connection is not one of ours


def addresses_of_all(launch: Launch, *, timeout: float = TIMEOUT) -> tuple[str, ...]:
    """Returns the "host:port" of each process, which process 0 collects."""
    deadline = time.monotonic() + timeout
    with socket.socket() as taken:  # reserves a free port until all know it
        taken.bind(("", 0))
        port = taken.getsockname()[1]
        if launch.process_id > 0:
            return _report(launch, port, deadline)
        own = host_and_port(launch.coordinator_host, port)
        return (own,) if launch.num_processes == 1 else _collect(launch, own, deadline)


def _collect(launch, own, deadline):
    """As process 0, waits for the others, and sends all addresses to them."""
    family = socket.AF_INET6 if ":" in launch.coordinator_host else socket.AF_INET
    address = "", launch.coordinator_port
    found, connections = {0: own}, []
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(address, family=family))
        while len(found) < launch.num_processes:
            server.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                connection, (host, *_) = server.accept()
            except TimeoutError:
                missing = sorted(set(range(launch.num_processes)) - set(found))
                raise InvalidStateError(
                    f"{len(missing)} of {launch.num_processes} processes did not "
                    f"connect to {launch.coordinator} in time: {missing[:8]}. Were "
                    f"they started? ({launch.source})"
                ) from None
            stack.enter_context(connection)
            connection.settimeout(_SILENCE)
            said = _read(connection)
            if not isinstance(said, dict):  # perhaps a port scan
                connection.close()
                continue
            found[said["process_id"]] = host_and_port(host, said["port"])
            connections.append(connection)
        addresses = [found[number] for number in range(launch.num_processes)]
        for connection in connections:
            connection.sendall(json.dumps(addresses).encode() + b"\n")
    return tuple(addresses)


def _report(launch, port, deadline):
    """As another process, sends its address to process 0, and receives all."""
    address = launch.coordinator_host, launch.coordinator_port
    said = json.dumps({"process_id": launch.process_id, "port": port})
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(address, timeout=5.0) as connection:
                connection.sendall(said.encode() + b"\n")
                connection.settimeout(max(deadline - time.monotonic(), 0.01))
                addresses = _read(connection)
                if addresses is not None:
                    return tuple(addresses)
        except OSError:
            pass  # process 0 does not listen yet
        time.sleep(_BETWEEN_TRIES)
    raise InvalidStateError(
        f"Process {launch.process_id} of {launch.num_processes} could not connect to "
        f"process 0 at {launch.coordinator} in time. Was process 0 started, and can "
        f"this host reach it? ({launch.source})"
    )


def _read(connection):
    """Reads a line of JSON; returns None if the other side sends something else."""
    try:
        with connection.makefile("rb") as lines:
            return json.loads(lines.readline())
    except (OSError, ValueError):
        return None


# --- Prediction of a batch on all devices of this process.


def on_all_devices(model: Any, predict_function: Callable) -> Callable:
    """Returns a function for `predict` that divides a batch among local devices.

    Keras' own function would have each device compute the whole batch, and each process
    wait for the others.
    """
    strategy = model.distribute_strategy
    devices = strategy.extended.worker_devices

    @tf.autograph.experimental.do_not_convert
    def on_one(images):
        return model.predict_step((images,))

    @tf.autograph.experimental.do_not_convert
    def on_all(images):
        return strategy.run(on_one, args=(images,))

    if not model.run_eagerly:
        on_all = tf.function(
            on_all, reduce_retracing=True, jit_compile=model.jit_compile or None
        )

    def predict(data):
        ((images, *_),) = data
        if isinstance(images, tf.distribute.DistributedValues):
            return predict_function(data)
        images = np.asarray(images)
        parts = np.split(filled_up(images, len(devices)), len(devices))
        found = on_all(_on_devices(strategy, parts))
        outputs = {
            name: tf.concat(strategy.experimental_local_results(value), 0)
            for name, value in found.items()
        }
        return {name: value[: len(images)] for name, value in outputs.items()}

    return predict


def _on_devices(strategy, parts):
    """Returns a value that has one part for each device of this process."""
    values = iter([tf.convert_to_tensor(part) for part in parts])
    return strategy.experimental_distribute_values_from_function(
        lambda context: next(values)
    )
