"""Tiles cover an image; objects at their seams are found once, and whole."""

import itertools

import numpy as np
import pytest

from effdet_keras import Detections
from effdet_keras.box_ops import iou
from effdet_keras.extras.tiles import detect_tiled, merge_views, tile_grid

NETWORK = 100  # pixels: the side of the fake network's input
TILES = {"tile_size": 100, "overlap": 0.3}


def map_of(height, width):
    """An image whose pixels say where they are: a quarter of `(y, x, 0)`."""
    image = np.zeros((height, width, 3), "float32")
    image[..., 0] = np.arange(height)[:, None] / 4.0
    image[..., 1] = np.arange(width) / 4.0
    return image


class KnowingDetector:
    """Finds the visible part of each object, if it is large enough in the input.

    A part is less certain than a whole, by how much of it is hidden.
    """

    def __init__(self, boxes, labels=None, noise=0.0, parts_are_better=False):
        self.boxes = np.array(boxes, "float64").reshape(-1, 4)
        self.labels = np.zeros(len(boxes), int) if labels is None else labels
        self.rng = np.random.default_rng(0)
        self.noise, self.parts_are_better = noise, parts_are_better
        self.calls = []

    def __call__(self, images):
        assert isinstance(images, list)
        self.calls.append([image.shape for image in images])
        return [self.look_at(image) for image in images]

    def look_at(self, image):
        corner, far = 4.0 * image[0, 0, :2], 4.0 * image[-1, -1, :2] + 1
        zoom = NETWORK / max(image.shape[:2])
        boxes, scores, labels = [], [], []
        for box, label in zip(self.boxes, self.labels):
            seen = np.concatenate(
                [np.maximum(box[:2], corner), np.minimum(box[2:], far)]
            )
            sides = seen[2:] - seen[:2]
            if (sides * zoom < 6).any():
                continue
            share = np.prod(sides) / np.prod(box[2:] - box[:2])
            seen += self.rng.uniform(-self.noise, self.noise, 4) * sides.min()
            boxes.append(seen - np.tile(corner, 2))
            scores.append(0.9 - 0.5 * share if self.parts_are_better else 0.9 * share)
            labels.append(label)
        return Detections(np.reshape(boxes, (-1, 4)), scores, labels)


def found_boxes(detector, size, **arguments):
    found = detect_tiled(detector, map_of(*size), **{**TILES, **arguments})
    return found.boxes[np.lexsort(found.boxes.T[::-1])].tolist()


@pytest.mark.parametrize("overlap", [0, 0.2, 0.95])
@pytest.mark.parametrize("tile_size", [1, 64, (40, 90)])
def test_every_pixel_is_covered_by_tiles_of_one_size(tile_size, overlap):
    for size in ((1, 1), (64, 64), (65, 63), (128, 257), (5, 200)):
        tiles = tile_grid(size, tile_size, overlap)
        sides = np.minimum(np.broadcast_to(tile_size, 2), size)
        assert (tiles[:, 2:] - tiles[:, :2] == sides).all()
        assert (tiles[:, :2] >= 0).all() and (tiles[:, 2:] <= size).all()
        covered = np.zeros(size, bool)
        for top, left, bottom, right in tiles:
            covered[top:bottom, left:right] = True
        assert covered.all()
        assert len(np.unique(tiles, axis=0)) == len(tiles)
        for axis in (0, 1):
            starts = np.unique(tiles[:, axis])
            shared = sides[axis] - np.diff(starts)
            # A tile of one pixel cannot share a part of it and go on.
            assert (
                shared >= min(np.ceil(overlap * sides[axis]), sides[axis] - 1)
            ).all()


LAYOUTS = {
    "in the overlap": ((100, 170), [[40, 75, 60, 95]], {}),
    "longer than a tile": ((100, 400), [[30, 20, 70, 380]], {}),
    "longer, without a look at the whole": (
        (100, 400),
        [[30, 20, 70, 380]],
        {"include_whole": False},
    ),
    "across four tiles": ((170, 170), [[20, 20, 160, 160]], {"include_whole": False}),
    "neighbours of one class": (
        (100, 170),
        [[40, 60, 60, 84], [40, 86, 60, 110], [62, 86, 80, 110]],
        {},
    ),
    "small in front of large": ((100, 170), [[10, 10, 90, 160], [40, 72, 60, 96]], {}),
    "two in one look, as `detect` has decided": (
        (100, 170),
        [[40, 20, 60, 40], [41, 21, 61, 41]],
        {"include_whole": False},
    ),
}


@pytest.mark.smoke
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_object_is_found_once_and_whole(layout):
    size, boxes, options = LAYOUTS[layout]
    assert found_boxes(KnowingDetector(boxes), size, **options) == boxes


@pytest.mark.parametrize("include_whole", [False, True])
@pytest.mark.parametrize("parts_are_better", [False, True])
def test_a_part_is_dropped_where_a_tile_has_the_whole(parts_are_better, include_whole):
    # The first tile ends at 100 and sees 8 of 28 columns: an IoU of 0.29.
    box = [40, 92, 60, 120]
    detector = KnowingDetector([box], parts_are_better=parts_are_better)
    options = {**TILES, "include_whole": include_whole}
    found = detect_tiled(detector, map_of(100, 170), **options)
    assert found.boxes.tolist() == [box]
    best = 0.9 - 0.5 * 8 / 28 if parts_are_better else 0.9  # of part and whole
    assert found.scores[0] == pytest.approx(best)


def test_a_image_full_of_objects_seen_inexactly():
    """No object is lost, doubled, or left in parts, wherever the seams fall."""
    rng = np.random.default_rng(2)
    boxes = []
    for y, x in itertools.product(range(0, 560, 40), range(0, 800, 40)):
        corner = np.array([y, x]) + rng.uniform(0, 10, 2)
        boxes.append([*corner, *(corner + rng.uniform(14, 28, 2))])
    detector = KnowingDetector(boxes, noise=0.03)
    found = detect_tiled(detector, map_of(560, 800), **TILES)
    overlaps = iou(np.array(boxes)[:, None], found.boxes[None].astype("float64"))
    assert len(found) == len(boxes)
    assert (overlaps.max(axis=1) > 0.7).all()


def merged(*views, size=(100, 170)):
    """`merge_views` of `(view, box, score, label)`."""
    parts = [Detections([b], [score], [label]) for _, b, score, label in views]
    return merge_views(parts, np.array([view for view, *_ in views]), size)


LEFT, RIGHT = [0, 0, 100, 100], [0, 70, 100, 170]


def test_the_box_is_that_of_the_whole_though_a_part_is_surer():
    # The part is seen too tall. In the image both boxes begin at x = 85.
    part, whole = [36, 85, 64, 100], [40, 15, 60, 50]
    found = merged((LEFT, part, 0.9, 0), (RIGHT, whole, 0.5, 0))
    assert found.boxes.tolist() == [[40, 85, 60, 120]]
    assert found.scores.tolist() == pytest.approx([0.9])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tile_size": 0}, "tile_size=0"),
        ({"tile_size": 10.5}, "tile_size=10.5"),
        ({"tile_size": 64, "overlap": 1.0}, "overlap=1.0"),
        ({"tile_size": 64, "iou_threshold": 2}, "iou_threshold=2"),
    ],
)
def test_what_cannot_be_is_told(arguments, message):
    with pytest.raises(ValueError, match=message):
        detect_tiled(KnowingDetector([]), map_of(100, 100), **arguments)
