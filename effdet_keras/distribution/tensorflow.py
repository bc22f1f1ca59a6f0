"""Several devices and processes on TensorFlow: its `MirroredStrategy`s."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from typing import Any

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.distribution.launch import Launch
from effdet_keras.distribution.lost_process import lost_process
from effdet_keras.distribution.meeting import addresses_of_all
from effdet_keras.distribution.processes import OneProcess, Processes


class TensorFlowEngine:
    """`Engine` of a strategy of TensorFlow.

    Args:
        strategy: `tf.distribute.Strategy`.
        processes: `Processes`.
    """

    def __init__(self, strategy: Any, processes: Processes) -> None:
        self.strategy = strategy
        self.processes = processes

    def scope(self) -> contextlib.AbstractContextManager:
        return self.strategy.scope()


class Workers:
    """`Processes` of a `MultiWorkerMirroredStrategy`.

    Args:
        strategy: the strategy.
        launch: `Launch`.
    """

    def __init__(self, strategy: Any, launch: Launch) -> None:
        self.index, self.count = launch.process_id, launch.num_processes
        self._strategy = strategy
        self._gather = tf.function(
            self._gather_on_replica, input_signature=[tf.TensorSpec([None], tf.int64)]
        )

    def gather(self, value: Any) -> list[Any]:
        content = pickle.dumps(value)
        # Collectives take no bytes; what pickle reads ends by itself.
        content = np.frombuffer(content + b"\0" * (-len(content) % 8), np.int64)
        try:
            sizes, joined = (
                np.asarray(self._strategy.experimental_local_results(found)[0])
                for found in self._gather(content)
            )
        except tf.errors.OpError as error:
            plain = self.plain_error(error)
            raise error if plain is None else plain from error
        parts = np.split(joined, np.cumsum(sizes)[:-1])
        # Of several devices of a process the first tells all.
        per_process = len(parts) // self.count
        return [pickle.loads(part.tobytes()) for part in parts[::per_process]]

    def barrier(self) -> None:
        self.gather(None)

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


def engine(name: str, launch: Launch | None) -> TensorFlowEngine:
    """The engine of "mirrored" or "multiworker".

    Args:
        name: string.
        launch: `Launch`, None for "mirrored".
    """
    tf.require(f"`distribute={name!r}`")
    if launch is None:
        return TensorFlowEngine(tf.distribute.MirroredStrategy(), OneProcess())
    workers = launch.workers or addresses_of_all(launch)
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": list(workers)},
            "task": {"type": "worker", "index": launch.process_id},
        }
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return TensorFlowEngine(strategy, Workers(strategy, launch))
