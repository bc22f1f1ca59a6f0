"""AdvProp: training on adversarial images, with separate batch norms for them."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import keras
from keras import ops

from effdet_keras._internal.backend import require_tensorflow
from effdet_keras._internal.number_ranges import (
    check_number_fields,
    number,
    whole_number,
)
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.plain_values import FieldSerializable
from effdet_keras.errors import InvalidValueError, check_choice, require
from effdet_keras.network.batch_norm import batch_norm_layers
from effdet_keras.train.optimizers import gradients_of

_LOSSES = ("max", "both", "class", "box")


@keras.saving.register_keras_serializable(package="effdet_keras")
@dataclasses.dataclass(frozen=True)
class AdvProp(FieldSerializable):
    """Trains on adversarial images, with batch norms of their own, and on clean ones.

    This is AdvProp (https://arxiv.org/abs/1911.09665), or for detectors Det-AdvProp
    (https://arxiv.org/abs/2103.13886). Each step adds noise to its images `x` that
    increases a loss `L`. The noise is at most `epsilon` per pixel value. It starts from
    `x_0 = x`, and takes `num_steps` steps

        x_k+1 = clip(x_k + step_size * sign(dL / dx_k), x - epsilon, x + epsilon)

    that stay within 0 to 255. Then the training step minimizes the loss of the clean
    images plus the loss of the adversarial images.

    All weights are trained on both. But batch norms have a second scale, offset, mean
    and variance for adversarial images, because these images have another distribution,
    and only serve for training. Evaluation, `detect` and exports use only the batch
    norms of clean images. Frozen batch norms have no second set, and serve both.

    Args:
        epsilon: float above 0 and at most 255, the largest change of a pixel's value.
        num_steps: int, 1 or more; each one costs a forward and a backward pass.
        step_size: float above 0 and at most 255; None is `epsilon / num_steps`.
        random_start: bool, whether `x_0` is `x` plus uniform noise of up to `epsilon`.
        loss: string, the loss `L`. "max" attacks each image twice, by its class loss
            and by its box losses, and trains on the attack with the larger total loss,
            as Det-AdvProp does. "class" and "box" make one of these attacks. "both"
            attacks by the total loss, as AdvProp does.

    Raises:
        ValueError: If a field has a value that is not allowed.

    Example:
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> model = EfficientDet.from_preset("efficientdet-lite0", image_size=64)
        >>> model.compile(adversarial=AdvProp(epsilon=4.0, num_steps=2, loss="both"))
        >>> model.settings.recipe.adversarial.change_per_step
        2.0
    """

    epsilon: float = number(1.0, "(0, 255]")
    num_steps: int = whole_number(1, "[1, inf)")
    step_size: float | None = number(None, "(0, 255]")
    random_start: bool = False
    loss: str = "max"

    def __post_init__(self) -> None:
        check_number_fields(self)
        check_choice("loss", self.loss, _LOSSES)

    @property
    def change_per_step(self) -> float:
        """The change of a pixel's value in one step of the attack."""
        return self.step_size or self.epsilon / self.num_steps

    def new_training(self, model: Any, jit_compile: bool) -> AdversarialTraining:
        """Returns the object that attacks the images of training steps."""
        require_tensorflow(
            "`adversarial` works only with the TensorFlow backend",
            "Set KERAS_BACKEND=tensorflow before Keras is imported, or leave "
            "`adversarial` out.",
        )
        if model.distribute_strategy.num_replicas_in_sync > 1:
            raise InvalidValueError(
                "`adversarial` works on one device only, not under a `tf.distribute` "
                "strategy with several. Leave `adversarial` or the strategy out."
            )
        rule = (
            "`adversarial` does not work with XLA: pass `jit_compile=False`, or leave "
        )
        require(not jit_compile, f"{rule}it out", jit_compile=jit_compile)
        if model.features is not None:
            raise InvalidValueError(
                "`adversarial` needs auxiliary batch norms, which cannot be added to "
                "a TF-Hub module. Train a model of `from_preset` instead."
            )
        return AdversarialTraining(model, self)


# --- The adversarial half of training steps, and the second set of batch-norm arrays.

AUXILIARY = "auxiliary:"  # in files, the prefix of the path of a copied variable
_TRAINED, _STATISTICS = ("gamma", "beta"), ("moving_mean", "moving_variance")


class AdversarialTraining:
    """Attacks the images of a batch, and adds the gradients of the attacked images.

    It has copies of the batch norms' arrays, which are trained and updated separately.
    The copies are not weights of the model, so whatever uses, exports or counts the
    weights does not see them. The optimizer has them, and checkpoints store them to
    resume a training.
    """

    name = "adversarial_loss"  # in the logs

    def __init__(self, model: Any, advprop: AdvProp) -> None:
        # A weak reference: a reference cycle would keep a discarded model in memory.
        self._model_of = weakref.ref(model)
        self._advprop = advprop
        self._arrays = {
            bn: {name: _copy(getattr(bn, name)) for name in (*_TRAINED, *_STATISTICS)}
            for bn in batch_norm_layers(model)
            if bn.trainable
        }
        pairs = [
            (getattr(bn, name), copy)
            for bn, arrays in self._arrays.items()
            for name, copy in arrays.items()
        ]
        self.sources = [source for source, _ in pairs]
        trained = [pair for pair in pairs if pair[1].trainable]
        self.trainable_sources = [source for source, _ in trained]
        self.variables = [copy for _, copy in pairs]
        self.trainable = [copy for _, copy in trained]  # what the optimizer updates
        self.statistics = [
            a[name] for a in self._arrays.values() for name in _STATISTICS
        ]

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Makes batch norms use the copies, for passes of adversarial images."""
        own = {
            bn: {name: vars(bn)[name] for name in arrays}
            for bn, arrays in self._arrays.items()
        }
        try:
            for bn, arrays in self._arrays.items():
                # Bypass Keras, which would track these as weights of the layer.
                vars(bn).update(arrays)
            yield
        finally:
            for bn, arrays in own.items():
                vars(bn).update(arrays)

    def reset(self) -> None:
        """Copies the arrays of batch norms again; needed after loading weights."""
        for source, copy in zip(self.sources, self.variables):
            copy.assign(ops.copy(source.value))

    def save(self, store: Any) -> None:
        """Writes all copies, under the paths of their sources."""
        for source, copy in zip(self.sources, self.variables):
            store[_key(source)] = ops.convert_to_numpy(copy)

    def load(self, store: Mapping[str, Any]) -> bool:
        """Reads what `save` wrote; returns whether the store has it."""
        names = set(store.keys())  # the store of a `.weights.h5` is not a dict
        found = {name for name in names if name.startswith(AUXILIARY)}
        if not found:
            return False
        require(
            {_key(source) for source in self.sources} == found,
            "The auxiliary batch norms in the file do not fit this model: it was "
            "compiled with other frozen batch norms when the file was written. "
            "Compile the model as it was then",
            in_file=len(found),
            in_model=len(self.sources),
        )
        for source, copy in zip(self.sources, self.variables):
            copy.assign(store[_key(source)])
        return True

    # --- The half of a training step for adversarial images.

    @property
    def _model(self):
        return self._model_of()

    def add_gradients(self, gradients, new_values, data, step):
        """Adds the gradients of adversarial images to those of the clean images.

        The weight decay of kernels is part of the clean loss, and is counted only once.

        Args:
            gradients: list of tensors, the gradients of `model.trainable_variables`.
            new_values: list of pairs of a variable and the value that the clean pass
                assigned to it.
            data: the batch.
            step: int scalar, the 0-based training step.

        Returns:
            The gradients of `model.optimized_variables()`, and the pairs of both
            passes.
        """
        model = self._model
        images, truth, _ = keras.utils.unpack_x_y_sample_weight(data)
        truth = {name: tf.convert_to_tensor(value) for name, value in truth.items()}
        # After the clean pass, not in parallel: each needs the memory of a whole step.
        with tf.control_dependencies(gradients):
            images = tf.cast(tf.identity(images), tf.float32)
        # Assignments of the attack's own forward passes are dropped, except for random
        # states, which must advance.
        with (
            self.in_place(),
            keras.StatelessScope(_random_states(new_values)) as attack,
        ):
            images = tf.stop_gradient(self._attacked(images, truth, step))
        random_states = _random_states(model.assigned_values(attack))
        with (
            self.in_place(),
            tf.GradientTape() as tape,
            keras.StatelessScope(random_states) as forward_pass,
        ):
            losses = self._losses(images, truth, is_step=True)
            adversarial = losses["loss"] - losses["reg_l2_loss"]
            scaled = model.optimizer.scale_loss(adversarial)
            model.settings.loss_metrics.update({self.name: adversarial})
        variables = model.optimized_variables()
        more = gradients_of(tape, scaled, variables)
        num_shared = len(gradients)  # the gradients after these are auxiliary
        sums = [clean + other for clean, other in zip(gradients, more)]
        # For each variable, the later value counts.
        assigned = {id(variable): (variable, value) for variable, value in new_values}
        for variable, value in model.assigned_values(forward_pass):
            assigned[id(variable)] = (variable, value)
        return [*sums, *more[num_shared:]], list(assigned.values())

    def _attacked(self, images, truth, step):
        """Returns the images with adversarial noise."""
        start, losses = images, [self._advprop.loss]
        if self._advprop.random_start:
            start = self._within(images + self._noise(images, step), images)
        if losses == ["max"]:
            losses = ["class", "box"]
        # Both attacks share their first forward pass, and then separate.
        found = self._attack_step(start, images, truth, losses)
        for _ in range(self._advprop.num_steps - 1):
            found = [
                self._attack_step(x, images, truth, [loss])[0]
                for x, loss in zip(found, losses)
            ]
        if len(found) == 1:
            return found[0]
        by_class, by_box = found
        is_worse = self._loss_per_image(by_class, truth) >= self._loss_per_image(
            by_box, truth
        )
        return tf.where(is_worse[:, None, None, None], by_class, by_box)

    def _attack_step(self, x, images, truth, losses):
        """Returns a list: the result of one step from `x` for each attack."""
        has_several = len(losses) > 1
        with tf.GradientTape(
            persistent=has_several, watch_accessed_variables=False
        ) as tape:
            tape.watch(x)
            terms = self._losses(x, truth)
            # Float16 would lose small gradients; the scale does not change their signs.
            scaled = [
                self._model.optimizer.scale_loss(self._part(terms, loss))
                for loss in losses
            ]
        slopes = [tape.gradient(value, x) for value in scaled]
        return [self._within(x + self._change(slope), images) for slope in slopes]

    def _change(self, slope):
        # A gradient that overflows in float16 does not attack. The training step itself
        # finds out whether a smaller loss scale makes gradients finite.
        sign = tf.where(tf.math.is_finite(slope), tf.sign(slope), tf.zeros_like(slope))
        return self._advprop.change_per_step * sign

    def _within(self, x, images):
        epsilon = self._advprop.epsilon
        x = tf.clip_by_value(x, images - epsilon, images + epsilon)
        return tf.clip_by_value(x, 0.0, 255.0)

    def _noise(self, images, step):
        epsilon = self._advprop.epsilon
        # Seeded by the step's number, so that a resumed training draws the same noise.
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
        # Losses that only serve an attack are no part of an update or accumulation.
        outputs = self._model(images, training=True)
        return self._model.compute_losses(truth, outputs, training=is_step)

    def _loss_per_image(self, images, truth):
        outputs = self._model(images, training=True)
        truth = {n: value for n, value in truth.items() if value.dtype != tf.string}

        def loss_of_image(one):
            batch = tf.nest.map_structure(lambda x: x[None], one)
            return self._model.compute_losses(*batch)["loss"]

        return tf.map_fn(
            loss_of_image, (truth, outputs), fn_output_signature=tf.float32
        )


def _random_states(pairs):
    """Returns the pairs of random states; other assigned variables are floats."""
    return [(v, x) for v, x in pairs if not keras.backend.is_float_dtype(v.dtype)]


def _copy(variable):
    return keras.Variable(
        # A function, because a model may be built within a stateless scope.
        lambda shape, dtype: ops.copy(ops.stop_gradient(variable.value)),
        shape=variable.shape,
        dtype=variable.dtype,
        trainable=variable.trainable,
        autocast=False,
        name="auxiliary_" + variable.path.replace("/", "_"),
    )


def _key(source):
    return AUXILIARY + source.path.replace("/", ":")
