"""The training step on TensorFlow: two-stage clipping, replicas, loss scaling."""

import keras
import tensorflow as tf

from effdet_keras.training.base_trainer import BaseTrainer


class Trainer(BaseTrainer):
    """`train_step`, `test_step` and `predict_step` for TensorFlow."""

    _reports_steps = True

    @staticmethod
    def default_jit_compile():
        # A TPU runs nothing but XLA; a CPU is 7 to 20 times slower with it.
        return bool(tf.config.list_logical_devices("TPU"))

    def train_step(self, data):
        """One update: gradients multiplied, clipped alone and together; averages."""
        step = tf.identity(self.optimizer.iterations)
        statistics = self._statistics_at_risk()
        with tf.GradientTape() as tape:
            loss = self._forward_and_loss(data, training=True)
            # Replicas are summed below; a loss scale keeps float16 from underflow.
            scaled = self.optimizer.scale_loss(loss / _num_replicas())
        variables = self.trainable_variables
        gradients = tape.gradient(scaled, variables)
        gradients = self._multiplied(gradients)
        gradients, norm = self._clipped(gradients)
        self._trackers.steps["gradient_norm"].update_state(norm)
        self._trackers.steps["learning_rate"].update_state(self.optimizer.learning_rate)
        with tf.control_dependencies([self._refuse_unless_finite(loss, data, step)]):
            self.optimizer.apply_gradients(zip(gradients, variables))
        for variable, before in statistics:
            finite = tf.reduce_all(tf.math.is_finite(variable.value))
            variable.assign(tf.where(finite, variable.value, before))
        if self.averages is not None:
            self.averages.update(step)
        return self.get_metrics_result()

    def test_step(self, data):
        loss = self._forward_and_loss(data, training=False)
        with tf.control_dependencies([self._refuse_unless_finite(loss, data)]):
            logs = self.get_metrics_result()
        return {k: v for k, v in logs.items() if k not in self._trackers.steps}

    def predict_step(self, data):
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self.detect_step(images)

    def _forward_and_loss(self, data, training):
        """The forward pass and the loss that both steps share."""
        images, truth, weight = keras.utils.unpack_x_y_sample_weight(data)
        outputs = self(images, training=training)
        loss = self.compute_loss(images, truth, outputs, weight, training=training)
        self._loss_tracker.update_state(loss)
        return loss

    def _refuse_unless_finite(self, loss, data, step=None):
        """An operation that raises where the loss is NaN or infinite."""
        if self.jit_compile:  # XLA has no way back to Python: see `fit`
            return tf.no_op()
        _, truth, _ = keras.utils.unpack_x_y_sample_weight(data)
        names = [name for name in ("boxes", "labels", "image_id") if name in truth]
        done = -1 if step is None else step

        def refuse(done, *arrays):
            step = None if done < 0 else int(done) + 1
            self._error = self.non_finite_loss(dict(zip(names, arrays)), step=step)
            raise self._error

        is_fine = tf.math.is_finite(loss)
        if step is not None and self._loss_scale is not None:
            is_fine |= self._loss_scale > 1.0
        return tf.cond(
            is_fine,
            lambda: True,
            lambda: tf.numpy_function(refuse, [done, *map(truth.get, names)], tf.bool),
        )

    def _multiplied(self, gradients):
        if self._gradient_factors is None:
            return gradients
        pairs = zip(gradients, self._gradient_factors, strict=True)
        return [g if f == 1.0 else g * f for g, f in pairs]

    def _clipped(self, gradients):
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
        scale = self.optimizer.scale_loss(tf.ones(()))
        # One norm and one product a gradient: the graph has 500 of them.
        squares = [2 * tf.nn.l2_loss(tf.cast(g, tf.float32)) for g in gradients]
        norms = tf.sqrt(tf.stack(squares)) / scale
        factors = tf.ones_like(norms)
        limit = self._recipe.clip_norm
        if limit:
            factors = limit / tf.maximum(norms, limit)
            together = tf.linalg.norm(norms * factors)
            factors *= limit / tf.maximum(together, limit)
        shares = tf.unstack(factors / _num_replicas())
        clipped = [g * tf.cast(f, g.dtype) for g, f in zip(gradients, shares)]
        return clipped, tf.linalg.norm(norms * factors)

    def _statistics_at_risk(self):
        """Batch-norm statistics and their values, where float16 may overflow.

        A step with infinite gradients is skipped, but its forward pass has
        already moved the statistics, for good.
        """
        if self._loss_scale is None:
            return []
        return [(v, tf.identity(v.value)) for v in self.batch_norm_statistics()]


def _num_replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync
