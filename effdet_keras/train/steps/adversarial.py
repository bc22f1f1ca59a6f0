"""The training step on adversarial images, on TensorFlow."""

from __future__ import annotations

import keras
import tensorflow as tf

from effdet_keras.model.basic_layers import recomputing


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


# --- The half of a training step on TensorFlow that adversarial images are for.


class AdversarialPass:
    """Attacks the images of a batch, and adds the gradients of what comes of it."""

    def __init__(self, model):
        self._model = model
        self._advprop = model.settings.recipe.adversarial
        self._norms = model.auxiliary_norms

    def added_to(self, loss, gradients, data, step):
        """Loss and gradients of the clean images, with those of the adversarial ones.

        The weight decay of the kernels is in the clean loss, and counts once.

        Args:
            gradients: list of tensors, one per trainable variable of the model, with
                the loss scale.
        """
        images, truth, _ = keras.utils.unpack_x_y_sample_weight(data)
        truth = {name: tf.convert_to_tensor(value) for name, value in truth.items()}
        # After the clean pass, not beside it: each needs the memory of a whole step.
        with tf.control_dependencies(gradients):
            images = tf.cast(tf.identity(images), tf.float32)
        with self._norms.in_place(moving=False):
            images = tf.stop_gradient(self._attacked(images, truth, step))
        with self._norms.in_place(moving=True):
            with tf.GradientTape() as tape:
                losses = self._losses(images, truth, is_step=True)
                adversarial = losses["loss"] - losses["reg_l2_loss"]
                scaled = self._model.optimizer.scale_loss(adversarial)
            more = gradients_of(tape, scaled, self._model.updated_variables())
        self._model.settings.trackers.update_adversarial(adversarial)
        num_shared = len(gradients)  # what is behind them is auxiliary
        sums = [clean + other for clean, other in zip(gradients, more)]
        return loss + adversarial, [*sums, *more[num_shared:]]

    def _attacked(self, images, truth, step):
        """The images with the noise that hurts."""
        start, losses = images, [self._advprop.loss]
        if self._advprop.random_start:
            start = self._within(images + self._noise(images, step), images)
        if losses == ["max"]:
            losses = ["class", "box"]
        # The attacks begin with one forward pass, and part ways then.
        found = self._moved(start, images, truth, losses)
        for _ in range(self._advprop.num_steps - 1):
            found = [
                self._moved(x, images, truth, [loss])[0]
                for x, loss in zip(found, losses)
            ]
        if len(found) == 1:
            return found[0]
        by_class, by_box = found
        is_worse = self._loss_per_image(by_class, truth) >= self._loss_per_image(
            by_box, truth
        )
        return tf.where(is_worse[:, None, None, None], by_class, by_box)

    def _moved(self, x, images, truth, losses):
        """What `x` becomes by one step of each attack, a list."""
        has_several = len(losses) > 1
        with tf.GradientTape(
            persistent=has_several, watch_accessed_variables=False
        ) as tape:
            tape.watch(x)
            terms = self._losses(x, truth)
            # Float16 would lose small gradients; their signs have no scale.
            scaled = [
                self._model.optimizer.scale_loss(self._part(terms, loss))
                for loss in losses
            ]
        slopes = [tape.gradient(value, x) for value in scaled]
        return [self._within(x + self._change(slope), images) for slope in slopes]

    def _change(self, slope):
        # A gradient that overflows in float16 attacks nothing: the step itself finds
        # out whether a smaller loss scale mends it.
        sign = tf.where(tf.math.is_finite(slope), tf.sign(slope), tf.zeros_like(slope))
        return self._advprop.change_per_step * sign

    def _within(self, x, images):
        epsilon = self._advprop.epsilon
        x = tf.clip_by_value(x, images - epsilon, images + epsilon)
        return tf.clip_by_value(x, 0.0, 255.0)

    def _noise(self, images, step):
        epsilon = self._advprop.epsilon
        # By the number of the step: a training that goes on draws the same.
        seed = tf.stack([tf.constant(0, tf.int64), tf.cast(step, tf.int64)])
        return tf.random.stateless_uniform(tf.shape(images), seed, -epsilon, epsilon)

    def _part(self, terms, loss):
        if loss == "both":
            return terms["loss"]
        if loss == "class":
            return terms["class_loss"]
        weights = self._model.settings.recipe.loss
        part = weights.box_loss_weight * terms["box_loss"]
        if "box_iou_loss" in terms:
            part += weights.iou_loss_weight * terms["box_iou_loss"]
        return part

    def _losses(self, images, truth, is_step=False):
        # What only attacks is no part of an update, whatever the accumulation.
        return self._model.losses_of(truth, self._outputs(images), training=is_step)

    def _loss_per_image(self, images, truth):
        outputs = self._outputs(images)
        truth = {n: value for n, value in truth.items() if value.dtype != tf.string}

        def of_one(one):
            batch = tf.nest.map_structure(lambda x: x[None], one)
            return self._model.losses_of(*batch)["loss"]

        return tf.map_fn(of_one, (truth, outputs), fn_output_signature=tf.float32)

    def _outputs(self, images):
        with recomputing(self._model.settings.recipe.grad_checkpoint):
            return self._model(images, training=True)
