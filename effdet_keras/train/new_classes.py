"""`freeze="all-but-new-classes"`: the outputs for old classes stay the same bits.

The last layer of the class head has one channel for each anchor and class. Only the
channels of new classes are trained, in its pointwise kernel and its bias. All other
weights are frozen by `train/freezing.py`. So neither the boxes nor the logits of old
classes change, and objects of old classes that are not annotated have no effect.

Channel `anchor * num_classes + label` belongs to a label, as in `PredictionHead`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from keras import ops

from effdet_keras.errors import InvalidValueError, require
from effdet_keras.weights.network_arrays import network_arrays, tf1_name

ALL_BUT_NEW_CLASSES = "all-but-new-classes"
_OLD_CLASSES_STAND_STILL = (
    f"`freeze={ALL_BUT_NEW_CLASSES!r}` keeps what the model computes for the old "
    f"classes: leave {{}} out, or freeze something else"
)


def new_labels(model: Any) -> tuple[int, ...]:
    """Returns the labels of classes that the loaded detector did not have.

    Raises:
        ValueError: If no detector was loaded, if the model has no new class, or if all
            of its classes are new. The message names the classes and the cure.
    """
    loaded = model.loaded_classes
    if loaded is None and model.frozen_labels:  # a model loaded from an archive
        return _others(model, model.frozen_labels)
    example = "`EfficientDet.from_preset(..., weights='runs/old', class_names={})`"
    if loaded is None:
        raise InvalidValueError(
            f"`freeze={ALL_BUT_NEW_CLASSES!r}` keeps the classes of a loaded detector, "
            "but no complete detector was loaded: some weights still have their "
            "initial values. Load a detector into a model that has its classes and "
            "the new ones: "
            f"{example.format([*(model.class_names or ['old']), 'new'])}."
        )
    if not loaded.new_labels:
        names = _named(model.class_names)
        raise InvalidValueError(
            f"`freeze={ALL_BUT_NEW_CLASSES!r}` leaves nothing to train, because the "
            f"loaded detector already has all classes of the model: {names}. Give the "
            "names of the new classes as well: "
            f"{example.format([*(model.class_names or ['old']), 'new'])}."
        )
    if len(loaded.new_labels) == model.num_classes:
        names = [*(loaded.names or ["old"]), *(model.class_names or ["new"])]
        raise InvalidValueError(
            f"`freeze={ALL_BUT_NEW_CLASSES!r}` keeps the classes of the loaded "
            f"detector, {_named(loaded.names)}, but the model has none of them: its "
            f"classes are {_named(model.class_names)}. Give the names of the old "
            f"classes as well: {example.format(names)}."
        )
    return loaded.new_labels


def labels_to_freeze(model: Any) -> tuple[int, ...]:
    """Returns the labels that are not in `new_labels`.

    Raises:
        ValueError: As `new_labels`, and for a model of `quantize_aware`.
    """
    rule = _OLD_CLASSES_STAND_STILL.format("`quantize_aware`")
    require(model.quantization is None, rule, quantization=model.quantization)
    return _others(model, new_labels(model))


def output_variables(model: Any) -> list:
    """Returns the weights with a channel per anchor and class: a kernel and a bias."""
    arrays = network_arrays(model.config)
    names = {array.name for array in arrays if array.part == "class_predict"}
    return [
        variable
        for variable in model.weights
        if tf1_name(variable) in names and variable.name != "depthwise_kernel"
    ]


def check_not_adversarial(model: Any, adversarial: Any) -> None:
    """Raises ValueError for adversarial training with frozen classes.

    Adversarial training trains all of its batch norms.
    """
    is_right = adversarial is None or not model.frozen_labels
    rule = _OLD_CLASSES_STAND_STILL.format("`adversarial`")
    require(is_right, rule, adversarial=adversarial)


def loss_of_new_classes(model: Any, loss: Any) -> Any:
    """Returns a `DetectionLoss` of the new classes only, if old classes are frozen.

    Otherwise it returns the loss unchanged.
    """
    if not model.frozen_labels:
        return loss
    weights = np.array(loss.class_weights or [1.0] * model.num_classes)
    weights[list(model.frozen_labels)] = 0.0
    return dataclasses.replace(loss, class_weights=tuple(weights.tolist()))


def mask_old_classes(model: Any, gradients: list, variables: list) -> list:
    """Returns gradients with zeros for the channels of frozen old classes.

    So these channels do not count in the norm for clipping. See `old_classes_kept`.
    """
    if not model.frozen_labels:
        return gradients
    trains, outputs = _trains(model), {id(v) for v in output_variables(model)}
    return [
        ops.where(trains, gradient, 0.0) if id(variable) in outputs else gradient
        for gradient, variable in zip(gradients, variables, strict=True)
    ]


@contextlib.contextmanager
def old_classes_kept(model: Any) -> Iterator[None]:
    """Context of an update that restores the channels of old classes at its end.

    The optimizer's weight decay or its own averages would change them even without a
    gradient.
    """
    variables = output_variables(model) if model.frozen_labels else []
    before = [ops.copy(variable) for variable in variables]
    yield
    for variable, value in zip(variables, before):
        now = ops.convert_to_tensor(variable)
        variable.assign(ops.where(_trains(model), now, value))


def _trains(model):
    """Returns which channels train, bool `[num_anchors * num_classes]`."""
    trains = np.ones((model.config.num_anchors, model.num_classes), bool)
    trains[:, list(model.frozen_labels)] = False
    return trains.reshape(-1)


def _others(model, labels):
    return tuple(i for i in range(model.num_classes) if i not in labels)


def _named(names):
    return "without names" if names is None else ", ".join(map(repr, names))
