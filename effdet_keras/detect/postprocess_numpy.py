"""`finished_outputs` in NumPy: the same detections, without Keras, in less time.

What `Postprocess` computes as a graph is computed here for arrays. The greedy search
takes the best pairs of anchor and class first, so it looks at the best
`_FIRST_CANDIDATES` before all: whatever it takes of them it takes of all, as long as
nothing that it takes is worse than the best pair outside. They are found by comparing
all logits with a bound that a sample of them gives, which takes one pass over memory.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from effdet_keras._internal.label_constants import BACKGROUND
from effdet_keras.box_ops import area, clip_boxes, decode_boxes
from effdet_keras.detect.postprocess import MIN_AREA, Postprocess
from effdet_keras.model.anchors import stride_of
from effdet_keras.model.config import EfficientDetConfig

_FIRST_CANDIDATES = 2000  # pairs that are looked at first
_SAMPLE = 97  # one logit of so many: a prime, so that no class is missed
_MARGIN = 1e-3  # of a logit below which no score is above the threshold


def finished_arrays(
    outputs: dict[str, np.ndarray],
    postprocess: Postprocess,
    anchors: np.ndarray,
    config: EfficientDetConfig,
    content_sizes: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Turns raw outputs into detections and, of a segmentation head, a class map.

    Args:
        outputs, postprocess, anchors, config, content_sizes: as of `finished_outputs`,
            arrays in the place of tensors.

    Returns:
        Dict of arrays, as `finished_outputs` returns.

    Example:
        >>> from effdet_keras.model.anchors import anchors_of
        >>> config = EfficientDetConfig(image_size=(64, 64), max_level=6, num_classes=2)
        >>> anchors = anchors_of(config)
        >>> logits = np.full((1, len(anchors), 2), -9.0, "float32")
        >>> logits[0, 5, 1] = 0.0
        >>> outputs = {"class_logits": logits,
        ...            "box_deltas": np.zeros((1, len(anchors), 4), "float32")}
        >>> found = finished_arrays(outputs, Postprocess(), anchors, config)
        >>> found["num_detections"].tolist(), found["labels"][0, :2].tolist()
        ([1], [1, -1])
    """
    if config.has_detection:
        window = np.asarray(config.image_size, "float32")
        class_logits, box_deltas = outputs["class_logits"], outputs["box_deltas"]
        found = _stacked(
            [
                _Image(
                    postprocess,
                    np.asarray(logits, "float32"),
                    np.asarray(deltas, "float32"),
                    anchors,
                    config.box_scales,
                    window if content_sizes is None else content_sizes[index],
                ).detections()
                for index, (logits, deltas) in enumerate(zip(class_logits, box_deltas))
            ]
        )
    else:
        found = nothing_found_in_numpy(len(outputs["segmentation_logits"]))
    if config.has_segmentation:
        logits = outputs["segmentation_logits"]
        found["class_map"] = class_map_in_numpy(logits, config.image_size)
    return found


def nothing_found_in_numpy(batch_size: int) -> dict[str, np.ndarray]:
    """`nothing_found` as arrays.

    Example:
        >>> nothing_found_in_numpy(2)["boxes"].shape
        (2, 0, 4)
    """
    return _stacked([_rows(0)] * batch_size)


def class_map_in_numpy(
    segmentation_logits: np.ndarray, image_size: Sequence[int]
) -> np.ndarray:
    """`class_map_of` of an array.

    Args:
        segmentation_logits: float array `[B, h, w, K]`.
        image_size: `(height, width)` of the network's input, in pixels.

    Returns:
        uint8 array `[B, height, width]`.

    Example:
        >>> logits = np.float32([0, 1, 4, 0]).reshape(1, 1, 2, 2)
        >>> class_map_in_numpy(logits, (2, 4)).tolist()
        [[[1, 0, 0, 0], [1, 0, 0, 0]]]
    """
    logits = np.asarray(segmentation_logits, "float32")
    for axis, length in enumerate(image_size, start=1):
        logits = _enlarged(logits, length, axis)
    return logits.argmax(axis=-1).astype("uint8")


