"""Knowledge distillation: a student learns from a teacher's outputs and annotations."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import keras
from keras import ops

from effdet_keras._internal.backend import require_tensorflow
from effdet_keras._internal.number_ranges import check_number_fields, number
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.errors import InvalidTypeError, require
from effdet_keras.network.build import copied
from effdet_keras.train.losses import huber_loss

_NAME = "distillation_loss"  # in the logs of the student
_TEACHER = "teacher_"  # prefix of the teacher's outputs in the targets of a batch
_BATCH_SIZE = 8
# Config fields that must be equal: otherwise outputs have another meaning.
_SHARED = """
    num_classes min_level max_level num_scales aspect_ratios anchor_scale anchor_order
    box_scales
""".split()


@dataclasses.dataclass
class Distillation:
    """The loss between the outputs of a student and those of its teacher.

    The class loss is the quality focal loss (https://arxiv.org/abs/2006.04388, equation
    3, beta 2), with the teacher's scores as targets. The box loss is the Huber loss of
    the box deltas, weighted at each anchor by the teacher's highest score there. Both
    are divided by the sum of these highest scores plus one.
    """

    weight: float = number(1.0, "(0, inf)")
    box_loss_weight: float = number(50.0, "[0, inf)")
    delta: float = number(0.1, "(0, inf)")

    def __post_init__(self) -> None:
        check_number_fields(self)

    def distillation_loss(
        self, teacher: dict[str, Any], student: dict[str, Any]
    ) -> Any:
        """Returns the loss without `weight`.

        Args:
            teacher, student: dicts of `class_logits` `[B, N, C]` and `box_deltas`
                `[B, N, 4]`.
        """
        scores = ops.sigmoid(ops.cast(teacher["class_logits"], "float32"))
        logits = ops.cast(student["class_logits"], "float32")
        entropy = ops.binary_crossentropy(scores, logits, from_logits=True)
        # Subtract the minimum, so that a student equal to its teacher has no loss.
        least = ops.binary_crossentropy(scores, scores)
        gap = ops.square(ops.sigmoid(logits) - scores)
        of_class = ops.sum(gap * (entropy - least))
        highest = ops.max(scores, axis=-1)
        of_box = huber_loss(
            teacher["box_deltas"], student["box_deltas"], delta=self.delta
        )
        of_box = ops.sum(of_box * highest[..., None]) / 4.0
        normalizer = ops.sum(highest) + 1.0
        return (of_class + self.box_loss_weight * of_box) / normalizer

    def __call__(self, ground_truth: dict, outputs: dict) -> Any:
        """Returns the loss without `weight`; None if there are no teacher's outputs."""
        names = ("class_logits", "box_deltas")
        if _TEACHER + names[0] not in ground_truth:
            return None  # validation has no teacher
        teacher = {name: ground_truth[_TEACHER + name] for name in names}
        return self.distillation_loss(teacher, outputs)


def distill(
    teacher: Any,
    student: Any,
    data: Any,
    *,
    weight: float = 1.0,
    batch_size: int = _BATCH_SIZE,
    epochs: int = 1,
    **fit: Any,
) -> keras.callbacks.History:
    """Trains a student on annotations and on the outputs of a teacher.

    The teacher may be a larger model, such as D2 for a Lite0. It may also be the
    student as it was before a change: with another activation
    (`EfficientDet.with_activation`), or before `quantize_aware`.

    Both see the same augmented images in the student's size, so the teacher should be
    trained in that size or a similar one. Each step takes longer than in `fit` by a
    forward pass of the teacher.

    Args:
        teacher: `EfficientDet`, trained. It is not changed.
        student: `EfficientDet` with the same classes, levels and anchors. It is trained
            as it is compiled; if it is not, `compile()` is called. What its recipe
            leaves to `fit` is chosen as in `fit`.
        data: `DetectionDataset`, or batches (`tf.data.Dataset`) in the student's size.
        weight: float above 0, weight of the distillation loss; see `Distillation`.
        batch_size: int, images per batch, if `data` is a `DetectionDataset`.
        epochs: int, number of epochs.
        **fit: further arguments of `EfficientDet.fit`, such as `callbacks`.

    Returns:
        `keras.callbacks.History`; its `distillation_loss` is part of `loss`.

    Raises:
        ValueError: If the two models do not predict the same classes for the same
            anchors.
        TypeError: If `data` has another type.
        RuntimeError: If Keras does not run on TensorFlow.

    Example:
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> arguments = dict(image_size=64, num_classes=2)
        >>> teacher = EfficientDet.from_preset("efficientdet-d2", **arguments)
        >>> student = EfficientDet.from_preset("efficientdet-d0", **arguments)
        >>> distill(teacher, student, "DATA")
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidTypeError: `data` must be a `DetectionDataset`, ...
    """
    is_data = isinstance(data, DetectionDataset) or hasattr(data, "element_spec")
    rule = "`data` must be a `DetectionDataset`, or batches of it (`tf.data.Dataset`)"
    require(is_data, rule, InvalidTypeError, type=type(data))
    check_teacher(teacher, student)
    rule = Distillation(weight)
    if student.settings is None:
        student.compile()
    if isinstance(data, DetectionDataset):
        data = _batches_as_of_fit(student, data, batch_size, epochs, fit)
    with distillation_scope(teacher, student, data, rule) as batches:
        return student.fit(batches, epochs=epochs, **fit)


def _batches_as_of_fit(student, dataset, batch_size, epochs, fit):
    """Returns the batches that `fit` would make of a dataset for its arguments."""
    position = student.position_to_resume(fit.get("initial_epoch"))
    return student.batches(
        dataset,
        batch_size,
        training=True,
        seed=None if position is None else position.seed,
        epochs=epochs,
        steps_per_epoch=fit.get("steps_per_epoch"),
    )


@contextlib.contextmanager
def distillation_scope(teacher, student, batches, rule):
    """Returns a context of batches with which `fit` adds the distillation loss."""
    check_teacher(teacher, student)
    student.add_auxiliary_loss(_NAME, rule)
    try:
        yield _with_outputs(batches, _in_size_of(student, teacher))
    finally:
        student.remove_auxiliary_loss(_NAME)


def _with_outputs(batches, teacher):
    """Returns the batches, with the teacher's outputs in their targets."""

    def ask(images, truth):
        outputs = teacher(tf.cast(images, tf.float32), training=False)
        more = {_TEACHER + name: value for name, value in outputs.items()}
        return images, {**truth, **more}

    return batches.map(ask)


def _in_size_of(student, teacher):
    """Returns the teacher as it is evaluated, for images of the student's size."""
    copy = copied(teacher, {"image_size": student.config.image_size})
    if teacher.quantization is not None:
        for own, value in zip(
            copy.quantization.variables, teacher.quantization.variables
        ):
            own.assign(value)
    return copy


def check_teacher(teacher: Any, student: Any) -> None:
    """Raises an error unless the outputs of both can be compared element by element."""
    require_tensorflow(
        "A teacher (`distill`) runs inside the `tf.data` pipeline, which needs the "
        "TensorFlow backend",
        "Use KERAS_BACKEND=tensorflow.",
    )
    rule = "Teacher and student must predict the same classes for the same anchors: "
    for field in _SHARED:
        one, other = getattr(teacher.config, field), getattr(student.config, field)
        cure = f"{rule}build the student with {field}={one!r}"
        require(one == other, cure, teacher=one, student=other)
    one, other = teacher.class_names, student.class_names
    require(
        None in (one, other) or list(one) == list(other),
        "Teacher and student must have the same classes in the same order",
        teacher=one,
        student=other,
    )
