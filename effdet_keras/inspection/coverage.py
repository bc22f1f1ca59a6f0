"""How well a model's anchors cover the boxes of a dataset."""

import dataclasses

import numpy as np

from effdet_keras.data.record import clip_boxes_xywh
from effdet_keras.geometry.anchors import anchors_of, best_anchor_iou
from effdet_keras.geometry.letterbox import scaled_size

COVERED = 0.5  # IoU from which an anchor is trained on a box: matching's threshold
SMALL, LARGE = 32**2, 96**2  # square pixels: COCO's borders
SIZE_NAMES = ("small", "medium", "large")

_WORTH_A_HINT = 0.95  # hints are given if a smaller share of the boxes is covered
_GAIN = 0.02  # a hint must raise the share by this much
_MAX_BOXES_FOR_HINTS = 5_000  # drawn at random from more
_ANCHOR_SCALES = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)


@dataclasses.dataclass(frozen=True)
class Coverage:
    """The share of boxes that have a good anchor, over one range of sizes.

    Attributes:
        size: "all", "small", "medium" or "large": COCO's borders, area below
            32 x 32 and below 96 x 96 pixels, on the network's input.
        num_boxes: int.
        share: float, the share of boxes whose best anchor has an IoU of 0.5
            or more; NaN if there is no box.
        mean_iou: float, mean IoU of each box with its best anchor; NaN if
            there is no box.
    """

    size: str
    num_boxes: int
    share: float
    mean_iou: float


def input_boxes(records, image_size):
    """Computes where the network sees the boxes that training uses.

    The images are letterboxed, as in validation; training scales them by a
    random factor around that.

    Args:
        records: sequence of `Record`.
        image_size: `(height, width)` of the network's input.

    Returns:
        `(boxes, rows)`: float64 `[n, 4]`, `yxyx` in pixels of the input, and
        int `[n]`, the place of each among all boxes of the records. Crowds and
        boxes without area in their image are left out.

    Example:
        >>> from effdet_keras.data import from_arrays
        >>> image = np.zeros((32, 64, 3), "uint8")
        >>> dataset = from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
        >>> input_boxes(dataset.records, (128, 128))[0]
        array([[ 8., 16., 40., 80.]])
    """
    if not records:
        return np.zeros((0, 4)), np.zeros(0, int)
    owner = np.repeat(np.arange(len(records)), [len(r.labels) for r in records])
    sizes = np.array([record.image_size for record in records])[owner]
    boxes_xywh = np.concatenate([record.boxes_xywh for record in records])
    is_crowd = np.concatenate([record.is_crowd for record in records])
    boxes, _ = clip_boxes_xywh(boxes_xywh, sizes)
    boxes = boxes * _factor(sizes, image_size)
    # The last pixel, not the border: so does the pipeline of training.
    boxes = np.minimum(boxes, np.tile(image_size, 2) - 1.0)
    keep = np.all(boxes[:, 2:] > boxes[:, :2], axis=1) & ~is_crowd
    return boxes[keep], np.flatnonzero(keep)


def _factor(sizes, image_size):
    """Of each box, what the letterbox does to it, `[n, 4]`; sizes cut to pixels."""
    return np.tile(scaled_size(sizes, image_size) / sizes.astype(np.float32), 2)


def measure_coverage(boxes, config):
    """Measures how many boxes have an anchor that is trained on them.

    A box without such an anchor is still assigned to its best anchor, but to no other.
    Such boxes are learned late and detected badly.

    Args:
        boxes: float array `[n, 4]`, `yxyx` in pixels of the network's input.
        config: `EfficientDetConfig`.

    Returns:
        Tuple of four `Coverage`: all, small, medium and large boxes.

    Example:
        >>> from effdet_keras.config import EfficientDetConfig
        >>> boxes = np.array([[4.0, 4.0, 36.0, 36.0], [0.0, 0.0, 4.0, 100.0]])
        >>> measure_coverage(boxes, EfficientDetConfig())[0].share
        0.5
    """
    best = anchor_fit(boxes, config)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    groups = {
        "all": areas >= 0,
        "small": areas < SMALL,
        "medium": (areas >= SMALL) & (areas < LARGE),
        "large": areas >= LARGE,
    }
    return tuple(_coverage(name, best[group]) for name, group in groups.items())


