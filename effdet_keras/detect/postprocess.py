"""Turns raw network outputs into detections: top-k, decoding, NMS, clipping.

Tensors are processed in whole batches with `keras.ops`, also inside a graph. NumPy
arrays are processed image by image (`_array_candidates`, `_greedy`), which does not
need Keras and gives the same result in less time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from effdet_keras._internal.number_ranges import (
    check_number_fields,
    number,
    whole_number,
)
from effdet_keras._internal.optional_imports import keras_ops as ops
from effdet_keras._internal.plain_values import FieldSerializable
from effdet_keras._internal.resizing import resize_axis
from effdet_keras.box_ops import area, clip_boxes, decode_boxes
from effdet_keras.errors import check_choice, require
from effdet_keras.labels import BACKGROUND
from effdet_keras.network.anchors import stride_of
from effdet_keras.network.config import EfficientDetConfig

# The number of best pairs that are tried first. All pairs are tried only if these do
# not determine the result.
_FIRST_TOP_K = 5000  # for tensors, with `pre_nms_top_k=None`
_FIRST_OF_ARRAYS = 2000  # for NumPy arrays, whatever `pre_nms_top_k` is

# The threshold for `score_threshold=None`, as in the reference. Soft suppression only
# lowers scores and needs a threshold to end. Hard suppression keeps every score.
DEFAULT_SCORE_THRESHOLD = {"gaussian": 0.001, "hard": float("-inf")}
METHODS = tuple(DEFAULT_SCORE_THRESHOLD)
MIN_AREA = 1e-8  # square pixels: makes the IoU of two empty boxes 0 instead of NaN


@dataclasses.dataclass(frozen=True)
class Postprocess(FieldSerializable):
    """Turns the network's outputs into at most `max_detections` boxes per image.

    The candidates are the `pre_nms_top_k` best (anchor, class) pairs of an image. The
    score of a pair is the sigmoid of its logit. The defaults are those of the
    reference's evaluation on COCO, except that boxes are clipped to the network's
    input.

    Args:
        max_detections: int, the number of rows `D` of the result.
        score_threshold: float in `[0, 1]`. A detection's score must be above it.
            `-math.inf` means no threshold. `None` means 0.001 for `"gaussian"` and no
            threshold for `"hard"`.
        iou_threshold: float in `[0, 1]`, for `method="hard"`: a box suppresses boxes
            that have a higher IoU with it.
        method: `"gaussian"` (Soft-NMS) or `"hard"`.
        sigma: float above zero, for `method="gaussian"`.
        pre_nms_top_k: int, the number of candidates. 0 takes every anchor with its best
            class only. `None` sets no limit: if the best 5,000 pairs do not fill
            `max_detections`, all pairs are candidates.
        per_class: bool. `False` lets a box suppress boxes of other classes.
        max_detections_per_class: int, or `None` for no limit. With `per_class=False`
            it limits all classes together. Boxes that `drop_empty` removes count too.
        clip: bool. `True` clips the selected boxes to the network's input, or to
            `content_sizes`, after NMS.
        drop_empty: bool. `True` removes boxes that lie completely outside the image,
            after NMS. The next best boxes take their places.

    Call arguments:
        outputs: dict of `class_logits` `[B, N, C]` and `box_deltas` `[B, N, 4]`, float
            tensors or NumPy arrays. NumPy arrays give a result of NumPy arrays.
        anchors: float tensor `[N, 4]`, `yxyx` in pixels.
        image_size: `(height, width)` of the network's input, in pixels.
        box_scales: four floats, the `scales` of `decode_boxes`.
        content_sizes: float tensor `[B, 2]`, height and width in pixels of the area
            that each image covers in the network's input, from the top left corner.
            Boxes are clipped to it. `None` means that images fill the input.
        anchor_indices: bool. `True` adds `anchor_indices`, int32 `[B, D]`: the anchor
            that each box was decoded from, 0 in unused rows.

    Returns:
        Dict of the detections, in descending order of their scores:

        - `boxes`: float32 `[B, D, 4]`, `yxyx` in pixels of the network's input
        - `scores`: float32 `[B, D]`, after suppression
        - `labels`: int32 `[B, D]`, `0 .. C-1`
        - `num_detections`: int32 `[B]`

        Rows from `num_detections` on are unused: all-zero box, score 0, label -1.

    Raises:
        ValueError: If an option is out of its range, or the shapes of logits, box
            deltas and anchors do not fit together.

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

    max_detections: int = whole_number(100, "[1, inf)")
    score_threshold: float | None = number(None, "[0, 1]", others=(-math.inf,))
    iou_threshold: float = number(0.5, "[0, 1]")
    method: Literal["gaussian", "hard"] = "gaussian"
    sigma: float = number(0.5, "(0, inf)")
    pre_nms_top_k: int | None = whole_number(5000, "[0, inf)", others=(None,))
    per_class: bool = True
    clip: bool = True
    max_detections_per_class: int | None = whole_number(None, "[1, inf)")
    drop_empty: bool = False

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        check_number_fields(self)

    def __call__(
        self,
        outputs: dict[str, Any],
        anchors: Any,
        image_size: Sequence[int],
        box_scales: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
        content_sizes: Any = None,
        *,
        anchor_indices: bool = False,
    ) -> dict[str, Any]:
        xp, class_logits, box_deltas, anchors = _floats(outputs, anchors)
        whole = content_sizes is None
        if xp is ops:
            window = image_size if whole else content_sizes[:, None]
            found = self._detections_of_best_pairs(
                class_logits, box_deltas, anchors, box_scales, window
            )
        else:  # image by image, because the number of candidates differs
            images = [
                self._detections_of_best_pairs(
                    class_logits[i : i + 1],
                    box_deltas[i : i + 1],
                    anchors,
                    box_scales,
                    image_size if whole else content_sizes[i],
                )
                for i in range(len(class_logits))
            ]
            found = {n: np.concatenate([x[n] for x in images]) for n in images[0]}
        if not anchor_indices:
            del found["anchor_indices"]
        return found

    def _detections_of_best_pairs(
        self, class_logits, box_deltas, anchors, box_scales, window
    ):
        """Returns the result dict; tries the best pairs first, then all if needed."""

        def detections(top_k):
            candidates = self._candidates(class_logits, top_k)
            return self._suppressed(candidates, box_deltas, anchors, box_scales, window)

        xp, top_k = _library_of(class_logits), self.pre_nms_top_k
        num_pairs = class_logits.shape[1] * class_logits.shape[2]
        first = _FIRST_TOP_K if top_k is None else top_k
        first = min(first, _FIRST_OF_ARRAYS) if xp is np else first
        top_k = num_pairs if top_k is None else min(top_k, num_pairs)
        if top_k <= first:
            return detections(top_k)[0]
        # The greedy search takes the best pair first. So the best pairs alone give the
        # same detections as all pairs, unless another pair beats one of the detections.
        found, lowest = detections(first)
        is_full = found["num_detections"] == self.max_detections
        is_exact = xp.logical_or(
            xp.logical_and(is_full, found["scores"][:, -1] >= lowest),
            lowest <= self.lowest_score,
        )
        if xp is np:
            return found if is_exact.all() else detections(top_k)[0]
        return ops.cond(ops.all(is_exact), lambda: found, lambda: detections(top_k)[0])

    @property
    def lowest_score(self) -> float:
        """The score that a detection must exceed; see `score_threshold`."""
        if self.score_threshold is None:
            return DEFAULT_SCORE_THRESHOLD[self.method]
        return self.score_threshold

    def _suppressed(self, candidates, box_deltas, anchors, box_scales, window):
        """Returns the result dict, and the highest score of the other pairs, `[B]`."""
        logits, anchor_indices, labels, lowest = candidates
        xp = _library_of(logits)
        anchors = xp.take(anchors, anchor_indices, axis=0)
        boxes = decode_boxes(
            _take_rows(box_deltas, anchor_indices), anchors, box_scales
        )
        is_returned = None
        if self.drop_empty:
            is_returned = area(clip_boxes(boxes, window)) > 0.0
        picked, scores, num_detections = non_max_suppression(
            boxes,
            _sigmoid(logits),
            labels if self.per_class else xp.zeros_like(labels),
            max_detections=self.max_detections,
            score_threshold=self.lowest_score,
            iou_threshold=self.iou_threshold,
            method=self.method,
            sigma=self.sigma,
            max_per_class=self.max_detections_per_class,
            is_returned=is_returned,
        )
        boxes = _take_rows(boxes, picked)
        if self.clip:
            boxes = clip_boxes(boxes, window)
        labels, anchor_indices = (
            _take_rows(values, picked) for values in (labels, anchor_indices)
        )
        place = xp.arange(self.max_detections, dtype="int32")[None]
        used = place < num_detections[:, None]  # [B, D]
        detections = {
            "boxes": xp.where(used[..., None], boxes, 0.0),
            "scores": scores,
            "labels": xp.where(used, labels, BACKGROUND),
            "num_detections": num_detections,
            "anchor_indices": xp.where(used, anchor_indices, 0),
        }
        return detections, _sigmoid(lowest)

    def _candidates(self, class_logits, top_k):
        """Selects the best pairs of each image.

        Returns logits, anchor indices and labels `[B, K]`, best first, and a logit
        `[B]` that none of the pairs left out exceeds.
        """
        if isinstance(class_logits, np.ndarray):
            return _array_candidates(class_logits[0], top_k, self.lowest_score)
        num_anchors, num_classes = class_logits.shape[1:]
        if top_k == 0:
            labels = ops.cast(ops.argmax(class_logits, axis=-1), "int32")
            logits = ops.max(class_logits, axis=-1)
            everyone = ops.arange(num_anchors, dtype="int32")[None]
            return logits, ops.zeros_like(labels) + everyone, labels, logits[:, -1]
        # The k best pairs lie on the k anchors with the best classes, so the
        # search over all N * C pairs shrinks to k * C without losing any.
        num_anchors = min(top_k, num_anchors)
        best_class = ops.max(class_logits, axis=-1)
        _, anchor_indices = ops.top_k(best_class, num_anchors)  # [B, k]
        anchor_indices = ops.cast(anchor_indices, "int32")
        pairs = _take_rows(class_logits, anchor_indices)
        pairs = ops.reshape(pairs, (-1, num_anchors * num_classes))
        num_pairs = min(top_k, num_anchors * num_classes)
        logits, pair_indices = ops.top_k(pairs, num_pairs)
        pair_indices = ops.cast(pair_indices, "int32")
        anchor_indices = _take_rows(anchor_indices, pair_indices // num_classes)
        return logits, anchor_indices, pair_indices % num_classes, logits[:, -1]


def empty_detections(batch_size: Any, xp: Any = ops) -> dict[str, Any]:
    """Returns the result of `Postprocess` without any detection: `D` is 0."""
    return {
        "boxes": xp.zeros((batch_size, 0, 4), dtype="float32"),
        "scores": xp.zeros((batch_size, 0), dtype="float32"),
        "labels": xp.zeros((batch_size, 0), dtype="int32"),
        "num_detections": xp.zeros((batch_size,), dtype="int32"),
    }


def _library_of(values):
    return np if isinstance(values, np.ndarray) else ops


def _floats(outputs, anchors):
    """Returns NumPy or `keras.ops`, then checked float32 logits, deltas, anchors."""
    xp = _library_of(outputs["class_logits"])
    values = outputs["class_logits"], outputs["box_deltas"], anchors
    if xp is np:
        class_logits, box_deltas, anchors = (np.asarray(v, "float32") for v in values)
    else:
        class_logits, box_deltas, anchors = (ops.cast(v, "float32") for v in values)
    num_anchors = anchors.shape[0]
    require(
        len(class_logits.shape) == 3
        and tuple(anchors.shape[1:]) == (4,)
        and class_logits.shape[1] == num_anchors
        and tuple(box_deltas.shape[1:]) == (num_anchors, 4),
        "The anchors must be made for the image size that belongs to the outputs",
        class_logits=tuple(class_logits.shape),
        box_deltas=tuple(box_deltas.shape),
        anchors=tuple(anchors.shape),
    )
    return xp, class_logits, box_deltas, anchors


# --- Non-maximum suppression, hard and soft, as one greedy loop in `keras.ops`.


def non_max_suppression(
    boxes: Any,
    scores: Any,
    labels: Any,
    *,
    max_detections: int,
    score_threshold: float,
    iou_threshold: float,
    method: Literal["gaussian", "hard"],
    sigma: float,
    max_per_class: int | None = None,
    is_returned: Any = None,
) -> tuple[Any, Any, Any]:
    """Selects the best boxes of each image greedily, in descending order of scores.

    After a box is selected, the score of each remaining candidate changes. With `v`
    the IoU of the candidate with the selected box:

        method="hard":      the candidate is removed           if v > iou_threshold
        method="gaussian":  score = score * exp(-v^2 / sigma)

    `"gaussian"` is Soft-NMS (https://arxiv.org/abs/1704.04503, equation 4 there). A box
    suppresses only boxes of the same label. If scores are equal, the earlier box is
    selected first. A box with a score of NaN is never selected.

    Args:
        boxes: float tensor `[B, K, 4]`, `yxyx` in pixels; or a NumPy array
            `[1, K, 4]` of one image, and then the other arguments are arrays too.
        scores: float tensor `[B, K]`.
        labels: int tensor `[B, K]`.
        max_detections: int, `D` below.
        score_threshold: float, the score that a selected box must exceed.
        iou_threshold: float, for `method="hard"`.
        method: `"gaussian"` or `"hard"`.
        sigma: float above zero, for `method="gaussian"`.
        max_per_class: int, the most boxes to select per label, or `None`.
        is_returned: bool tensor `[B, K]`, or `None` for all. A box with `False` is
            selected and suppresses others, but is not among the detections.

    Returns:
        Indices into `K`, int32 `[B, D]`; scores after suppression, float32 `[B, D]`;
        and the number of detections, int32 `[B]`. Unused rows are 0.
    """
    if isinstance(boxes, np.ndarray):  # of a single image
        returned = None if is_returned is None else is_returned[0]
        image = boxes[0], scores[0], labels[0], returned
        options = method, iou_threshold, sigma, max_detections, max_per_class
        return tuple(x[None] for x in _greedy(*image, score_threshold, options))
    boxes = ops.cast(boxes, "float32")
    scores = ops.cast(scores, "float32")
    labels = ops.cast(labels, "int32")
    overlap = _overlap_with(boxes, labels)
    candidate = ops.arange(ops.shape(boxes)[1], dtype="int32")[None]  # [1, K]
    place = ops.arange(max_detections, dtype="int32")[None]  # [1, D]
    nothing = ops.zeros_like(scores[:, :1]) + ops.zeros((1, max_detections))  # [B, D]

    def alive(scores):
        """Sets scores that may not be selected to -inf."""
        return ops.where(scores > score_threshold, scores, float("-inf"))

    def unfinished(count, scores, *_):
        is_open = ops.logical_and(
            count < max_detections, ops.any(scores > score_threshold, axis=1)[:, None]
        )
        return ops.any(is_open)

    def take_one(count, scores, indices, kept_scores, rank):
        """Selects each image's best candidate; suppresses others in `scores`."""
        taken = ops.cast(ops.argmax(scores, axis=1), "int32")[:, None]  # [B, 1]
        best = ops.max(scores, axis=1, keepdims=True)
        is_found = best > score_threshold  # [B, 1]
        if is_returned is not None:
            is_found = ops.logical_and(is_found, _take_rows(is_returned, taken))
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
            is_of_class = labels == _take_rows(labels, taken)
            rank = rank + ops.cast(is_of_class, "int32")
            out = ops.logical_or(
                out, ops.logical_and(is_of_class, rank >= max_per_class)
            )
        scores = alive(ops.where(out, float("-inf"), scores))
        count = count + ops.cast(is_found, "int32")
        return count, scores, indices, kept_scores, rank

    zeros = ops.cast(nothing, "int32")
    start = (
        zeros[:, :1],  # the number of detections of each image
        alive(scores),
        zeros,
        # NaN marks an unused row, because a score may be any number.
        nothing + float("nan"),
        # For each candidate, the number of boxes of its class selected so far.
        zeros[:, :1] if max_per_class is None else ops.zeros_like(labels),
    )
    _, _, indices, kept_scores, _ = ops.while_loop(unfinished, take_one, start)
    used = ops.logical_not(ops.isnan(kept_scores))
    kept_scores = ops.where(used, kept_scores, 0.0)
    return indices, kept_scores, ops.sum(ops.cast(used, "int32"), axis=1)


def _overlap_with(boxes, labels):
    """Returns a function from box indices `[B, 1]` to the IoU of all boxes with them.

    The IoU is `[B, K]`, and 0 for boxes of another label.
    """
    y_min, x_min, y_max, x_max = (boxes[..., i] for i in range(4))  # [B, K]
    areas = ops.maximum(y_max - y_min, 0.0) * ops.maximum(x_max - x_min, 0.0)

    def overlap(taken):
        box = _take_rows(boxes, taken)  # [B, 1, 4]
        height = ops.minimum(y_max, box[..., 2]) - ops.maximum(y_min, box[..., 0])
        width = ops.minimum(x_max, box[..., 3]) - ops.maximum(x_min, box[..., 1])
        shared = ops.maximum(height, 0.0) * ops.maximum(width, 0.0)
        union = areas + _take_rows(areas, taken) - shared
        iou = shared / ops.maximum(union, MIN_AREA)
        return ops.where(labels == _take_rows(labels, taken), iou, 0.0)

    return overlap


def _take_rows(values, indices):
    """Gathers `values[b, indices[b, d]]`: `[B, K, ...]`, `[B, D]` -> `[B, D, ...]`."""
    # In TensorFlow, `take_along_axis` takes 40 times as long on rows (44 ms instead of
    # 1 ms for 5000 of 49104 rows of 90 logits).
    if isinstance(values, np.ndarray):
        return values[np.arange(len(values))[:, None], indices]
    batch, count = ops.shape(values)[:2]
    first = ops.arange(batch, dtype="int32")[:, None] * count
    flat = ops.reshape(values, (-1, *values.shape[2:]))
    return ops.take(flat, first + indices, axis=0)


# --- The same for the NumPy arrays of a single image.

_SAMPLE = 97  # every 97th logit is sampled: a prime number, so that no class is missed
_MARGIN = 1e-3  # logits lower than the threshold's logit by more are left out


def _array_candidates(logits, top_k, lowest_score):
    """Selects candidates of logits `[N, C]`, as `Postprocess._candidates` does.

    Pairs whose logit is too low for the score threshold are left out.
    """
    labels = None
    if top_k == 0:  # every anchor with its best class
        labels, logits = logits.argmax(axis=1), logits.max(axis=1, keepdims=True)
    limit = min(top_k or logits.size, logits.size)
    flat, lowest = logits.reshape(-1), _logit(lowest_score) - _MARGIN
    # One comparison of all logits with a bound, estimated from a sample of the logits,
    # replaces a search over all of them.
    sample, rank = flat[::_SAMPLE], int(1.25 * limit) // _SAMPLE + 4
    bound = lowest
    if rank < len(sample):
        bound = np.fmax(np.partition(sample, -rank)[-rank], np.float32(lowest))
    chosen = np.flatnonzero(flat >= bound)  # a NaN is never chosen
    if len(chosen) < limit and bound > lowest:
        bound, chosen = lowest, np.flatnonzero(flat >= lowest)
    is_cut = len(chosen) > limit or bound > lowest  # other pairs were left out
    if len(chosen) > limit:
        chosen = chosen[flat[chosen] >= np.partition(flat[chosen], -limit)[-limit]]
    if not len(chosen):
        chosen = np.zeros(1, int)  # one candidate, whose score is below the threshold
    anchor_indices, classes = np.divmod(chosen, logits.shape[1])
    values = flat[chosen]
    order = np.argsort(-values, kind="stable")
    if (values[order][1:] == values[order][:-1]).any():
        # The order of `_candidates`, which searches the best anchors, then the best
        # pairs: among equal pairs, the anchor with the higher best class comes first.
        rows, places = np.unique(anchor_indices, return_inverse=True)
        best = np.fmax.reduce(logits[rows], axis=1)[places]
        order = np.lexsort((classes, anchor_indices, -best, -values))
    order = order[:limit]
    anchor_indices = anchor_indices[order].astype("int32")
    labels = classes[order] if labels is None else labels[anchor_indices]
    values = values[order]
    return (
        values[None],
        anchor_indices[None],
        labels.astype("int32")[None],
        values[-1:] if is_cut else np.float32([-math.inf]),
    )


def _greedy(
    boxes, scores, labels, is_returned, threshold, options
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Computes `non_max_suppression` of one image's arrays, without the batch axis."""
    method, iou_threshold, sigma, max_detections, max_per_class = options
    scores = np.where(scores > threshold, scores, np.float32(-math.inf))
    y_min, x_min, y_max, x_max = np.ascontiguousarray(boxes.T)
    areas = np.maximum(y_max - y_min, 0) * np.maximum(x_max - x_min, 0)
    order = np.argsort(labels, kind="stable")
    numbers, starts = np.unique(labels[order], return_index=True)
    members_of = dict(zip(numbers.tolist(), np.split(order, starts[1:])))
    counts = dict.fromkeys(members_of, 0)
    picked, kept_scores = [], []
    while len(picked) < max_detections:
        taken = int(scores.argmax())
        best = scores[taken]
        if not best > threshold:
            break
        if is_returned is None or is_returned[taken]:
            picked.append(taken)
            kept_scores.append(best)
        label = int(labels[taken])
        members = members_of[label]
        counts[label] += 1
        if counts[label] == max_per_class:
            scores[members] = -math.inf
            continue
        height = np.minimum(y_max[members], y_max[taken])
        height -= np.maximum(y_min[members], y_min[taken])
        width = np.minimum(x_max[members], x_max[taken])
        width -= np.maximum(x_min[members], x_min[taken])
        shared = np.maximum(height, 0) * np.maximum(width, 0)
        union = areas[members] + areas[taken] - shared
        iou = shared / np.maximum(union, np.float32(MIN_AREA))
        left = scores[members]
        if method == "hard":
            left[iou > iou_threshold] = -math.inf
        else:
            left *= np.exp(np.square(iou) * np.float32(-1 / sigma))
            left[~(left > threshold)] = -math.inf
        scores[members] = left
        scores[taken] = -math.inf
    missing = (0, max_detections - len(picked))
    return (
        np.pad(np.array(picked, "int32"), missing),
        np.pad(np.array(kept_scores, "float32"), missing),
        np.array(len(picked), "int32"),
    )


def _sigmoid(logits):
    if not isinstance(logits, np.ndarray):
        return ops.sigmoid(logits)
    with np.errstate(over="ignore"):
        return np.float32(1) / (np.float32(1) + np.exp(-np.float32(logits)))


def _logit(score):
    """Returns the logit of a score; -inf for 0 or below, inf for 1 or above."""
    if score <= 0 or score >= 1:
        return -math.inf if score <= 0 else math.inf
    return math.log(score / (1 - score))


# --- From the logits of the segmentation head to the class of each pixel.


def class_map_of(
    segmentation_logits: Any,
    image_size: Sequence[int],
    argmax: Callable[..., Any] | None = None,
) -> Any:
    """Returns the class of each pixel of the network's input.

    Args:
        segmentation_logits: float tensor or NumPy array `[B, h, w, K]`. It is enlarged
            to the input by bilinear interpolation with half-pixel centers.
        image_size: `(height, width)` of the network's input, in pixels.
        argmax: function to use instead of `keras.ops.argmax`, for export targets that
            do not support the operations of `keras.ops.argmax`.

    Returns:
        uint8 tensor or array `[B, height, width]`.
    """
    if isinstance(segmentation_logits, np.ndarray):
        logits = np.asarray(segmentation_logits, "float32")
        for axis, length in enumerate(image_size, start=1):
            places = logits.shape[axis]
            size = np.float32([places, places * stride_of(length, places)])
            logits = resize_axis(logits, *size, axis, np.float32(0.5), count=length)
        return logits.argmax(axis=-1).astype("uint8")
    logits = ops.cast(segmentation_logits, "float32")
    places = logits.shape[1:3]
    strides = [stride_of(n, m) for n, m in zip(image_size, places)]
    # The last cells may reach beyond the border of the input, which is cut off below.
    size = tuple(m * s for m, s in zip(places, strides))
    if size != tuple(places):
        logits = ops.image.resize(
            logits, size, interpolation="bilinear", data_format="channels_last"
        )
    height, width = image_size
    logits = logits[:, :height, :width]
    return ops.cast((argmax or ops.argmax)(logits, axis=-1), "uint8")


# --- The results of all heads that a network has, in pixels of its input.


def postprocess_outputs(
    outputs: dict[str, Any],
    postprocess: Postprocess,
    anchors: Any,
    config: EfficientDetConfig,
    content_sizes: Any = None,
) -> dict[str, Any]:
    """Turns the outputs of all heads into detections and a class map.

    Args:
        outputs: dict of the network's outputs: `class_logits` and `box_deltas` with a
            detection head, `segmentation_logits` with a segmentation head.
        postprocess: `Postprocess`.
        anchors: float tensor `[N, 4]`, `yxyx` in pixels.
        config: `EfficientDetConfig` of the network.
        content_sizes: as for `Postprocess`.

    Returns:
        The dict of `Postprocess`, without detections (`D` is 0) if there is no
        detection head. With a segmentation head it also has `class_map`, uint8
        `[B, H, W]`.
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
        logits = outputs["segmentation_logits"]
        xp = _library_of(logits)
        found = empty_detections(xp.shape(logits)[0], xp)
    if config.has_segmentation:
        logits = outputs["segmentation_logits"]
        found["class_map"] = class_map_of(logits, config.image_size)
    return found
