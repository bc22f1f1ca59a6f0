"""The training step on TensorFlow: two-stage clipping, replicas, loss scaling."""

import contextlib
import weakref

import keras
import numpy as np
import tensorflow as tf

from effdet_keras.distribution.processes import current_processes
from effdet_keras.errors import InvalidValueError
from effdet_keras.training.accumulation import (
    gradient_sums,
    step_counter,
    steps_per_update,
)
from effdet_keras.training.statistics_warmup import joined, parted
from effdet_keras.training.steps.adversarial import AdversarialPass


class Step:
    """`BackendStep` of TensorFlow: the reference's whole step, written out."""

    is_reference_step = True
    is_given_batches = False

    def __init__(self, model):
        self._model = model

    def train(self, keras_step, data):
        """One update: gradients multiplied, clipped alone and together; averages."""
        model = self._model
        optimizer, variables = model.optimizer, model.updated_variables()
        step = tf.identity(step_counter(optimizer).value)
        statistics = model.moved_statistics()
        before = tf.identity(joined([v.value for v in statistics]))
        with tf.GradientTape() as tape:
            loss = self._forward_and_loss(data, training=True)
            # Replicas are summed below; a loss scale keeps float16 from underflow.
            scaled = optimizer.scale_loss(loss / _num_replicas())
        gradients = tape.gradient(scaled, model.trainable_variables)
        if model.auxiliary_norms is not None:
            adversarial = AdversarialPass(model)
            loss, gradients = adversarial.added_to(loss, gradients, data, step)
        gradients = self._multiplied(gradients)
        clipped, norm = self.clipped(self._with_those_before(gradients, step))
        after = after_forward = joined([v.value for v in statistics])
        is_fine = _on_all_replicas(_are_finite([loss, norm, after]))
        if model.settings.statistics_warmup is not None:
            after = model.settings.statistics_warmup.moved(before, after, step)
        # The forward pass has moved the statistics: of a bad batch for good, unless
        # they are put back, before anything is raised.
        after = tf.where(is_fine, after, before)
        for variable, value in zip(
            statistics, parted(after, [v.shape[0] for v in statistics])
        ):
            variable.assign(value)
        model.settings.trackers.update_step(norm, optimizer.learning_rate)
        with tf.control_dependencies([tf.identity(v.value) for v in statistics]):
            mends = self._mends_itself([loss, after_forward])
            refusal = self._refuse_unless(is_fine | mends, data, step)
        with tf.control_dependencies([refusal]):
            gradients = self._for_optimizer(gradients, clipped, is_fine, step)
            optimizer.apply_gradients(zip(gradients, variables))
            self._move_averages(step)
        return self._logs(model.get_metrics_result())

    def test(self, keras_step, data):
        loss = self._forward_and_loss(data, training=False)
        refusal = self._refuse_unless(_are_finite([loss]), data)
        with tf.control_dependencies([refusal]):
            logs = self._model.get_metrics_result()
        of_training = self._model.settings.trackers.of_training
        return self._logs(
            {name: value for name, value in logs.items() if name not in of_training}
        )

    def predict(self, keras_step, data):
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self._model.detect_step(images)

    def predict_on_batch(self, keras_predict, model, inputs):
        return keras_predict(inputs)

    def checked_loss(self, loss, truth, training):
        return loss  # see `_refuse_unless`

    def watched(self, train_function):
        return train_function

    def skipped(self, logs, data):
        return logs

    def scope(self):
        strategy = self._model.distribute_strategy
        if strategy is tf.distribute.get_strategy():
            return contextlib.nullcontext()
        return strategy.scope()

    def data_of_fit(self, data):
        if current_processes().count == 1:
            return data
        if not hasattr(data, "element_spec"):
            raise InvalidValueError(
                "Several processes train on a `DetectionDataset`, or on a "
                f"`tf.data.Dataset`. Received: x of type {type(data).__name__}"
            )
        if not self._model.config.sync_batch_norm:
            raise InvalidValueError(
                "Several processes need `sync_batch_norm=True` in the model's config: "
                "without it each has statistics of its own, and only the first's are "
                "saved. Pass it to `from_preset`."
            )
        strategy = self._model.distribute_strategy
        count = len(strategy.extended.worker_devices)
        size = keras.tree.flatten(data.element_spec)[0].shape[0]
        if size is None or size % count:
            raise InvalidValueError(
                f"Each of the {count} devices of a process trains on as many images. "
                f"Received: batches of {size} images per process"
            )
        # Keras would have TensorFlow share out what is shared out already.
        parts = data.rebatch(size // count, drop_remainder=True) if count > 1 else data
        return strategy.distribute_datasets_from_function(lambda context: parts)

    def check_adversarial(self):
        if self._model.distribute_strategy.num_replicas_in_sync > 1:
            raise InvalidValueError(
                "`adversarial` trains on one device, not under a `tf.distribute` "
                "strategy of several. Leave one of the two out."
            )

    def normalizer(self, num_positives):
        """Replicas sum their gradients: together they take the loss of one batch."""
        count = _num_replicas()
        if count == 1:
            return None
        replica = tf.distribute.get_replica_context()
        return (replica.all_reduce("SUM", num_positives) + 1.0) / count

    def predicting(self, predict_function):
        """The function, where every device of this process has a part of the batch.

        Keras' own would have each device compute the whole batch, and each process
        wait for the others.
        """
        model, strategy = self._model, self._model.distribute_strategy
        if strategy.num_replicas_in_sync == 1:
            return predict_function
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

        def predicting(data):
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

        return predicting

    def carried_variables(self):
        return []

    def scaling_gradients(self, values):
        return values  # see `_multiplied`

    def clipped(self, gradients):
        """Gradients clipped one by one, then together; and their norm after it.

        The gradients come with loss scale and as one replica's share, and leave
        so: `apply_gradients` undoes the scale and sums over replicas. Clipping
        what that sum will be makes N replicas equal one device; the reference
        clips before it.
        """
        if _num_replicas() > 1:
            replica = tf.distribute.get_replica_context()
            gradients = replica.all_reduce("SUM", gradients)
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        scale = self._model.optimizer.scale_loss(tf.ones(()))
        # One norm and one product per gradient: the graph has 500 of them.
        squares = [2 * tf.nn.l2_loss(tf.cast(g, tf.float32)) for g in gradients]
        norms = tf.sqrt(tf.stack(squares)) / scale
        factors = tf.ones_like(norms)
        limit = self._model.settings.recipe.clip_norm
        if limit:
            factors = limit / tf.maximum(norms, limit)
            together = tf.linalg.norm(norms * factors)
            factors *= limit / tf.maximum(together, limit)
        shares = tf.unstack(factors / _num_replicas())
        clipped = [g * tf.cast(f, g.dtype) for g, f in zip(gradients, shares)]
        return clipped, tf.linalg.norm(norms * factors)

    def _with_those_before(self, gradients, step):
        """The mean of the gradients since the last update of the weights."""
        optimizer = self._model.optimizer
        count = steps_per_update(optimizer)
        if count == 1:
            return gradients
        if _num_replicas() > 1:
            raise InvalidValueError(
                "Keras cannot accumulate gradients under a `tf.distribute` strategy of "
                "several devices. Leave `gradient_accumulation_steps` out. Received: "
                f"gradient_accumulation_steps={count}"
            )
        sums = gradient_sums(optimizer, self._model.updated_variables())
        scale = optimizer.scale_loss(tf.ones(()))
        so_far = tf.cast(step % count + 1, tf.float32)
        return [
            (tf.convert_to_tensor(g) + tf.cast(s.value * scale, g.dtype))
            / tf.cast(so_far, g.dtype)
            for g, s in zip(gradients, sums)
        ]

    def _for_optimizer(self, gradients, clipped, is_fine, step):
        """What makes the optimizer move the weights by clipped gradients.

        It adds up those of all steps but the last before an update, and divides the
        sum by their count. What is clipped is that mean: so the last step is given
        all of it, and the optimizer nothing to add it to.
        """
        optimizer = self._model.optimizer
        count = steps_per_update(optimizer)
        if count == 1:
            return clipped
        sums = gradient_sums(optimizer, self._model.updated_variables())
        is_last = (step + 1) % count == 0

        def empty():
            for variable in sums:
                variable.assign(tf.zeros_like(variable.value))
            return True

        emptied = tf.cond(is_last & is_fine, empty, lambda: False)
        with tf.control_dependencies([emptied]):
            return [
                tf.where(is_last, c * tf.cast(count, c.dtype), tf.identity(g))
                for g, c in zip(gradients, clipped)
            ]

    def _move_averages(self, step):
        averages, optimizer = self._model.averages, self._model.optimizer
        if averages is None:
            return
        count = steps_per_update(optimizer)
        if count == 1 and self._model.settings.loss_scale(optimizer) is None:
            averages.update(step)
            return
        # A step that only adds up gradients, or whose gradients overflow, moves none.
        done = tf.identity(step_counter(optimizer).value) // count
        averages.update(step // count, has_moved=done > step // count)

    def _logs(self, logs):
        """Logs as Keras reduces them: those of several processes along an axis."""
        if current_processes().count == 1:
            return logs
        return {name: tf.reshape(value, [1]) for name, value in logs.items()}

    def _forward_and_loss(self, data, training):
        """The forward pass and the loss that both steps share."""
        images, truth, weight = keras.utils.unpack_x_y_sample_weight(data)
        model = self._model
        outputs = model(images, training=training)
        loss = model.compute_loss(images, truth, outputs, weight, training=training)
        model._loss_tracker.update_state(loss)
        return loss

    def _mends_itself(self, forward):
        """Whether a smaller loss scale may help: to the gradients, and nothing else.

        The optimizer then leaves the step out by itself, and halves the scale.
        """
        loss_scale = self._model.settings.loss_scale(self._model.optimizer)
        if loss_scale is None:
            return False
        return _on_all_replicas(_are_finite(forward)) & (loss_scale > 1.0)

    def _refuse_unless(self, is_fine, data, step=None):
        """An operation that raises where a batch is not fine."""
        model = self._model
        if model.jit_compile:  # XLA has no way back to Python: see `compile`
            return tf.no_op()
        _, truth, _ = keras.utils.unpack_x_y_sample_weight(data)
        names = [name for name in ("boxes", "labels", "image_id") if name in truth]
        refuse = _Refusal(model, names)
        done = -1 if step is None else step

        return tf.cond(
            is_fine,
            lambda: True,
            lambda: tf.numpy_function(refuse, [done, *map(truth.get, names)], tf.bool),
        )

    def _multiplied(self, gradients):
        factors = self._model.settings.gradient_factors
        if factors is None:
            return gradients
        pairs = zip(gradients, factors, strict=True)
        return [g if f == 1.0 else g * f for g, f in pairs]


def _are_finite(tensors):
    """Whether no number in a list of float tensors is NaN or infinite."""
    return tf.reduce_all(
        tf.math.is_finite(
            tf.concat([tf.reshape(tf.cast(t, tf.float32), [-1]) for t in tensors], 0)
        )
    )


def _on_all_replicas(is_fine):
    """Whether it is true on every replica: all refuse a batch, or none."""
    if _num_replicas() == 1:
        return is_fine
    replica = tf.distribute.get_replica_context()
    return replica.all_reduce("SUM", tf.cast(~is_fine, tf.float32)) == 0.0


class _Refusal:
    """Raises what a batch is refused with; TensorFlow never lets go of it.

    So it holds no model, which could not be freed otherwise, nor its graphs.
    """

    def __init__(self, model, names):
        self._model = weakref.ref(model)
        self._names = names

    def __call__(self, done, *arrays):
        step = None if done < 0 else int(done) + 1
        raise self._model().refusal(dict(zip(self._names, arrays)), step=step)


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


def _num_replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync
