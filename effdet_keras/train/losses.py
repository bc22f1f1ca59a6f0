"""Losses: focal for classes, Huber and IoU for boxes, cross entropy for pixels."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import keras
from keras import ops

from effdet_keras import box_ops
from effdet_keras._internal.backend import fused
from effdet_keras._internal.number_ranges import (
    check_number,
    check_number_fields,
    number,
    several,
)
from effdet_keras._internal.old_names import renamed_fields
from effdet_keras._internal.plain_values import FieldSerializable
from effdet_keras.box_ops import as_tensor
from effdet_keras.errors import check_argument, check_choice
from effdet_keras.labels import IGNORE
from effdet_keras.network.anchors import take_grid

__all__ = ["DetectionLoss", "focal_loss"]

_DIVISORS = {
    "positives_plus_one": lambda num_positives: num_positives + 1.0,
    "positives": lambda num_positives: ops.maximum(num_positives, 1.0),
    "one": ops.ones_like,
}
_IOU_METRICS = {
    "iou": box_ops.iou,
    "giou": box_ops.giou,
    "diou": box_ops.diou,
    "ciou": box_ops.ciou,
}


def focal_loss(
    class_targets: Any,
    class_logits: Any,
    *,
    alpha: float = 0.25,
    gamma: float = 1.5,
    label_smoothing: float = 0.0,
    class_weights: Sequence[float] | None = None,
) -> Any:
    """Computes the focal loss of each anchor, summed over its classes.

    https://arxiv.org/abs/1708.02002, section 3. Each class is a separate binary
    classification with logit `x`, `p = sigmoid(x)` and label `y`:

        y = 1:  alpha * (1 - p)**gamma * cross_entropy(x, 1 - s)
        y = 0:  (1 - alpha) * p**gamma * cross_entropy(x, s)

    with `s = label_smoothing / 2`. Smoothing changes only the cross entropy.
    Background anchors (-1) have no class with `y = 1`. Ignored anchors (-2) have no
    loss. A label of `C` or more counts as background.

    Args:
        class_targets: int tensor `[..., N]`: `0 .. C-1`, -1 background, -2 ignore.
        class_logits: float tensor `[..., N, C]`.
        alpha: float in `[0, 1]`, the weight of `y = 1`.
        gamma: float of at least 0, the focusing parameter: how much well-classified
            examples are down-weighted.
        label_smoothing: float in `[0, 1]`.
        class_weights: `C` floats of at least 0, factors on the losses of the classes,
            for both `y = 1` and `y = 0`. None is 1 for all classes.

    Returns:
        Float32 tensor `[..., N]`. Loss and gradient are finite for all finite
        logits.

    Raises:
        ValueError: If a number is out of its range, or there is not one weight per
            class.

    Example:
        >>> loss = focal_loss([[1, -1, -2]], ops.zeros((1, 3, 2)))
        >>> ops.convert_to_numpy(loss).round(4)  # 0.5**1.5 * log(2) = 0.2451
        array([[0.2451, 0.3676, 0.    ]], dtype=float32)
    """
    class_targets = as_tensor(class_targets, "int32")
    class_logits = as_tensor(class_logits)
    num_classes = class_logits.shape[-1]
    weights = (1.0,) * num_classes if class_weights is None else class_weights
    for name, value, interval in (
        ("alpha", alpha, "[0, 1]"),
        ("gamma", gamma, "[0, inf)"),
        ("label_smoothing", label_smoothing, "[0, 1]"),
    ):
        check_number(name, value, interval)
    check_number("class_weights", tuple(weights), "[0, inf)", form="sequence")
    is_right = len(weights) == num_classes
    check_argument(is_right, "class_weights", weights, f"{num_classes} numbers")
    weights = as_tensor(weights)

    @ops.custom_gradient
    def loss_of(logits):
        loss, slope = _loss_and_slope(
            class_targets, logits, weights, alpha, gamma, label_smoothing / 2.0
        )

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            return ops.expand_dims(upstream, -1) * slope

        return loss, gradient

    return ops.where(class_targets == IGNORE, 0.0, loss_of(class_logits))


@fused
def _loss_and_slope(class_targets, logits, weights, alpha, gamma, smoothing):
    """Returns the focal loss `[..., N]` and its gradient by the logits `[..., N, C]`.

    The gradient is written out because these arrays are the largest of a training
    step. The two cases of y become one with z, the logit of the wrong answer. With
    q = sigmoid(z) the loss is weight * q**gamma * (softplus(z) - smoothing * z).
    """
    classes = ops.arange(logits.shape[-1], dtype="int32")
    is_class = ops.expand_dims(class_targets, -1) == classes
    positive, negative = alpha * weights, (1.0 - alpha) * weights
    z = ops.where(is_class, -logits, logits)
    softplus = ops.softplus(z)
    modulation = ops.exp(gamma * (z - softplus))  # q**gamma, also for q near 0
    cross_entropy = softplus - smoothing * z if smoothing else softplus
    weight = ops.where(is_class, positive, negative)
    loss = ops.sum(weight * modulation * cross_entropy, axis=-1)
    q = ops.sigmoid(z)
    slope = gamma * (1.0 - q) * cross_entropy + (q - smoothing)
    return loss, ops.where(is_class, -positive, negative) * modulation * slope


def huber_loss(box_targets: Any, box_deltas: Any, *, delta: float = 0.1) -> Any:
    """Computes the Huber loss of each number: `e**2 / 2` up to `delta`, then linear.

    `e` is the absolute error, and the linear part is `delta * (e - delta / 2)`.

    Args:
        box_targets, box_deltas: float tensors of one shape, such as `[B, N, 4]`.
        delta: float above 0.

    Returns:
        Float32 tensor of the same shape.

    Example:
        >>> ops.convert_to_numpy(huber_loss([0.0, 0.0], [0.1, 1.1])).round(3)
        array([0.005, 0.105], dtype=float32)
    """
    error = ops.abs(as_tensor(box_deltas) - as_tensor(box_targets))
    inner = ops.minimum(error, delta)
    return inner * (error - 0.5 * inner)


def iou_loss(target_boxes: Any, boxes: Any, *, iou_loss_type: str) -> Any:
    """Computes `1 - metric` of boxes and their targets. It is 0 for an empty target.

    Args:
        target_boxes, boxes: float tensors `[..., 4]`, `yxyx` in one unit.
        iou_loss_type: "iou", "giou", "diou" or "ciou", the metric.

    Returns:
        Float32 tensor `[...]`.
    """
    boxes, target_boxes = as_tensor(boxes), as_tensor(target_boxes)
    # `boxes` is the first argument, as in the reference: if a box equals its target,
    # TensorFlow's gradients of minimum and maximum go to the first argument.
    metric = _IOU_METRICS[iou_loss_type](boxes, target_boxes)
    return ops.where(box_ops.area(target_boxes) > 0.0, 1.0 - metric, 0.0)


@keras.saving.register_keras_serializable(package="effdet_keras")
@renamed_fields(divide_by="normalizer")
@dataclasses.dataclass(frozen=True, repr=False)
class DetectionLoss(FieldSerializable):
    """The loss of EfficientDet: for classes, for boxes and, optionally, an IoU term.

    https://arxiv.org/abs/1911.09070, section 5.1. `P` is the number of positive anchors
    in the batch, which have a class or a box to predict. With `n = P + 1`:

        class_loss = sum(focal) / n                      over all anchors
        box_loss = sum(huber) / (4 * n)                  over positive anchors
        box_iou_loss = sum(1 - metric) / (4 * n)         over positive anchors
        loss = class_loss_weight * class_loss + box_loss_weight * box_loss
                                              + iou_loss_weight * box_iou_loss

    where `huber` of an error `e` is `e**2 / 2` up to `delta`, and linear from there on.
    With `anchor_weights`, the losses of each anchor are multiplied by its weight, and
    `P` is the sum of the weights of positive anchors.

    Everything is computed in float32. The reference omits a coordinate of a positive
    anchor from the box loss if its target is exactly 0. Here it counts.

    Args:
        alpha, gamma, label_smoothing: see `focal_loss`.
        delta: float above 0, in the unit of the box codes.
        box_loss_weight: float of at least 0. With 0 the Huber loss is not computed.
        iou_loss_type: None, "iou", "giou", "diou" or "ciou".
        iou_loss_weight, class_loss_weight: floats of at least 0, factors of the terms.
        class_weights: one float of at least 0 per class, see `focal_loss`; or None.
        normalizer: the definition of `n`: "positives_plus_one" for `P + 1`; "positives"
            for `P`, but at least 1, as in the TF Object Detection API; or "one" for 1.
        positives_momentum: float below 1, or None. Above 0, the losses of training are
            divided by a moving average of `n` (`extras/moving_normalizer.py`). 0 or
            below has the same effect as None: `n` counts the anchors of all replicas.
            (For a number below 0, the reference takes the mean over replicas.)

    Call arguments:
        class_targets: int tensor `[B, N]`, from a `Matching`.
        box_targets: float tensor `[B, N, 4]`, from a `Matching`.
        class_logits: float tensor `[B, N, C]`, from the network.
        box_deltas: float tensor `[B, N, 4]`, from the network.
        anchors: float tensor `[N, 4]`, `yxyx` in pixels.
        anchor_weights: float tensor `[B, N]`, from a `Matching`, or None for 1.
        normalizer: float32 scalar that replaces `n`, or None. Pass it if the batch is
            one of several shards: with the `n` of all shards, divided by their number,
            the mean of the shards' losses is the loss of the whole batch.
        box_scales: four floats, the `scales` of `encode_boxes` with which targets and
            deltas are encoded. IoU losses need them.

    Returns:
        Dict of float32 scalars: `loss`, `class_loss`, `box_loss` and, with an
        `iou_loss_type`, `box_iou_loss`. The terms are not multiplied by their weights.

    Raises:
        ValueError: If `iou_loss_type` or `normalizer` is unknown, or a number is out of
            its range.

    Example:
        >>> loss = DetectionLoss(iou_loss_type="giou")
        >>> anchors = [[0, 0, 8, 8], [0, 8, 8, 16]]
        >>> logits, deltas = ops.zeros((1, 2, 3)), ops.zeros((1, 2, 4))
        >>> targets = [[[0.5, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]
        >>> terms = loss([[2, -1]], targets, logits, deltas, anchors)
        >>> {name: round(float(value), 3) for name, value in terms.items()}
        {'loss': 0.855, 'class_loss': 0.49, 'box_loss': 0.006, 'box_iou_loss': 0.083}
    """

    alpha: float = number(0.25, "[0, 1]")
    gamma: float = number(1.5, "[0, inf)")
    label_smoothing: float = number(0.0, "[0, 1]")
    delta: float = number(0.1, "(0, inf)")
    box_loss_weight: float = number(50.0, "[0, inf)")
    iou_loss_type: str | None = None
    iou_loss_weight: float = number(1.0, "[0, inf)")
    class_loss_weight: float = number(1.0, "[0, inf)")
    normalizer: Literal["positives_plus_one", "positives", "one"] = "positives_plus_one"
    positives_momentum: float | None = number(None, "(-inf, 1)")
    class_weights: tuple[float, ...] | None = several(None, "[0, inf)")

    def __post_init__(self) -> None:
        check_choice("normalizer", self.normalizer, _DIVISORS)
        check_choice("iou_loss_type", self.iou_loss_type, (None, *_IOU_METRICS))
        check_number_fields(self)
        if self.class_weights is not None:
            object.__setattr__(self, "class_weights", tuple(self.class_weights))

    def __repr__(self) -> str:
        """Returns the call that creates the object, without arguments at defaults."""
        fields = [(f.name, f.default) for f in dataclasses.fields(self)]
        values = [(name, getattr(self, name), default) for name, default in fields]
        given = [f"{name}={value!r}" for name, value, d in values if value != d]
        return f"{type(self).__name__}({', '.join(given)})"

    def __call__(
        self,
        class_targets: Any,
        box_targets: Any,
        class_logits: Any,
        box_deltas: Any,
        anchors: Any,
        normalizer: Any = None,
        *,
        box_scales: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
        anchor_weights: Any = None,
    ) -> dict[str, Any]:
        class_targets = as_tensor(class_targets, "int32")
        box_targets, box_deltas = as_tensor(box_targets), as_tensor(box_deltas)
        if normalizer is None:
            normalizer = self.normalizer_of(
                count_positives(class_targets, box_targets, anchor_weights)
            )
        # The deltas are masked, not the loss: an overflow times 0 would be NaN. Anchors
        # that are not positive have targets of 0. With deltas of 0 their loss is 0.
        is_positive = _is_positive(class_targets, box_targets)
        box_deltas = ops.where(is_positive[..., None], box_deltas, 0.0)
        class_losses = focal_loss(
            class_targets,
            class_logits,
            alpha=self.alpha,
            gamma=self.gamma,
            label_smoothing=self.label_smoothing,
            class_weights=self.class_weights,
        )
        box_losses = ops.zeros_like(box_targets)
        if self.box_loss_weight != 0:
            box_losses = huber_loss(box_targets, box_deltas, delta=self.delta)
        terms = {
            "class_loss": _total(class_losses, anchor_weights) / normalizer,
            "box_loss": _total(box_losses, anchor_weights) / (4.0 * normalizer),
        }
        loss = (
            self.class_loss_weight * terms["class_loss"]
            + self.box_loss_weight * terms["box_loss"]
        )
        if self.iou_loss_type is not None:
            boxes = (
                box_ops.decode_boxes(codes, anchors, box_scales)
                for codes in (box_targets, box_deltas)
            )
            iou_losses = iou_loss(*boxes, iou_loss_type=self.iou_loss_type)
            total = _total(iou_losses, anchor_weights)
            # Divided by 4 as in the reference, although there is one value per box.
            terms["box_iou_loss"] = total / (4.0 * normalizer)
            loss = loss + self.iou_loss_weight * terms["box_iou_loss"]
        return {"loss": loss, **terms}

    def normalizer_of(self, num_positives: Any) -> Any:
        """Returns `n`, which divides sums of losses, for `P` of `count_positives`."""
        return _DIVISORS[self.normalizer](num_positives)


def count_positives(class_targets, box_targets, anchor_weights=None):
    """Returns `P` of `DetectionLoss`, a float32 scalar."""
    class_targets = as_tensor(class_targets, "int32")
    is_positive = _is_positive(class_targets, as_tensor(box_targets))
    return _total(ops.cast(is_positive, "float32"), anchor_weights)


def segmentation_loss(masks, segmentation_logits):
    """Computes the mean cross entropy of the pixels' classes for each image.

    An output pixel covers a square of the input, 4 x 4 pixels in the published models.
    Its class is that of the input pixel at the center of the square. Pixels of 255 are
    ignored. The loss is 0 for an image in which all pixels are ignored.

    google/automl instead takes the mean over all pixels of a batch.

    Args:
        masks: int tensor `[B, H, W]`, `0 .. K-1` or 255.
        segmentation_logits: float tensor `[B, h, w, K]`.

    Returns:
        Float32 tensor `[B]`.
    """
    logits = as_tensor(segmentation_logits)
    masks = ops.convert_to_tensor(masks)
    masks = ops.cast(take_grid(masks, tuple(logits.shape[1:3])), "int32")
    # `train/inputs.py` rejects a number that is neither a class nor 255.
    has_class = ops.logical_and(masks >= 0, masks < logits.shape[-1])
    classes = ops.where(has_class, masks, 0)
    entropy = ops.sparse_categorical_crossentropy(classes, logits, from_logits=True)
    # `where`, not a product: a loss that is not finite must show in pixels that count,
    # and must not show in ignored pixels.
    total = ops.sum(ops.where(has_class, entropy, 0.0), axis=(1, 2))
    count = ops.sum(ops.cast(has_class, "float32"), axis=(1, 2))
    return total / ops.maximum(count, 1.0)


def _total(losses, anchor_weights):
    """Returns the sum of losses `[B, N]` or `[B, N, 4]`, times the anchor weights."""
    if anchor_weights is None:
        return ops.sum(losses)
    weights = as_tensor(anchor_weights)
    if len(losses.shape) == 3:
        weights = ops.expand_dims(weights, -1)
    return ops.sum(losses * weights)


def _is_positive(class_targets, box_targets):
    # An ignored anchor may have a box: only its class is ignored.
    has_box = ops.any(box_targets != 0.0, axis=-1)
    return ops.logical_or(has_box, class_targets >= 0)
