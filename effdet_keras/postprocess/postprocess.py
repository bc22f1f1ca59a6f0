"""From raw network outputs to detections: top-k, decode, NMS, clip."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import keras
from keras import ops

from effdet_keras.errors import InvalidValueError
from effdet_keras.geometry.box_ops import clip_boxes, decode_boxes
from effdet_keras.postprocess.nms import (
    check_nms_options,
    non_max_suppression,
    take_rows,
)


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
            which is slower, and cannot find two classes in one place.
        per_class: bool. `False` lets a box suppress boxes of other classes.
        clip: bool. `True` clips the picked boxes to the network's input, after NMS.

    Call arguments:
        outputs: dict of `class_logits` `[B, N, C]` and `box_deltas`
            `[B, N, 4]`, floats.
        anchors: float tensor `[N, 4]`, `yxyx` in pixels.
        image_size: `(height, width)` of the network's input, in pixels.

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
    pre_nms_top_k: int = 5000
    per_class: bool = True
    clip: bool = True

    def __post_init__(self) -> None:
        check_nms_options(
            self.max_detections, self.iou_threshold, self.method, self.sigma
        )
        if self.pre_nms_top_k < 0:
            raise InvalidValueError(
                "`pre_nms_top_k` must be 0 (one class for each anchor) or more. "
                f"Received: {self.pre_nms_top_k}"
            )

    def __call__(
        self, outputs: dict[str, Any], anchors: Any, image_size: Sequence[int]
    ) -> dict[str, Any]:
        class_logits = ops.cast(outputs["class_logits"], "float32")
        box_deltas = ops.cast(outputs["box_deltas"], "float32")
        anchors = ops.cast(anchors, "float32")
        _check_shapes(class_logits, box_deltas, anchors)

        logits, anchor_indices, labels = self._candidates(class_logits)
        box_deltas = take_rows(box_deltas, anchor_indices)
        boxes = decode_boxes(box_deltas, ops.take(anchors, anchor_indices, axis=0))
        picked, scores, num_detections = non_max_suppression(
            boxes,
            ops.sigmoid(logits),
            labels if self.per_class else None,
            max_detections=self.max_detections,
            score_threshold=self.score_threshold,
            iou_threshold=self.iou_threshold,
            method=self.method,
            sigma=self.sigma,
        )
        boxes = take_rows(boxes, picked)
        if self.clip:
            boxes = clip_boxes(boxes, image_size)
        labels = take_rows(labels, picked)
        place = ops.arange(self.max_detections, dtype="int32")[None]
        used = place < num_detections[:, None]  # [B, D]
        return {
            "boxes": ops.where(used[..., None], boxes, 0.0),
            "scores": scores,
            "labels": ops.where(used, labels, -1),
            "num_detections": num_detections,
        }

    def _candidates(self, class_logits):
        """The `K` candidates: logits, anchor indices and labels, all `[B, K]`."""
        num_anchors, num_classes = class_logits.shape[1:]
        if self.pre_nms_top_k == 0:
            labels = ops.cast(ops.argmax(class_logits, axis=-1), "int32")
            everyone = ops.arange(num_anchors, dtype="int32")[None]
            return (
                ops.max(class_logits, axis=-1),
                ops.zeros_like(labels) + everyone,
                labels,
            )
        # The k best pairs lie on the k anchors with the best classes, so the
        # search over all N * C pairs shrinks to k * C without losing any.
        num_anchors = min(self.pre_nms_top_k, num_anchors)
        best_class = ops.max(class_logits, axis=-1)
        _, anchor_indices = ops.top_k(best_class, num_anchors)  # [B, k]
        anchor_indices = ops.cast(anchor_indices, "int32")
        pairs = take_rows(class_logits, anchor_indices)
        pairs = ops.reshape(pairs, (-1, num_anchors * num_classes))
        num_pairs = min(self.pre_nms_top_k, num_anchors * num_classes)
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


def nothing_found(batch_size: Any) -> dict[str, Any]:
    """What `Postprocess` returns of a network that detects nothing: no rows.

    Args:
        batch_size: int, or int scalar tensor.

    Returns:
        Dict of tensors, as `Postprocess` returns, with `D` of 0.

    Example:
        >>> {name: tuple(x.shape) for name, x in nothing_found(2).items()}
        {'boxes': (2, 0, 4), 'scores': (2, 0), 'labels': (2, 0), 'num_detections': (2,)}
    """
    return {
        "boxes": ops.zeros((batch_size, 0, 4)),
        "scores": ops.zeros((batch_size, 0)),
        "labels": ops.zeros((batch_size, 0), dtype="int32"),
        "num_detections": ops.zeros((batch_size,), dtype="int32"),
    }


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
