"""From raw network outputs to detections: top-k, decode, NMS, clip."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from effdet_keras._internal.optional_imports import keras_ops as ops
from effdet_keras.errors import InvalidValueError
from effdet_keras.geometry.box_ops import area, clip_boxes, decode_boxes
from effdet_keras.postprocess.nms import (
    DEFAULT_SCORE_THRESHOLD,
    check_nms_options,
    non_max_suppression,
    take_rows,
)

_FIRST_TOP_K = 5000  # pairs that are looked at before all of them


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
            which is slower, and cannot find two classes in one place. `None` has no
            limit: where the best 5,000 pairs leave places free, all are candidates.
        per_class: bool. `False` lets a box suppress boxes of other classes.
        max_detections_per_class: int, or `None` for no limit; with `per_class=False`
            of all classes. Boxes that `drop_empty` leaves out count too.
        clip: bool. `True` clips the picked boxes to the network's input, after NMS.
        drop_empty: bool. `True` leaves out boxes of which nothing lies in the image,
            after NMS, so that the next best take their places.

    Call arguments:
        outputs: dict of `class_logits` `[B, N, C]` and `box_deltas`
            `[B, N, 4]`, floats.
        anchors: float tensor `[N, 4]`, `yxyx` in pixels.
        image_size: `(height, width)` of the network's input, in pixels.
        box_scales: four floats, the `scales` of `decode_boxes`.
        content_sizes: float tensor `[B, 2]`, height and width of each image inside the
            network's input, top left; `None` where it fills the input. Boxes are
            clipped to it, where they are clipped.

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
    max_detections_per_class: int | None = None
    drop_empty: bool = False

    def __post_init__(self) -> None:
        check_nms_options(
            self.max_detections, self.iou_threshold, self.method, self.sigma
        )
        limit = self.max_detections_per_class
        if limit is not None and limit < 1:
            raise InvalidValueError(
                "`max_detections_per_class` must be at least 1, or None. "
                f"Received: {limit}"
            )
        if self.pre_nms_top_k is not None and self.pre_nms_top_k < 0:
            raise InvalidValueError(
                "`pre_nms_top_k` must be 0 (one class for each anchor) or more, or "
                "None for all pairs of anchor and class. "
                f"Received: {self.pre_nms_top_k}"
            )

    def __call__(
        self,
        outputs: dict[str, Any],
        anchors: Any,
        image_size: Sequence[int],
        box_scales: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
        content_sizes: Any = None,
    ) -> dict[str, Any]:
        found = self.with_anchors(
            outputs, anchors, image_size, box_scales, content_sizes
        )
        return {n: value for n, value in found.items() if n != "anchor_indices"}

    def with_anchors(
        self,
        outputs: dict[str, Any],
        anchors: Any,
        image_size: Sequence[int],
        box_scales: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
        content_sizes: Any = None,
    ) -> dict[str, Any]:
        """What a call returns, and from which anchor each box comes.

        Args:
            outputs, anchors, image_size, box_scales, content_sizes: as of a call.

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

        window = image_size if content_sizes is None else content_sizes[:, None]

        def detections(top_k):
            candidates = self._candidates(class_logits, top_k)
            return self._picked(candidates, box_deltas, anchors, box_scales, window)

        if self.pre_nms_top_k is not None:
            return detections(self.pre_nms_top_k)[0]
        num_pairs = class_logits.shape[1] * class_logits.shape[2]
        if num_pairs <= _FIRST_TOP_K:
            return detections(num_pairs)[0]
        # The greedy search takes the best first. So whatever it takes of the best
        # pairs it takes of all, as long as none of the others is better.
        found, lowest = detections(_FIRST_TOP_K)
        is_full = found["num_detections"] == self.max_detections
        is_exact = ops.logical_or(
            ops.logical_and(is_full, found["scores"][:, -1] >= lowest),
            lowest <= self.lowest_score,
        )
        return ops.cond(
            ops.all(is_exact), lambda: found, lambda: detections(num_pairs)[0]
        )

    @property
    def lowest_score(self) -> float:
        """What a score must be above to be taken; see `score_threshold`."""
        if self.score_threshold is None:
            return DEFAULT_SCORE_THRESHOLD[self.method]
        return self.score_threshold

    def _picked(self, candidates, box_deltas, anchors, box_scales, window):
        """The dict of `__call__`, and the lowest score of the candidates, `[B]`."""
        logits, anchor_indices, labels = candidates
        candidate_scores = ops.sigmoid(logits)
        box_deltas = take_rows(box_deltas, anchor_indices)
        anchors = ops.take(anchors, anchor_indices, axis=0)
        boxes = decode_boxes(box_deltas, anchors, box_scales)
        is_returned = None
        if self.drop_empty:
            is_returned = area(clip_boxes(boxes, window)) > 0.0
        picked, scores, num_detections = non_max_suppression(
            boxes,
            candidate_scores,
            labels if self.per_class else None,
            max_detections=self.max_detections,
            score_threshold=self.score_threshold,
            iou_threshold=self.iou_threshold,
            method=self.method,
            sigma=self.sigma,
            max_per_class=self.max_detections_per_class,
            is_returned=is_returned,
        )
        boxes = take_rows(boxes, picked)
        if self.clip:
            boxes = clip_boxes(boxes, window)
        labels, anchor_indices = (
            take_rows(values, picked) for values in (labels, anchor_indices)
        )
        place = ops.arange(self.max_detections, dtype="int32")[None]
        used = place < num_detections[:, None]  # [B, D]
        detections = {
            "boxes": ops.where(used[..., None], boxes, 0.0),
            "scores": scores,
            "labels": ops.where(used, labels, -1),
            "num_detections": num_detections,
            "anchor_indices": ops.where(used, anchor_indices, 0),
        }
        return detections, candidate_scores[:, -1]

    def _candidates(self, class_logits, top_k):
        """The `K` candidates: logits, anchor indices and labels, all `[B, K]`."""
        num_anchors, num_classes = class_logits.shape[1:]
        if top_k == 0:
            labels = ops.cast(ops.argmax(class_logits, axis=-1), "int32")
            everyone = ops.arange(num_anchors, dtype="int32")[None]
            return (
                ops.max(class_logits, axis=-1),
                ops.zeros_like(labels) + everyone,
                labels,
            )
        # The k best pairs lie on the k anchors with the best classes, so the
        # search over all N * C pairs shrinks to k * C without losing any.
        num_anchors = min(top_k, num_anchors)
        best_class = ops.max(class_logits, axis=-1)
        _, anchor_indices = ops.top_k(best_class, num_anchors)  # [B, k]
        anchor_indices = ops.cast(anchor_indices, "int32")
        pairs = take_rows(class_logits, anchor_indices)
        pairs = ops.reshape(pairs, (-1, num_anchors * num_classes))
        num_pairs = min(top_k, num_anchors * num_classes)
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
