"""Detection in images much larger than the network's input, tile by tile."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence

import numpy as np

from effdet_keras._internal.number_ranges import NumberRange
from effdet_keras.box_ops import pairwise_iou
from effdet_keras.detect.detect import DetectFunction, Image, load_rgb
from effdet_keras.detect.detections import Detections
from effdet_keras.errors import check_argument, require
from effdet_keras.letterbox import boxes_in_image

_SEAM = 0.02  # fraction of a tile's side: a box this close to a seam may be cut by it


def tile_grid(
    size: Sequence[int], tile_size: int | Sequence[int], overlap: float = 0.2
) -> np.ndarray:
    """Returns tiles of equal size that cover an image.

    There are as few tiles as the overlap allows, evenly spaced. All tiles have the same
    size, and none extends beyond the image.

    Args:
        size: ints `(height, width)`, size of the image in pixels.
        tile_size: int, or `(height, width)`, in pixels. A side longer than the image's
            becomes the image's.
        overlap: float, at least 0 and below 1, the smallest fraction of a side that
            neighbors share.

    Returns:
        Int array `[n, 4]`, `yxyx` in pixels, from the top left, row by row.

    Raises:
        ValueError: If a size is below 1, or `overlap` is out of its range.

    Example:
        >>> tile_grid((100, 250), 100, overlap=0.2).tolist()
        [[0, 0, 100, 100], [0, 75, 100, 175], [0, 150, 100, 250]]
    """
    expected = "0 or more and below 1, a share of a tile's side"
    is_share = NumberRange("[0, 1)").contains(overlap)
    check_argument(is_share, "overlap", overlap, expected)
    sides = np.minimum(_pair(tile_size, "tile_size"), _pair(size, "size"))
    tops, lefts = (_starts(n, side, overlap) for n, side in zip(size, sides))
    corners = np.stack(np.meshgrid(tops, lefts, indexing="ij"), axis=-1).reshape(-1, 2)
    return np.concatenate([corners, corners + sides], axis=1)


def detect_tiled(
    detect: DetectFunction,
    image: Image,
    *,
    tile_size: int | Sequence[int],
    overlap: float = 0.2,
    include_whole: bool = True,
    iou_threshold: float = 0.6,
) -> Detections:
    """Detects objects in an image that is much larger than the network's input.

    `detect` receives overlapping tiles as separate images. The detections of all views
    are then merged:

    - Two views have found the same object if their boxes agree: an IoU of
      `iou_threshold` within the region that both views show. So a box for a part of an
      object is matched to the box on the other side of a seam, although their IoU in
      the whole image may be small.
    - Boxes that no seam cuts are taken first, in descending order of score. Each one
      replaces the boxes that agree with it.
    - Parts that no whole box replaces are joined: an object longer than the overlap, of
      which each tile shows a part, gets the box around its parts.
    - The score is the best of the merged scores.
    - Boxes of the same view are never merged: `detect` has already selected them.

    Args:
        detect: function of a list of arrays `[H, W, 3]` that returns a list of
            `Detections`, such as `model.detect`.
        image: path or array, as in `EfficientDet.detect`.
        tile_size: int or `(height, width)`, in pixels. At the network's input size, a
            tile is not resized; smaller tiles are enlarged.
        overlap: float, at least 0 and below 1, the smallest fraction of a side that
            tiles share. It should be longer than the small objects, so that one tile
            shows each of them completely.
        include_whole: bool, whether to detect in the whole image, too.
        iou_threshold: float in `(0, 1]`.

    Returns:
        `Detections` of the whole image, in descending order of score, with boxes
        clipped to it. There may be more than `max_detections`, which limits each tile.

    Raises:
        ValueError: If an argument is not as described above.

    Example:
        A detector that finds each white spot:

        >>> from effdet_keras.detect.detections import Detections
        >>> def detect(images):
        ...     spots = [np.argwhere(image[..., 0] > 0) for image in images]
        ...     return [Detections(np.concatenate([spot, spot + 1], axis=1),
        ...             np.full(len(spot), 0.9), np.zeros(len(spot))) for spot in spots]
        >>> image = np.zeros((100, 300, 3), "uint8")
        >>> image[40, [55, 290]] = 255
        >>> detect_tiled(detect, image, tile_size=64)
        2 detections: 2 0
          0  0.90  y 40.0 to 41.0, x 55.0 to 56.0
          0  0.90  y 40.0 to 41.0, x 290.0 to 291.0
    """
    pixels = load_rgb(image)
    size = pixels.shape[:2]
    views = tile_grid(size, tile_size, overlap)
    if include_whole and len(views) > 1:
        views = np.concatenate([[[0, 0, *size]], views])
    images = [pixels[top:bottom, left:right] for top, left, bottom, right in views]
    merged = merge_views(detect(images), views, size, iou_threshold)
    is_path = isinstance(image, (str, os.PathLike))
    return dataclasses.replace(merged, image=image if is_path else pixels)


def merge_views(detections, views, size, iou_threshold=0.6):
    """Merges the detections in views `[n, 4]` of an image into one list."""
    is_iou = 0 < iou_threshold <= 1
    check_argument(is_iou, "iou_threshold", iou_threshold, "above 0, and at most 1")
    boxes, scores, labels = concat_detections(detections)
    views = np.repeat(views, [len(part) for part in detections], axis=0)
    boxes = boxes + views[:, [0, 1, 0, 1]]
    groups = _Groups(boxes, labels, views, iou_threshold)
    is_cut = _is_cut(boxes, views, size)
    merged = []
    for i in np.lexsort((-scores, is_cut)):
        if not groups.is_free[i]:
            continue
        if is_cut[i]:
            members = groups.take_chain(i)
            box = [*boxes[members, :2].min(axis=0), *boxes[members, 2:].max(axis=0)]
        else:
            members = groups.take(i)
            box = boxes[i]
        merged.append([*box, scores[members].max(), labels[i]])
    merged = np.array(merged, "float64").reshape(-1, 6)
    merged = merged[np.argsort(-merged[:, 4], kind="stable")]
    return dataclasses.replace(
        detections[0],
        boxes=boxes_in_image(merged[:, :4], 1.0, size),
        scores=merged[:, 4],
        labels=merged[:, 5],
    )


class _Groups:
    """Groups of boxes, each from one view, that show the same object."""

    def __init__(self, boxes, labels, views, iou_threshold):
        self.boxes, self.labels, self.views = boxes, labels, views
        self.iou_threshold = iou_threshold
        self.is_free = np.ones(len(boxes), bool)

    def take(self, i):
        """Returns the indices of box `i` and of free boxes that agree; uses them up."""
        self.is_free[i] = False
        others = np.flatnonzero(self.is_free & (self.labels == self.labels[i]))
        others = others[(self.views[others] != self.views[i]).any(axis=1)]
        others = others[self._agreement(i, others) >= self.iou_threshold]
        self.is_free[others] = False
        return np.array([i, *others])

    def take_chain(self, i):
        """Does the same as `take`, and repeats it for the boxes found so far."""
        members = [i]
        for member in members:  # the list grows meanwhile
            members.extend(self.take(member)[1:])
        return np.array(members)

    def _agreement(self, i, others):
        """Returns the IoU with box `i` within the region that both views show."""
        low = np.maximum(self.views[i, :2], self.views[others, :2])
        high = np.minimum(self.views[i, 2:], self.views[others, 2:])
        # For disjoint views, `low` is above `high`, and clipping leaves empty boxes.
        box, boxes = (
            np.clip(b, np.tile(low, 2), np.tile(high, 2))
            for b in (self.boxes[i], self.boxes[others])
        )
        return pairwise_iou(box[:, None], boxes[:, None])[:, 0, 0]


def _is_cut(boxes, views, size):
    """Returns whether boxes end at a border of their view that is not the image's."""
    height, width = size
    margin = _SEAM * (views[:, 2:] - views[:, :2])
    low = (views[:, :2] > 0) & (boxes[:, :2] <= views[:, :2] + margin)
    high = (views[:, 2:] < (height, width)) & (boxes[:, 2:] >= views[:, 2:] - margin)
    return (low | high).any(axis=1)


def _starts(length, side, overlap):
    """Returns the starts of tiles of length `side` that cover `length`."""
    step = max(1, side - math.ceil(overlap * side))
    count = 1 + math.ceil((length - side) / step)
    return np.linspace(0, length - side, count).round().astype(int)


def _pair(size, name):
    sides = np.atleast_1d(size)
    expected = "a whole number of pixels above 0, or two: (height, width)"
    is_right = sides.dtype.kind == "i" and (sides >= 1).all() and sides.size in (1, 2)
    check_argument(is_right, name, size, expected)
    return np.broadcast_to(sides, 2)


def concat_detections(detections):
    """Concatenates detections in one image: boxes and scores in float64, and labels."""
    first = detections[0]
    for part in detections:
        rule = "Only detections of the same classes can be merged"
        one, other = first.class_names, part.class_names
        require(one == other, rule, first=one, other=other)
    return (
        np.concatenate([part.boxes for part in detections]).astype("float64"),
        np.concatenate([part.scores for part in detections]).astype("float64"),
        np.concatenate([part.labels for part in detections]),
    )
