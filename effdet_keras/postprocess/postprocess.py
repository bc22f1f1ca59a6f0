"""From raw network outputs to detections: top-k, decode, NMS, clip."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import keras
from keras import ops

from effdet_keras.errors import InvalidValueError
from effdet_keras.geometry.box_ops import area, decode_boxes
from effdet_keras.postprocess.nms import (
    check_nms_options,
    non_max_suppression,
    take_rows,
)

_BEST_PAIRS = 5000  # that are searched first where all pairs count


@keras.saving.register_keras_serializable(package="effdet_keras")
@dataclasses.dataclass(frozen=True)
class Postprocess:
    """Turns the network's outputs into at most `max_detections` boxes per image.

    The candidates are the `pre_nms_top_k` best (anchor, class) pairs of an
    image; with `pre_nms_top_k=0`, every anchor with its best class. Their
    boxes are decoded from their anchors, their score is the sigmoid of the
    logit, and `non_max_suppression` picks from them, inside each class or
    across all. It works in any batch form: eager, `tf.function` with a batch
    of unknown size, `jax.jit`, an exported model.

    The defaults are those with which the reference evaluates COCO, except that
    boxes are clipped to the network's input. `detect` and evaluation then clip them
    to the image, which ends where its padding begins.

    Args:
        max_detections: int, `D` below.
        score_threshold: float or `None`; see `non_max_suppression`.
        iou_threshold: float in `[0, 1]`, for `method="hard"`.
        method: `"gaussian"` (Soft-NMS) or `"hard"`.
        sigma: float above zero, for `method="gaussian"`.
        pre_nms_top_k: int. 0 takes one class for each anchor and all anchors,
            which is slower, and cannot find two classes in one place. None takes all
            pairs, as the TF Object Detection API does: where the best 5,000 do not
            give `max_detections` boxes, which is seldom, all are searched. Files other
            than SavedModels take the best 5,000. Across classes it is 0.
        max_per_class: int or None, how many boxes of one class may be picked; with a
            `window` those count that are dropped. Only in SavedModels and in Keras.
        per_class: bool. `False` lets a box suppress boxes of other classes.
        clip: bool. `True` clips the picked boxes to the network's input, after NMS.

    Call arguments:
        outputs: dict of `class_logits` `[B, N, C]` and `box_deltas`
            `[B, N, 4]`, floats.
        anchors: float tensor `[N, 4]`, `yxyx` in pixels.
        image_size: `(height, width)` of the network's input, in pixels.
        box_scales: four floats, the `scales` of `decode_boxes`.
        window: float tensor `[B, 4]`, `yxyx` in pixels of the input, or None: the part
            of the input that is the image. Picked boxes are clipped to it; those
            beside it suppress others, and then make place for the next ones.

    Returns:
        Dict, best detections first:

        - `boxes`: float32 `[B, D, 4]`, `yxyx` in pixels of the network's input
        - `scores`: float32 `[B, D]`, after suppression
        - `labels`: int32 `[B, D]`, `0 .. C-1`
        - `num_detections`: int32 `[B]`

        Rows from `num_detections` on are unused: zero box, score 0, label -1.

    Raises:
        ValueError: If an option or the shape of an argument is wrong.

    Example:
        >>> anchors = np.array([[0, 0, 8, 8], [8, 8, 16, 16]], "float32")
        >>> outputs = {"class_logits": ops.array([[[-9.0, 2.0], [1.0, -9.0]]]),
        ...            "box_deltas": ops.zeros((1, 2, 4))}
        >>> postprocess = Postprocess(max_detections=3, score_threshold=0.5)
        >>> result = postprocess(outputs, anchors, (16, 16))
        >>> ops.convert_to_numpy(result["labels"]).tolist()
        [[1, 0, -1]]
        >>> ops.convert_to_numpy(result["boxes"][0, 0]).tolist()
        [0.0, 0.0, 8.0, 8.0]
    """

    max_detections: int = 100
    score_threshold: float | None = None
    iou_threshold: float = 0.5
    method: Literal["gaussian", "hard"] = "gaussian"
    sigma: float = 0.5
    pre_nms_top_k: int | None = 5000
    per_class: bool = True
    clip: bool = True
    max_per_class: int | None = None

    def __post_init__(self) -> None:
        check_nms_options(
            self.max_detections, self.iou_threshold, self.method, self.sigma
        )
        if self.pre_nms_top_k is not None and self.pre_nms_top_k < 0:
            raise InvalidValueError(
                "`pre_nms_top_k` must be 0 (one class for each anchor) or more, or "
                f"None (all pairs). Received: {self.pre_nms_top_k}"
            )
        if self.max_per_class is not None and self.max_per_class < 1:
            raise InvalidValueError(
                "`max_per_class` must be at least 1, or None. "
                f"Received: {self.max_per_class}"
            )

    def __call__(
        self,
        outputs: dict[str, Any],
        anchors: Any,
        image_size: Sequence[int],
        box_scales: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
        window: Any = None,
    ) -> dict[str, Any]:
        found = self.with_anchors(outputs, anchors, image_size, box_scales, window)
        del found["anchor_indices"]
        return found

    def with_anchors(
        self,
        outputs: dict[str, Any],
        anchors: Any,
        image_size: Sequence[int],
        box_scales: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
        window: Any = None,
    ) -> dict[str, Any]:
        """What a call returns, and from which anchor each box comes.

        Args:
            outputs, anchors, image_size, box_scales, window: as of a call.

        Returns:
            Dict as of a call, and `anchor_indices`, int32 `[B, D]`, 0 in unused rows.

        Example:
            >>> anchors = np.array([[0, 0, 8, 8], [8, 8, 16, 16]], "float32")
            >>> outputs = {"class_logits": ops.array([[[-9.0], [1.0]]]),
            ...            "box_deltas": ops.zeros((1, 2, 4))}
            >>> found = Postprocess(max_detections=2).with_anchors(
            ...     outputs, anchors, (16, 16)
            ... )
            >>> ops.convert_to_numpy(found["anchor_indices"]).tolist()
            [[1, 0]]
        """
        class_logits = ops.cast(outputs["class_logits"], "float32")
        box_deltas = ops.cast(outputs["box_deltas"], "float32")
        anchors = ops.cast(anchors, "float32")
        _check_shapes(class_logits, box_deltas, anchors)
        height, width = image_size
        limits = (0.0, 0.0, float(height), float(width)) if window is None else window
        # Of one row for all images, or one for each; beside each box of an image.
        limits = ops.reshape(ops.cast(limits, "float32"), (-1, 1, 4))
        is_windowed = window is not None

        def best_pairs():
            logits, indices, labels = self._candidates(class_logits)
            deltas = take_rows(box_deltas, indices)
            boxes = decode_boxes(deltas, ops.take(anchors, indices, axis=0), box_scales)
            picked, scores, count = self._suppress(
                boxes,
                ops.sigmoid(logits),
                labels if self.per_class else None,
                limits if is_windowed else None,
            )
            boxes, labels, indices = (
                take_rows(values, picked) for values in (boxes, labels, indices)
            )
            return boxes, scores, labels, indices, count

        def all_pairs():
            boxes = decode_boxes(box_deltas, anchors, box_scales)
            picked, scores, count = self._suppress(
                boxes,
                ops.sigmoid(class_logits),
                None,
                limits if is_windowed else None,
            )
            num_classes = class_logits.shape[2]
            indices = picked // num_classes
            boxes = take_rows(boxes, indices)
            return boxes, scores, picked % num_classes, indices, count

        boxes, scores, labels, indices, num_detections = best_pairs()
        num_pairs = class_logits.shape[1] * class_logits.shape[2]
        if self.pre_nms_top_k is None and 0 < self.first_pairs < num_pairs:
            # Those beyond the best come behind them: only where these end too early.
            boxes, scores, labels, indices, num_detections = ops.cond(
                ops.all(num_detections == self.max_detections),
                lambda: (boxes, scores, labels, indices, num_detections),
                all_pairs,
            )
        if self.clip or is_windowed:
            boxes = _clipped(boxes, limits)
        place = ops.arange(self.max_detections, dtype="int32")[None]
        used = place < num_detections[:, None]  # [B, D]
        return {
            "boxes": ops.where(used[..., None], boxes, 0.0),
            "scores": scores,
            "labels": ops.where(used, labels, -1),
            "num_detections": num_detections,
            "anchor_indices": ops.where(used, indices, 0),
        }

    @property
    def first_pairs(self) -> int:
        """How many pairs of anchor and class are searched first.

        Example:
            >>> Postprocess(pre_nms_top_k=None).first_pairs
            5000
        """
        if self.pre_nms_top_k is not None:
            return self.pre_nms_top_k
        return _BEST_PAIRS if self.per_class else 0

    def _suppress(self, boxes, scores, labels, window):
        return non_max_suppression(
            boxes,
            scores,
            labels,
            max_detections=self.max_detections,
            score_threshold=self.score_threshold,
            iou_threshold=self.iou_threshold,
            method=self.method,
            sigma=self.sigma,
            max_per_class=self.max_per_class,
            is_kept=None if window is None else area(_clipped(boxes, window)) > 0.0,
        )

    def _candidates(self, class_logits):
        """The `K` candidates: logits, anchor indices and labels, all `[B, K]`."""
        num_anchors, num_classes = class_logits.shape[1:]
        if self.first_pairs == 0:
            labels = ops.cast(ops.argmax(class_logits, axis=-1), "int32")
            everyone = ops.arange(num_anchors, dtype="int32")[None]
            return (
                ops.max(class_logits, axis=-1),
                ops.zeros_like(labels) + everyone,
                labels,
            )
        # The k best pairs lie on the k anchors with the best classes, so the
        # search over all N * C pairs shrinks to k * C without losing any.
        num_anchors = min(self.first_pairs, num_anchors)
        best_class = ops.max(class_logits, axis=-1)
        _, anchor_indices = ops.top_k(best_class, num_anchors)  # [B, k]
        anchor_indices = ops.cast(anchor_indices, "int32")
        pairs = take_rows(class_logits, anchor_indices)
        pairs = ops.reshape(pairs, (-1, num_anchors * num_classes))
        num_pairs = min(self.first_pairs, num_anchors * num_classes)
        logits, pair_indices = ops.top_k(pairs, num_pairs)
        pair_indices = ops.cast(pair_indices, "int32")
        anchor_indices = take_rows(anchor_indices, pair_indices // num_classes)
        return logits, anchor_indices, pair_indices % num_classes

    def get_config(self) -> dict[str, Any]:
        """Returns the options as a dict, for Keras."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Postprocess:
        """Makes it from what `get_config` returned."""
        return cls(**config)


def _clipped(boxes, limits):
    """Boxes `[B, K, 4]` clipped to `yxyx` limits, `[B, 1, 4]` or `[1, 1, 4]`."""
    low = ops.tile(limits[..., :2], (1, 1, 2))
    high = ops.tile(limits[..., 2:], (1, 1, 2))
    return ops.minimum(ops.maximum(boxes, low), high)


def _check_shapes(class_logits, box_deltas, anchors):
    num_anchors = anchors.shape[0]
    if (
        len(class_logits.shape) != 3
        or tuple(anchors.shape[1:]) != (4,)
        or class_logits.shape[1] != num_anchors
        or tuple(box_deltas.shape[1:]) != (num_anchors, 4)
    ):
        raise InvalidValueError(
            "`Postprocess` expects `class_logits` [B, N, C], `box_deltas` [B, N, 4] "
            "and `anchors` [N, 4] of one N: anchors made for the same image size. "
            f"Received shapes: class_logits={tuple(class_logits.shape)}, "
            f"box_deltas={tuple(box_deltas.shape)}, anchors={tuple(anchors.shape)}"
        )
