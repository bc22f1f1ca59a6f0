"""The training step on TensorFlow: two-stage clipping, replicas, loss scaling."""

import weakref

import keras
import tensorflow as tf


class Step:
    """`BackendStep` of TensorFlow: the reference's whole step, written out."""

    is_reference_step = True

    def __init__(self, model):
        self._model = model

    def train(self, keras_step, data):
        """One update: gradients multiplied, clipped alone and together; averages."""
        model = self._model
        optimizer, variables = model.optimizer, model.trainable_variables
        step = tf.identity(optimizer.iterations)
        statistics = self._statistics_to_settle()
        before = [tf.identity(v.value) for v in statistics]
        with tf.GradientTape() as tape:
            loss = self._forward_and_loss(data, training=True)
            # Replicas are summed below; a loss scale keeps float16 from underflow.
            scaled = optimizer.scale_loss(loss / _num_replicas())
        gradients = self._multiplied(tape.gradient(scaled, variables))
        gradients, norm = self.clipped(gradients)
        model.settings.trackers.update_step(norm, optimizer.learning_rate)
        with tf.control_dependencies([self._refuse_unless_finite(loss, data, step)]):
            optimizer.apply_gradients(zip(gradients, variables))
        for variable, value in zip(statistics, self._settled(statistics, before, step)):
            variable.assign(value)
        if model.averages is not None:
            model.averages.update(step)
        return model.get_metrics_result()

    def test(self, keras_step, data):
        loss = self._forward_and_loss(data, training=False)
        with tf.control_dependencies([self._refuse_unless_finite(loss, data)]):
            logs = self._model.get_metrics_result()
        of_training = self._model.settings.trackers.of_training
        return {name: value for name, value in logs.items() if name not in of_training}

    def predict(self, keras_step, data):
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self._model.detect_step(images)

    def checked_loss(self, loss, truth, training):
        return loss  # see `_refuse_unless_finite`

    def watched(self, train_function):
        return train_function

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

    def _forward_and_loss(self, data, training):
        """The forward pass and the loss that both steps share."""
        images, truth, weight = keras.utils.unpack_x_y_sample_weight(data)
        model = self._model
        outputs = model(images, training=training)
        loss = model.compute_loss(images, truth, outputs, weight, training=training)
        model._loss_tracker.update_state(loss)
        return loss

    def _refuse_unless_finite(self, loss, data, step=None):
        """An operation that raises where the loss is NaN or infinite."""
        model = self._model
        if model.jit_compile:  # XLA has no way back to Python: see `compile`
            return tf.no_op()
        _, truth, _ = keras.utils.unpack_x_y_sample_weight(data)
        names = [name for name in ("boxes", "labels", "image_id") if name in truth]
        refuse = _Refusal(model, names)
        done = -1 if step is None else step

        is_fine = tf.math.is_finite(loss)
        loss_scale = model.settings.loss_scale(model.optimizer)
        if step is not None and loss_scale is not None:
            is_fine |= loss_scale > 1.0
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

    def _statistics_to_settle(self):
        """Batch-norm statistics, where a step does more than its layers did."""
        settings = self._model.settings
        is_at_risk = settings.loss_scale(self._model.optimizer) is not None
        if settings.statistics_warmup is None and not is_at_risk:
            return []
        return self._model.batch_norm_statistics()

    def _settled(self, statistics, before, step):
        """Batch-norm statistics after a step, from those before it.

        Where float16 may overflow, one that is not finite stays as it was: the step
        is skipped, but its forward pass has already moved the statistics, for good.
        """
        settings = self._model.settings
        after = [v.value for v in statistics]
        if settings.statistics_warmup is not None:
            after = settings.statistics_warmup.moved(before, after, step)
        if settings.loss_scale(self._model.optimizer) is None:
            return after
        are_finite = [tf.reduce_all(tf.math.is_finite(value)) for value in after]
        return [tf.where(*choice) for choice in zip(are_finite, after, before)]


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


def _num_replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync
