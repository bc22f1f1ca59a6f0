"""The functions of `fit`, `evaluate` and `predict` on TensorFlow.

They compile the steps and check their losses. The computations of a step are in
`train/steps/tensorflow.py`.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from effdet_keras._internal.backend import runs_on_processors
from effdet_keras._internal.processes import current_processes
from effdet_keras.errors import InvalidValueError, require
from effdet_keras.train.replicas import NOT_FINITE
from effdet_keras.train.training_defaults import TrainingDefaults


class TensorFlowFunctions(TrainingDefaults):
    """Methods with which Keras runs the steps of `EfficientDet` on TensorFlow."""

    def make_predict_function(self, force=False):
        if self.predict_function is None or force:
            super().make_predict_function(force)
            if self.distribute_strategy.num_replicas_in_sync > 1:
                from effdet_keras.extras.multiprocess import tensorflow as multiprocess

                self.predict_function = multiprocess.on_all_devices(
                    self, self.predict_function
                )

    def _with_finite_check(self, function, is_training):
        """Wraps a function of an iterator, to raise an error for a loss that is NaN."""
        draws_batches = self.steps_per_execution == 1 and not _is_on_tpu()
        step_on_batch = self._step_on_batch(function) if draws_batches else None
        is_quick = is_training and runs_on_processors() and not self.jit_compile
        rewriting = _without_slow_rewrites if is_quick else contextlib.nullcontext

        def run(iterator):
            # If Keras' function draws several batches itself, the batch is not known.
            data = next(iterator) if draws_batches else None
            try:
                with rewriting():
                    if draws_batches:
                        logs = step_on_batch(data, _specification(iterator))
                    else:
                        logs = function(iterator)
                is_finite = np.all(np.isfinite(logs["loss"]))
            except tf.errors.InvalidArgumentError as error:
                if NOT_FINITE not in str(error):
                    raise
                is_finite = False
            if not is_finite:
                data = tf.nest.map_structure(self._local_part, data)
                self.check_loss(math.nan, data, is_training=is_training)
            return logs

        return run

    def _step_on_batch(self, function):
        """Returns Keras' function of an iterator as a compiled function of a batch.

        Keras compiles a step on a batch inside a step on an iterator. TensorFlow copies
        the graph of the first into that of the second, which takes 2 of the 12 seconds
        until D0's first step (benchmarks/first_step.py).
        """
        if self.run_eagerly:
            return lambda data, spec: function([data])
        compiled_functions = []  # pairs of the specification of a batch and a function

        def step_on_batch(data, spec):
            """Runs one batch, with one compiled function per batch specification."""
            if self.jit_compile:
                data = _without_strings(data)
                spec = None if spec is None else _without_strings(spec)
            for known, compiled in compiled_functions:
                if known == spec:
                    return compiled(data)
            # With the specification, one trace serves batches of any number of boxes.
            compiled = tf.function(
                lambda batch: function([batch]),
                input_signature=None if spec is None else [spec],
                autograph=False,
                reduce_retracing=True,
                jit_compile=self.jit_compile,
            )
            compiled_functions.append((spec, compiled))
            return compiled(data)

        return step_on_batch

    def _local_part(self, values):
        """Returns the rows of a batch that the devices of this process received."""
        if values is None:
            return None
        parts = self.distribute_strategy.experimental_local_results(values)
        return np.concatenate([np.asarray(part) for part in parts])

    @contextlib.contextmanager
    def function_build_scope(self) -> Iterator[None]:
        """Keeps Keras from compiling a step that `_step_on_batch` compiles."""
        run_eagerly = self.run_eagerly
        compiles = self.steps_per_execution == 1 and not _is_on_tpu()
        self.run_eagerly = run_eagerly or compiles
        try:
            yield
        finally:
            self.run_eagerly = run_eagerly

    def variable_scope(self) -> contextlib.AbstractContextManager:
        """Returns the context in which variables are created on all of its devices."""
        strategy = self.distribute_strategy
        if strategy is tf.distribute.get_strategy():
            return contextlib.nullcontext()
        return strategy.scope()

    def distribute_fit_data(self, data: Any) -> Any:
        """Returns the batches of this process in the form for Keras' `fit`.

        Raises:
            ValueError: If several processes run, and the data is not a
                `tf.data.Dataset`, the batches cannot be divided among the devices, or
                the config does not have `sync_batch_norm`.
        """
        if current_processes().count == 1:
            return data
        rule = (
            "Training with several processes needs a `DetectionDataset` or a "
            "`tf.data.Dataset`"
        )
        require(hasattr(data, "element_spec"), rule, type=type(data))
        if not self.config.sync_batch_norm:
            raise InvalidValueError(
                "Training with several processes needs a model with "
                "`sync_batch_norm=True`: without it each process computes its own "
                "batch-norm statistics, and only those of the first process are "
                "saved. Pass `sync_batch_norm=True` to `from_preset`."
            )
        strategy = self.distribute_strategy
        count = len(strategy.extended.worker_devices)
        size = keras.tree.flatten(data.element_spec)[0].shape[0]
        rule = (
            f"A process has {count} devices, which must all train on the same number "
            "of images: choose a batch size that they divide"
        )
        require(size and size % count == 0, rule, images_per_process=size)
        # Keras would make TensorFlow divide batches that are already divided.
        per_device = (
            data.rebatch(size // count, drop_remainder=True) if count > 1 else data
        )
        return strategy.distribute_datasets_from_function(lambda context: per_device)


# Graph rewrites that take a fifth of the time until D0's first step on CPUs, and do not
# make its steps faster (benchmarks/RESULTS.md, "Rewriting of the graph").
SLOW_REWRITES = (
    "arithmetic_optimization",
    "constant_folding",
    "dependency_optimization",
)


@contextlib.contextmanager
def _without_slow_rewrites():
    """Context in which TensorFlow omits these rewrites, unless the user has set them.

    TensorFlow rewrites a function again if it is called with other options than before.
    So the options have to be the same at each step, and those from before the context
    for all other functions.
    """
    chosen = tf.config.optimizer.get_experimental_options()
    options = [name for name in SLOW_REWRITES if name not in chosen]
    tf.config.optimizer.set_experimental_options(dict.fromkeys(options, False))
    try:
        yield
    finally:  # None: neither on nor off, as before the context
        tf.config.optimizer.set_experimental_options(dict.fromkeys(options))


def _specification(iterator):
    """Returns the specification of the batches of an iterator, if it is TensorFlow's.

    It has their shapes and dtypes.
    """
    return iterator.element_spec if isinstance(iterator, tf.data.Iterator) else None


def _without_strings(data):
    """Returns a batch without the strings of its ground truth, which XLA cannot take.

    The argument may also be the specification of a batch.
    """
    images, ground_truth, _ = keras.utils.unpack_x_y_sample_weight(data)
    return images, {n: x for n, x in ground_truth.items() if x.dtype != tf.string}


def _is_on_tpu():
    return bool(tf.config.list_logical_devices("TPU"))
