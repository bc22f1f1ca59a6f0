"""One step of training, validation and prediction on TensorFlow.

`EfficientDet` inherits `TensorFlowSteps`, as `keras.Model` inherits its trainer. Under
a `tf.distribute` strategy each replica runs the step on its part of the batch.
"""

import contextlib
import math

import keras
import numpy as np
import tensorflow as tf

from effdet_keras._internal.processes import current_processes
from effdet_keras.errors import InvalidValueError, require
from effdet_keras.model.batch_norm import num_replicas, sum_of_replicas
from effdet_keras.train.optimizers import (
    all_finite,
    clip_gradients,
    float_values,
    step_counter,
    steps_per_update,
)


class TensorFlowSteps:
    """The steps of `EfficientDet` on TensorFlow."""

    # Whether the train function is given a batch that `fit` has drawn.
    receives_batches = False

    def train_step(self, data):
        """Trains on one batch. A batch that is not finite changes nothing."""
        images, ground_truth, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        recipe = self.settings.recipe
        step = tf.identity(step_counter(self.optimizer).value)

        # The scope keeps what the forward pass assigns, such as the statistics of batch
        # norms, until the batch is known to be finite.
        with tf.GradientTape() as tape, keras.StatelessScope() as forward_pass:
            outputs = self(images, training=True)
            loss = self.compute_loss(images, ground_truth, outputs, sample_weight)
            # The gradients of all replicas are summed.
            scaled_loss = self.optimizer.scale_loss(loss / num_replicas())
        gradients = gradients_of(tape, scaled_loss, self.trainable_variables)
        new_values = self.assigned_values(forward_pass)
        if self.adversarial is not None:  # AdvProp: also on adversarial images
            loss, gradients, new_values = self.adversarial.train(
                loss, gradients, new_values, data, step
            )

        gradients = sum_over_replicas(gradients, self.optimizer)
        loss_scale = self.optimizer.scale_loss(tf.ones(()))  # of float16, else 1
        gradients, gradient_norm = clip_gradients(
            gradients, recipe.clip_norm, each=recipe.clips_each, scale=loss_scale
        )
        # The optimizer sums over the replicas once more.
        gradients = [gradient / num_replicas() for gradient in gradients]

        state_is_finite = on_all_replicas(all_finite([loss, *float_values(new_values)]))
        is_finite = state_is_finite & on_all_replicas(all_finite([gradient_norm]))
        run_if(is_finite, self.apply_update, gradients, new_values, step)
        # Gradients that overflow in float16 may be finite with a smaller loss scale.
        is_refused = ~is_finite
        if self.has_dynamic_loss_scale:
            can_recover = state_is_finite & ~is_finite & (loss_scale > 1.0)
            run_if(can_recover, self.reduce_loss_scale)
            is_refused = ~(is_finite | can_recover)
        loss = tf.where(is_refused, math.nan, loss)  # `check_loss` raises the error
        return _logs_of_processes(self.update_metrics(loss, gradient_norm))

    def test_step(self, data):
        """The losses of one batch."""
        images, ground_truth, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        outputs = self(images, training=False)
        loss = self.compute_loss(
            images, ground_truth, outputs, sample_weight, training=False
        )
        return _logs_of_processes(self.update_metrics(loss))

    def predict_step(self, data):
        """The detections of one batch."""
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self.detect_step(images)

    # --- How Keras runs these steps.

    def make_train_function(self, force=False):
        if self.train_function is None or force:
            with self._keras_compiles_nothing():
                super().make_train_function(force)
            self.train_function = self._checked(self.train_function, is_training=True)
            self.skip_steps_before_position()

    def make_test_function(self, force=False):
        if self.test_function is None or force:
            with self._keras_compiles_nothing():
                super().make_test_function(force)
            self.test_function = self._checked(self.test_function, is_training=False)

    def make_predict_function(self, force=False):
        if self.predict_function is None or force:
            super().make_predict_function(force)
            if self.distribute_strategy.num_replicas_in_sync > 1:
                from effdet_keras.extras.multiprocess import tensorflow as multiprocess

                self.predict_function = multiprocess.on_all_devices(
                    self, self.predict_function
                )

    def _checked(self, function, is_training):
        """A function of an iterator that raises where the loss of a batch is NaN."""
        if self.steps_per_execution > 1 or _is_on_tpu():
            # Keras' function draws several batches, and nobody can name the one.
            def run(iterator):
                logs = function(iterator)
                self.check_loss(logs["loss"], None, is_training=is_training)
                return logs

            return run
        step_on_batch = self._step_on_batch(function)

        def run(iterator):
            data = next(iterator)
            logs = step_on_batch(data)
            if not np.all(np.isfinite(logs["loss"])):
                data = tf.nest.map_structure(self._local_part, data)
                self.check_loss(math.nan, data, is_training=is_training)
            return logs

        return run

    def _step_on_batch(self, function):
        """Keras' function of an iterator as a function of a batch, compiled.

        Keras compiles a step of a batch within a step of an iterator. TensorFlow copies
        the graph of one into that of the other, which takes 2 of the 12 seconds until
        D0's first step (benchmarks/first_step.py).
        """
        if self.run_eagerly:
            return lambda data: function([data])

        @tf.function(
            autograph=False, reduce_retracing=True, jit_compile=self.jit_compile
        )
        def step_on_batch(data):
            return function([data])

        if self.jit_compile:
            return lambda data: step_on_batch(_without_strings(data))
        return step_on_batch

    def _local_part(self, values):
        """The rows of a batch that the devices of this process were given."""
        parts = self.distribute_strategy.experimental_local_results(values)
        return np.concatenate([np.asarray(part) for part in parts])

    @contextlib.contextmanager
    def _keras_compiles_nothing(self):
        """Keras makes a plain function of a step, where `_step_on_batch` compiles it."""
        run_eagerly = self.run_eagerly
        compiles = self.steps_per_execution == 1 and not _is_on_tpu()
        self.run_eagerly = run_eagerly or compiles
        try:
            yield
        finally:
            self.run_eagerly = run_eagerly

    def predict_of_process(self, keras_predict, model, inputs):
        """What a model, or one that runs it, predicts for a batch of this process."""
        return keras_predict(inputs)

    def _apply_gradients(self, gradients, variables):
        self.optimizer.apply(gradients, variables)

    def variable_scope(self):
        """The context in which variables are made for all devices of the model."""
        strategy = self.distribute_strategy
        if strategy is tf.distribute.get_strategy():
            return contextlib.nullcontext()
        return strategy.scope()

    def prepare_fit_data(self, data):
        """What Keras' `fit` is given for the batches of this process."""
        if current_processes().count == 1:
            return data
        rule = "Several processes train on a `DetectionDataset` or a `tf.data.Dataset`"
        require(hasattr(data, "element_spec"), rule, type=type(data))
        if not self.config.sync_batch_norm:
            raise InvalidValueError(
                "Several processes need `sync_batch_norm=True` in the model's config: "
                "without it each has statistics of its own, and only the first's are "
                "saved. Pass it to `from_preset`."
            )
        strategy = self.distribute_strategy
        count = len(strategy.extended.worker_devices)
        size = keras.tree.flatten(data.element_spec)[0].shape[0]
        rule = f"Each of the {count} devices of a process trains on as many images"
        require(size and size % count == 0, rule, images_per_process=size)
        # Keras would have TensorFlow divide what is divided already.
        per_device = (
            data.rebatch(size // count, drop_remainder=True) if count > 1 else data
        )
        return strategy.distribute_datasets_from_function(lambda context: per_device)

    def loss_normalizer(self, num_positives, rule):
        """What the loss of one replica is divided by; None for its own positives.

        The gradients of replicas are summed: together they take the loss of one batch.
        """
        count = num_replicas()
        if count == 1:
            return None
        return rule(sum_of_replicas(num_positives)) / count

    def skipped_step(self, logs, *arguments):
        """What a train function returns for a step that is not trained."""
        return logs


def gradients_of(tape, target, variables):
    """The gradients of a scalar, zeros for what it does not depend on.

    The tape's own `unconnected_gradients="zero"` cannot make zeros of a Keras variable
    where a step runs eagerly.
    """
    gradients = tape.gradient(target, variables)
    return [
        tf.zeros_like(variable.value) if gradient is None else gradient
        for gradient, variable in zip(gradients, variables, strict=True)
    ]


def sum_over_replicas(gradients, optimizer):
    """The sum of the gradients of all replicas.

    Clipping the sum makes N replicas equal one device; the reference clips before it.
    """
    if num_replicas() == 1:
        return [tf.convert_to_tensor(gradient) for gradient in gradients]
    steps = steps_per_update(optimizer)
    if steps > 1:
        raise InvalidValueError(
            "Keras cannot accumulate gradients under a `tf.distribute` strategy of "
            "several devices. Leave `accumulate_steps` out. Received: "
            f"accumulate_steps={steps}"
        )
    replica = tf.distribute.get_replica_context()
    gradients = replica.all_reduce("SUM", gradients)
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


def on_all_replicas(condition):
    """Whether it is true on every replica: all refuse a batch, or none."""
    if num_replicas() == 1:
        return condition
    return sum_of_replicas(tf.cast(~condition, tf.float32)) == 0.0


def run_if(condition, function, *arguments):
    """Calls `function(*arguments)` where the condition, equal on all replicas, is true.

    Replicas assign to variables together, which TensorFlow does not allow them within a
    condition: the condition has to surround them all.
    """
    if num_replicas() == 1:
        tf.cond(condition, lambda: _call(function, arguments), lambda: False)
        return

    def on_each_replica(strategy, condition, *arguments):
        first = strategy.experimental_local_results(condition)[0]
        extended = strategy.extended
        tf.cond(
            first,
            lambda: _call(extended.call_for_each_replica, (function, arguments)),
            lambda: False,
        )

    replica = tf.distribute.get_replica_context()
    replica.merge_call(on_each_replica, args=(condition, *arguments))


def _call(function, arguments):
    function(*arguments)
    return True


def _without_strings(data):
    """A batch without the strings of its ground truth, which XLA does not take."""
    images, ground_truth, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    numbers = {n: x for n, x in ground_truth.items() if x.dtype != tf.string}
    return images, numbers, sample_weight


def _logs_of_processes(logs):
    """Logs as Keras reduces them: those of several processes along an axis."""
    if current_processes().count == 1:
        return logs
    return {name: tf.reshape(value, [1]) for name, value in logs.items()}


def _is_on_tpu():
    return bool(tf.config.list_logical_devices("TPU"))
