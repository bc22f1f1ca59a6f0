"""Detection in images far larger than the network's input, tile by tile."""

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

_SEAM = 0.02  # of a tile's side: a box that ends so near a seam may be cut by it


def tile_grid(
    size: Sequence[int], tile_size: int | Sequence[int], overlap: float = 0.2
) -> np.ndarray:
    """Places tiles of one size so that they cover an image.

    There are as few tiles as the overlap allows, spread evenly. No tile is smaller
    than the others, and none reaches out of the image.

    Args:
        size: `(height, width)` of the image, ints, in pixels.
        tile_size: int, or `(height, width)`; a side longer than the image's is
            the image's.
        overlap: float, 0 to below 1: neighbours share at least this part of a side.

    Returns:
        int array `[n, 4]`, `yxyx` in pixels, from the top left, row by row.

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
    """Finds objects in an image that is much larger than the network's input.

    Each overlapping tile is given to `detect` as an image of its own. Two views found
    one object if their boxes agree (an IoU of `iou_threshold`) in the region that both
    views show. So the part of an object on one side of a seam is known as a part by the
    box on the other side, small as their IoU may be. Boxes that no seam cuts are first,
    best first; each stands for what agrees with it. Parts that no whole box stands for
    are joined: an object longer than the overlap, of which each tile shows a part, gets
    the box around them. The score is the best one. Boxes of one view are left as they
    are: `detect` has picked them.

    Args:
        detect: function of a list of arrays `[H, W, 3]` that returns a list of
            `Detections`, such as `model.detect`.
        image: path, or array as for `EfficientDet.detect`.
        tile_size: int or `(height, width)`, in pixels. At the network's input size a
            tile is seen pixel by pixel; smaller tiles are enlarged.
        overlap: float, 0 to below 1, the least part of a side that tiles share.
            Best longer than the small objects: one tile then shows each whole.
        include_whole: bool, whether to look at the whole image too.
        iou_threshold: float in `(0, 1]`.

    Returns:
        `Detections` of the whole image, best first, with boxes clipped to it. There
        may be more of them than `max_detections`, which limits each tile.

    Raises:
        ValueError: If an argument is not one of those above.

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
    """Makes one list of what was found in views `[n, 4]` of an image."""
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
    """Which boxes, each of a view, are of one object."""

    def __init__(self, boxes, labels, views, iou_threshold):
        self.boxes, self.labels, self.views = boxes, labels, views
        self.iou_threshold = iou_threshold
        self.is_free = np.ones(len(boxes), bool)

    def take(self, i):
        """Box `i` and the free boxes that agree with it, free no more: indices."""
        self.is_free[i] = False
        others = np.flatnonzero(self.is_free & (self.labels == self.labels[i]))
        others = others[(self.views[others] != self.views[i]).any(axis=1)]
        others = others[self._agreement(i, others) >= self.iou_threshold]
        self.is_free[others] = False
        return np.array([i, *others])

    def take_chain(self, i):
        """`take`, and what agrees with those, and so on."""
        members = [i]
        for member in members:  # grows
            members.extend(self.take(member)[1:])
        return np.array(members)

    def _agreement(self, i, others):
        """IoU with box `i` inside of what both views show."""
        low = np.maximum(self.views[i, :2], self.views[others, :2])
        high = np.minimum(self.views[i, 2:], self.views[others, 2:])
        # Of views apart `low` is above `high`, and clipping leaves empty boxes.
        box, boxes = (
            np.clip(b, np.tile(low, 2), np.tile(high, 2))
            for b in (self.boxes[i], self.boxes[others])
        )
        return pairwise_iou(box[:, None], boxes[:, None])[:, 0, 0]


def _is_cut(boxes, views, size):
    """Whether a box ends at a border of its view that is none of the image."""
    height, width = size
    margin = _SEAM * (views[:, 2:] - views[:, :2])
    low = (views[:, :2] > 0) & (boxes[:, :2] <= views[:, :2] + margin)
    high = (views[:, 2:] < (height, width)) & (boxes[:, 2:] >= views[:, 2:] - margin)
    return (low | high).any(axis=1)


def _starts(length, side, overlap):
    """Where tiles of `side` begin, so that they cover `length`."""
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
    """Lists of one image as one: boxes and scores in float64, labels."""
    first = detections[0]
    for part in detections:
        rule = "Detections that are merged must be of the same classes"
        one, other = first.class_names, part.class_names
        require(one == other, rule, first=one, other=other)
    return (
        np.concatenate([part.boxes for part in detections]).astype("float64"),
        np.concatenate([part.scores for part in detections]).astype("float64"),
        np.concatenate([part.labels for part in detections]),
    )
