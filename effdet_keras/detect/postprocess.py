"""From raw network outputs to detections: top-k, decode, NMS, clip."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

from effdet_keras._internal.optional_imports import keras_ops as ops
from effdet_keras.box_ops import area, clip_boxes, decode_boxes
from effdet_keras.errors import InvalidValueError
from effdet_keras.model.anchors import stride_of
from effdet_keras.model.config import EfficientDetConfig

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


# --- Non-maximum suppression, hard and soft, as one greedy loop in `keras.ops`.

METHODS = ("gaussian", "hard")

# What `score_threshold=None` means, as in the reference: soft suppression only
# lowers scores, so something must end it; hard suppression keeps every score.
DEFAULT_SCORE_THRESHOLD = {"gaussian": 0.001, "hard": float("-inf")}

MIN_AREA = 1e-8  # square pixels: the IoU of two empty boxes is 0, not NaN


def non_max_suppression(
    boxes: Any,
    scores: Any,
    labels: Any = None,
    *,
    max_detections: int = 100,
    score_threshold: float | None = None,
    iou_threshold: float = 0.5,
    method: Literal["gaussian", "hard"] = "gaussian",
    sigma: float = 0.5,
    max_per_class: int | None = None,
    is_returned: Any = None,
) -> tuple[Any, Any, Any]:
    """Picks the best boxes of each image, one after the other.

    The search is greedy: it takes the candidate with the highest score, then
    suppresses those that overlap it, until `max_detections` are taken or no score is
    above `score_threshold`. With `v` the IoU of a candidate with the box just taken,

        method="hard":      score = 0 (out)                    if v > iou_threshold
        method="gaussian":  score = score * exp(-v^2 / sigma)

    Gaussian is Soft-NMS (https://arxiv.org/abs/1704.04503, equation 4 there)
    and does not use `iou_threshold`; `"hard"` does not use `sigma`.

    With `labels`, a box suppresses only boxes of its own class. That equals one
    run for each class whose results are merged by score, in a single loop.

    Of equal scores, the earlier candidate is taken first. A score of NaN is
    never taken. All images run in one loop of at most `max_detections` steps,
    which ends early when every image is done.

    Args:
        boxes: float tensor `[B, K, 4]`, `yxyx` in any unit, not inverted.
        scores: float tensor `[B, K]`.
        labels: int tensor `[B, K]`, or `None` to suppress across classes.
        max_detections: int above zero, `D` below.
        score_threshold: float; a score must be above it to be taken. `None`:
            0.001 for `"gaussian"`, no threshold for `"hard"`.
        iou_threshold: float in `[0, 1]`.
        method: `"gaussian"` or `"hard"`.
        sigma: float above zero.
        max_per_class: int above zero, how many of one class are taken at most, and
            without `labels` of all; `None` for no limit. Those that are not returned
            count too.
        is_returned: bool tensor `[B, K]`, or `None` for all. Candidates for which it is
            False are taken and suppress others, but are not among the detections.

    Returns:
        `(indices, scores, num_detections)`: int32 `[B, D]` into `K`, best
        first, 0 in unused places; float32 `[B, D]`, after suppression, 0 in
        unused places; int32 `[B]`.

    Raises:
        ValueError: If an option is not one of those above.

    Example:
        Two boxes on one object, and one elsewhere:

        >>> boxes = ops.array([[[0., 0., 10., 10.], [0., 1., 10., 11.],
        ...                     [30., 30., 40., 40.]]])
        >>> scores = ops.array([[0.9, 0.8, 0.7]])
        >>> indices, scores, count = non_max_suppression(
        ...     boxes, scores, method="hard", max_detections=3)
        >>> ops.convert_to_numpy(indices).tolist(), int(count[0])
        ([[0, 2, 0]], 2)
    """
    check_nms_options(max_detections, iou_threshold, method, sigma)
    if score_threshold is None:
        score_threshold = DEFAULT_SCORE_THRESHOLD[method]
    boxes = ops.cast(boxes, "float32")
    scores = ops.cast(scores, "float32")
    overlap = _overlap_with(boxes, labels)
    candidate = ops.arange(ops.shape(boxes)[1], dtype="int32")[None]  # [1, K]
    place = ops.arange(max_detections, dtype="int32")[None]  # [1, D]
    groups = None
    if max_per_class is not None:
        groups = ops.zeros_like(boxes[..., 0]) if labels is None else labels
        groups = ops.cast(groups, "int32")
    nothing = ops.zeros_like(scores[:, :1]) + ops.zeros((1, max_detections))  # [B, D]

    def alive(scores):
        """Scores that may be taken; all others become -inf."""
        return ops.where(scores > score_threshold, scores, float("-inf"))

    def unfinished(count, scores, *_):
        is_open = ops.logical_and(
            count < max_detections, ops.any(scores > score_threshold, axis=1)[:, None]
        )
        return ops.any(is_open)

    def take_one(count, scores, indices, kept_scores, rank):
        taken = ops.cast(ops.argmax(scores, axis=1), "int32")[:, None]  # [B, 1]
        best = ops.max(scores, axis=1, keepdims=True)
        is_found = best > score_threshold  # [B, 1]
        if is_returned is not None:
            is_found = ops.logical_and(is_found, take_rows(is_returned, taken))
        found = ops.logical_and(place == count, is_found)  # [B, D]
        indices = ops.where(found, taken, indices)
        kept_scores = ops.where(found, best, kept_scores)
        iou = overlap(taken)
        if method == "hard":
            out = ops.logical_or(iou > iou_threshold, candidate == taken)
        else:
            scores = scores * ops.exp(ops.square(iou) * (-1.0 / sigma))
            out = candidate == taken
        if max_per_class is not None:
            is_of_class = groups == take_rows(groups, taken)
            rank = rank + ops.cast(is_of_class, "int32")
            out = ops.logical_or(
                out, ops.logical_and(is_of_class, rank >= max_per_class)
            )
        scores = alive(ops.where(out, float("-inf"), scores))
        count = count + ops.cast(is_found, "int32")
        return count, scores, indices, kept_scores, rank

    zeros = ops.cast(nothing, "int32")
    start = (
        zeros[:, :1],  # how many each image has
        alive(scores),
        zeros,
        # `nan` marks a place without a box: a score may be any number.
        nothing + float("nan"),
        # How many of its class were taken before each candidate.
        zeros[:, :1] if max_per_class is None else ops.zeros_like(groups),
    )
    _, _, indices, kept_scores, _ = ops.while_loop(unfinished, take_one, start)
    used = ops.logical_not(ops.isnan(kept_scores))
    kept_scores = ops.where(used, kept_scores, 0.0)
    return indices, kept_scores, ops.sum(ops.cast(used, "int32"), axis=1)


def _overlap_with(boxes, labels):
    """A function of taken candidates `[B, 1]`: the IoU of all with them, `[B, K]`.

    With labels, boxes of two classes do not overlap.
    """
    y_min, x_min, y_max, x_max = (boxes[..., i] for i in range(4))  # [B, K]
    areas = ops.maximum(y_max - y_min, 0.0) * ops.maximum(x_max - x_min, 0.0)
    if labels is not None:
        labels = ops.cast(labels, "int32")

    def overlap(taken):
        box = take_rows(boxes, taken)  # [B, 1, 4]
        height = ops.minimum(y_max, box[..., 2]) - ops.maximum(y_min, box[..., 0])
        width = ops.minimum(x_max, box[..., 3]) - ops.maximum(x_min, box[..., 1])
        shared = ops.maximum(height, 0.0) * ops.maximum(width, 0.0)
        union = areas + take_rows(areas, taken) - shared
        iou = shared / ops.maximum(union, MIN_AREA)
        if labels is None:
            return iou
        return ops.where(labels == take_rows(labels, taken), iou, 0.0)

    return overlap


def take_rows(values, indices):
    """Gathers `values[b, indices[b, d]]`: `[B, K, ...]`, `[B, D]` -> `[B, D, ...]`.

    The same as `take_along_axis`, which is 40 times slower on rows in
    TensorFlow (44 ms against 1 ms for 5000 of 49104 rows of 90 logits).
    """
    batch, count = ops.shape(values)[:2]
    first = ops.arange(batch, dtype="int32")[:, None] * count
    flat = ops.reshape(values, (-1, *values.shape[2:]))
    return ops.take(flat, first + indices, axis=0)


def check_nms_options(max_detections, iou_threshold, method, sigma):
    """Raises a `ValueError` that names the first option that cannot be used."""
    if method not in METHODS:
        raise InvalidValueError(
            f"`method` must be one of {METHODS}. Received: {method!r}"
        )
    if max_detections < 1:
        raise InvalidValueError(
            f"`max_detections` must be at least 1. Received: {max_detections}"
        )
    if not 0 <= iou_threshold <= 1:
        raise InvalidValueError(
            f"`iou_threshold` must be between 0 and 1. Received: {iou_threshold}"
        )
    if sigma <= 0:
        raise InvalidValueError(f"`sigma` must be above 0. Received: {sigma}")


# --- From the logits of the segmentation head to the class of each pixel.


def class_map_of(
    segmentation_logits: Any,
    image_size: Sequence[int],
    argmax: Callable[..., Any] | None = None,
) -> Any:
    """Finds the class of each pixel of the network's input.

    The logits are enlarged to the input, bilinear with half-pixel centers, and the
    highest one is the class.

    Args:
        segmentation_logits: float tensor `[B, h, w, K]`.
        image_size: `(height, width)` of the network's input, in pixels.
        argmax: function of a tensor and `axis`; None for that of Keras, which tells 0
            from -0, by operations that targets of exports do not have.

    Returns:
        uint8 tensor `[B, height, width]`.

    Example:
        >>> logits = ops.reshape(ops.array([0.0, 1.0, 4.0, 0.0]), (1, 1, 2, 2))
        >>> ops.convert_to_numpy(class_map_of(logits, (2, 4))).tolist()
        [[[1, 0, 0, 0], [1, 0, 0, 0]]]
    """
    logits = ops.cast(segmentation_logits, "float32")
    places = logits.shape[1:3]
    strides = [stride_of(n, m) for n, m in zip(image_size, places)]
    # The last places may reach over the border of the input.
    size = tuple(m * s for m, s in zip(places, strides))
    if size != tuple(places):
        logits = ops.image.resize(
            logits, size, interpolation="bilinear", data_format="channels_last"
        )
    height, width = image_size
    logits = logits[:, :height, :width]
    return ops.cast((argmax or ops.argmax)(logits, axis=-1), "uint8")


# --- What a network says of an image, of whatever heads it has, in pixels of the input.


def finished_outputs(
    outputs: dict[str, Any],
    postprocess: Postprocess,
    anchors: Any,
    config: EfficientDetConfig,
    content_sizes: Any = None,
) -> dict[str, Any]:
    """Turns raw outputs into detections and, of a segmentation head, a class map.

    Args:
        outputs: dict of raw outputs, as the network returns.
        postprocess: `Postprocess`.
        anchors: float tensor `[N, 4]`, `yxyx` in pixels of the input.
        config: `EfficientDetConfig` of the network.
        content_sizes: float tensor `[B, 2]`, see `Postprocess`; or None.

    Returns:
        Dict of tensors: what `Postprocess` returns, without rows where the network has
        no detection heads; `class_map` `[B, H, W]`, uint8, where it has a segmentation
        head.
    """
    if config.has_detection:
        found = postprocess(
            outputs,
            anchors,
            config.image_size,
            box_scales=config.box_scales,
            content_sizes=content_sizes,
        )
    else:
        found = nothing_found(ops.shape(outputs["segmentation_logits"])[0])
    if config.has_segmentation:
        logits = outputs["segmentation_logits"]
        found["class_map"] = class_map_of(logits, config.image_size)
    return found