def _enlarged(values, length, axis):
    """Bilinear, with half-pixel centers, along one axis, cut to `length`."""
    places = values.shape[axis]
    stride = stride_of(length, places)
    if stride == 1:
        return values
    place = (np.arange(length, dtype="float32") + np.float32(0.5)) / stride - 0.5
    place = np.clip(place, 0, places - 1)
    low = place.astype("int32")
    high = np.minimum(low + 1, places - 1)
    shape = [1] * values.ndim
    shape[axis] = length
    weight = (place - low).astype("float32").reshape(shape)
    first, second = values.take(low, axis), values.take(high, axis)
    return first + (second - first) * weight


@dataclasses.dataclass
class _Candidates:
    """Pairs of anchor and class of one image, the best first."""

    logits: np.ndarray  # [K]
    anchor_indices: np.ndarray  # [K]
    labels: np.ndarray  # [K]
    bound: float  # no other pair has a logit above it; -inf where there is no other


@dataclasses.dataclass
class _Image:
    """What one image's detections are computed from."""

    options: Postprocess
    logits: np.ndarray  # [N, C]
    deltas: np.ndarray  # [N, 4]
    anchors: np.ndarray  # [N, 4]
    box_scales: Sequence[float]
    window: np.ndarray  # [2]

    def __post_init__(self):
        self.labels = None
        if self.options.pre_nms_top_k == 0:  # every anchor with its best class
            self.labels = self.logits.argmax(axis=1)
            self.logits = self.logits.max(axis=1, keepdims=True)
        limit = self.options.pre_nms_top_k or self.logits.size
        self.limit = min(limit, self.logits.size)
        self.lowest = _logit(self.options.lowest_score) - _MARGIN

    def detections(self):
        """Dict of arrays of `D` rows."""
        first = self._first_candidates()
        if first is not None:
            rows, is_exact = self._picked(first)
            if is_exact:
                return rows
        return self._picked(self._all_candidates())[0]

    def _first_candidates(self):
        """The best pairs, not many; None where a bound does not find them."""
        wanted = min(_FIRST_CANDIDATES, self.limit)
        chosen, bound = self._above_bound(wanted)
        if chosen is None or len(chosen) > min(8 * wanted, self.limit):
            return None
        return self._candidates(chosen, bound)

    def _above_bound(self, wanted):
        """About as many pairs as are wanted, and no other has a logit above `bound`."""
        flat = self.logits.reshape(-1)
        sample = flat[::_SAMPLE]
        rank = -(-wanted // _SAMPLE)
        if rank >= len(sample):
            return None, -math.inf
        bound = max(np.partition(sample, -rank)[-rank], np.float32(self.lowest))
        chosen = np.flatnonzero(flat >= bound)  # a NaN is never chosen
        # At the lowest of all bounds no other pair can be taken.
        return chosen, -math.inf if bound <= self.lowest else bound

    def _all_candidates(self):
        """All pairs that may be taken, as many as the options allow, the best first."""
        chosen, bound = self._above_bound(int(1.25 * self.limit) + 3 * _SAMPLE)
        if chosen is None or len(chosen) > 2 * self.limit:
            return self._searched_candidates()
        if len(chosen) < self.limit and bound > -math.inf:
            return self._searched_candidates()
        return self._candidates(chosen, -math.inf, self.limit)

    def _searched_candidates(self):
        """The same by two searches, which no number of equal logits makes slow."""
        num_classes = self.logits.shape[1]
        # The k best pairs lie on the k anchors with the best classes.
        rows = _first_of(np.fmax.reduce(self.logits, axis=1), self.limit, self.lowest)
        pairs = self.logits[rows].reshape(-1)
        chosen = _first_of(pairs, self.limit, self.lowest)
        places, labels = np.divmod(chosen, num_classes)
        return self._candidates(rows[places] * num_classes + labels, -math.inf)

    def _candidates(self, chosen, bound, limit=None):
        """The first pairs of these numbers, in the order in which equal ones are taken.

        That is the order of two searches, for the best anchors and for the best pairs:
        of equal pairs first those of the anchor with the better best class.
        """
        anchor_indices, labels = np.divmod(chosen, self.logits.shape[1])
        logits = self.logits[anchor_indices, labels]
        order = np.argsort(-logits, kind="stable")
        if (logits[order][1:] == logits[order][:-1]).any():  # infinite ones too
            rows, places = np.unique(anchor_indices, return_inverse=True)
            best = np.fmax.reduce(self.logits[rows], axis=1)[places]
            order = np.lexsort((labels, anchor_indices, -best, -logits))
            if self.labels is not None:  # all anchors: in the order of the grid
                order = np.lexsort((anchor_indices, -logits))
        order = order[:limit]
        anchor_indices, labels = anchor_indices[order], labels[order]
        if self.labels is not None:
            labels = self.labels[anchor_indices]
        return _Candidates(logits[order], anchor_indices, labels, bound)

    def _picked(self, candidates):
        """Rows, and whether other candidates could not change them."""
        boxes = decode_boxes(
            self.deltas[candidates.anchor_indices],
            self.anchors[candidates.anchor_indices],
            self.box_scales,
        )
        scores = _sigmoid(candidates.logits)
        is_returned = None
        if self.options.drop_empty:
            is_returned = area(clip_boxes(boxes, self.window)) > 0
        picked, kept_scores = _greedy(
            self.options, boxes, scores, candidates.labels, is_returned
        )
        count = len(picked)
        rows = _rows(self.options.max_detections)
        boxes = boxes[picked]
        if self.options.clip:
            boxes = clip_boxes(boxes, self.window)
        rows["boxes"][:count], rows["scores"][:count] = boxes, kept_scores
        rows["labels"][:count] = candidates.labels[picked]
        rows["num_detections"][()] = count
        is_full = count == self.options.max_detections
        is_better = is_full and kept_scores[-1] >= _sigmoid(candidates.bound)
        return rows, is_better or candidates.bound == -math.inf


def _greedy(options, boxes, scores, labels, is_returned):
    """Takes the best candidates, as `non_max_suppression` does, for one image.

    Returns:
        `(indices, scores)`: lists, of the candidates that were taken.
    """
    threshold = options.lowest_score
    scores = np.where(scores > threshold, scores, np.float32(-math.inf))
    y_min, x_min, y_max, x_max = np.ascontiguousarray(boxes.T)
    areas = np.maximum(y_max - y_min, 0) * np.maximum(x_max - x_min, 0)
    groups = _members(labels if options.per_class else np.zeros_like(labels))
    taken_of_group, picked, kept_scores = {}, [], []
    while len(picked) < options.max_detections and len(scores):
        taken = int(scores.argmax())
        best = scores[taken]
        if not best > threshold:
            break
        if is_returned is None or is_returned[taken]:
            picked.append(taken)
            kept_scores.append(best)
        group = int(labels[taken]) if options.per_class else 0
        members = groups[group]
        taken_of_group[group] = taken_of_group.get(group, 0) + 1
        if taken_of_group[group] == options.max_detections_per_class:
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
        if options.method == "hard":
            left[iou > options.iou_threshold] = -math.inf
        else:
            left *= np.exp(np.square(iou) * np.float32(-1 / options.sigma))
            left[~(left > threshold)] = -math.inf
        scores[members] = left
        scores[taken] = -math.inf
    return picked, kept_scores


def _members(groups):
    """The candidates of each group, in their order: dict of number to array."""
    order = np.argsort(groups, kind="stable")
    numbers, starts = np.unique(groups[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(order, starts[1:])))


def _first_of(values, limit, lowest):
    """Where the `limit` highest values are, the first of equal ones, sorted."""
    alive = np.flatnonzero(values >= lowest)
    if len(alive) > limit:
        last = np.partition(values[alive], -limit)[-limit]
        above = alive[values[alive] > last]
        equal = alive[values[alive] == last]
        alive = np.concatenate([above, equal[: limit - len(above)]])
    return alive[np.argsort(-values[alive], kind="stable")]


def _rows(count):
    """`count` unused rows of one image."""
    return {
        "boxes": np.zeros((count, 4), "float32"),
        "scores": np.zeros(count, "float32"),
        "labels": np.full(count, BACKGROUND, "int32"),
        "num_detections": np.zeros((), "int32"),
    }


def _stacked(images: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    return {n: np.stack([rows[n] for rows in images]) for n in images[0]}


def _sigmoid(logits):
    with np.errstate(over="ignore"):
        return np.float32(1) / (np.float32(1) + np.exp(-np.float32(logits)))


def _logit(score):
    """The logit of a score; infinite where no logit has it."""
    if score <= 0 or score >= 1:
        return -math.inf if score <= 0 else math.inf
    return math.log(score / (1 - score))