def anchor_fit(boxes, config):
    """Returns the IoU of each box with its best anchor, float64 `[n]`."""
    return best_anchor_iou(boxes, config.image_size, **_anchor_arguments(config))


def anchor_sides(config):
    """Returns the different sides of all anchors, float32 `[k, (h, w)]` in pixels."""
    anchors = anchors_of(config)
    return np.unique((anchors[:, 2:] - anchors[:, :2]).round(1), axis=0)


def find_hints(boxes, config):
    """Looks for other anchors, or a larger input, that would cover more boxes.

    Args:
        boxes: float array `[n, 4]`, `yxyx` in pixels of the network's input.
        config: `EfficientDetConfig`.

    Returns:
        Tuple of str such as "anchor_scale=2.0 would cover 97.1 %", each
        measured on these boxes: simple changes first, and others only if
        they are better. Empty if 95 % are covered or nothing helps.

    Example:
        >>> from effdet_keras.config import EfficientDetConfig
        >>> boxes = np.array([[14.0, 14.0, 26.0, 26.0], [38.0, 38.0, 50.0, 50.0]])
        >>> find_hints(boxes, EfficientDetConfig())
        ('anchor_scale=2.0 would cover 100.0 %',)
    """
    if len(boxes) > _MAX_BOXES_FOR_HINTS:
        rng = np.random.default_rng(0)
        boxes = rng.choice(boxes, _MAX_BOXES_FOR_HINTS, replace=False)
    best = _share(boxes, config)
    if not len(boxes) or best >= _WORTH_A_HINT:
        return ()
    found = []
    for changes in _ideas(boxes, config):
        shares = [_share(boxes, config, change) for change in changes]
        if max(shares, default=0.0) >= best + _GAIN:
            best = max(shares)
            # The first, so nearest to the config, of those about equally good.
            first = next(i for i, s in enumerate(shares) if s > best - _GAIN / 2)
            words = ", ".join(f"{k}={v}" for k, v in changes[first].items())
            found.append(f"{words} would cover {100 * shares[first]:.1f} %")
    return tuple(found)


def _ideas(boxes, config):
    """Lists of changes of a config, each list one kind of change."""
    scales = []
    if np.isscalar(config.anchor_scale):
        scales = [{"anchor_scale": scale} for scale in _ANCHOR_SCALES]
        scales.sort(key=lambda c: abs(np.log(c["anchor_scale"] / config.anchor_scale)))
    ratios = [{"aspect_ratios": ratios} for ratios in _ratio_sets(boxes)]
    yield scales
    yield ratios
    yield [ratio | scale for ratio in ratios for scale in scales]
    yield [
        {"image_size": tuple(max(1, round(side * factor / 128)) * 128 for side in size)}
        for size in [config.image_size]
        for factor in (1.5, 2.0)
    ]


def _ratio_sets(boxes):
    """Aspect ratios from the middle of equal parts of the boxes' own."""
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 1e-6)
    ratios = sides[:, 1] / sides[:, 0]
    for count in (3, 5):
        quantiles = np.quantile(ratios, (np.arange(count) + 0.5) / count)
        yield tuple(sorted({float(f"{ratio:.2g}") for ratio in quantiles}))


def _share(boxes, config, change=None):
    """Share of covered boxes after a change; a larger input enlarges the boxes."""
    changed = config.replace(**(change or {}))
    factor = np.divide(changed.image_size, config.image_size)
    fit = anchor_fit(boxes * np.tile(factor, 2), changed)
    return float(np.mean(fit >= COVERED)) if len(boxes) else 1.0


def _coverage(size, best):
    if not len(best):
        return Coverage(size, 0, float("nan"), float("nan"))
    return Coverage(
        size, len(best), float(np.mean(best >= COVERED)), float(best.mean())
    )


def _anchor_arguments(config):
    return {
        "min_level": config.min_level,
        "max_level": config.max_level,
        "num_scales": config.num_scales,
        "aspect_ratios": config.aspect_ratios,
        "anchor_scale": config.anchor_scale,
    }
