"""Detection in a batch on all replicas of this process, on TensorFlow.

Keras' own would have each device compute the whole batch, and each process wait for
the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf


def predicting(model: Any, predict_function: Callable) -> Callable:
    """The function of `predict`, where each device of this process has its part."""
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
        parts = np.split(_filled_up(images, len(devices)), len(devices))
        found = on_all(_on_devices(strategy, parts))
        outputs = {
            name: tf.concat(strategy.experimental_local_results(value), 0)
            for name, value in found.items()
        }
        return {name: value[: len(images)] for name, value in outputs.items()}

    return predict


def _filled_up(images, count):
    """Images, and zeros behind them so that they can be parted in `count`."""
    missing = -len(images) % count
    return np.pad(images, [(0, missing), (0, 0), (0, 0), (0, 0)]) if missing else images


def _on_devices(strategy, parts):
    """A part for each device of this process."""
    values = iter([tf.convert_to_tensor(part) for part in parts])
    return strategy.experimental_distribute_values_from_function(
        lambda context: next(values)
    )
