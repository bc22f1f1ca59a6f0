"""Measures how well anchors cover the boxes of a dataset, and fits better anchors."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
from typing import Any, NamedTuple

import numpy as np

from effdet_keras.data.anchor_fit import (
    boxes_to_fit,
    fitted_anchors,
    input_boxes,
    mean_of_classes,
)
from effdet_keras.data.dataset import count_of
from effdet_keras.network.anchors import anchors_of, best_anchor_iou
from effdet_keras.network.config import EfficientDetConfig

COVERED = 0.5  # IoU from which an anchor is matched to a box in training
_SMALL, _LARGE = 32**2, 96**2  # square pixels: COCO's limits of "small" and "large"


class Coverage(NamedTuple):
    """The share of boxes that have a good anchor, in one range of box sizes."""

    size: str  # "all", "small", "medium" or "large"
    num_boxes: int
    share: float  # share of boxes with an IoU of 0.5 or more; NaN without boxes
    mean_iou: float  # mean IoU of each box and its best anchor; NaN without boxes


def measure_coverage(boxes, config):
    """Measures how many boxes have an anchor that is matched to them.

    Args:
        boxes: floats `[n, 4]`, `yxyx` in pixels of the network's input.
        config: `EfficientDetConfig` with the anchors.

    Returns:
        Tuple of four `Coverage`s: all, small, medium and large boxes.
    """
    fit = best_anchor_iou(boxes, config)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    coverages = []
    for size, low, high in (
        ("all", 0, math.inf),
        ("small", 0, _SMALL),
        ("medium", _SMALL, _LARGE),
        ("large", _LARGE, math.inf),
    ):
        chosen = fit[(areas >= low) & (areas < high)]
        share = float(np.mean(chosen >= COVERED)) if len(chosen) else math.nan
        mean = float(chosen.mean()) if len(chosen) else math.nan
        coverages.append(Coverage(size, len(chosen), share, mean))
    return tuple(coverages)


def anchor_sides(config):
    """Returns the distinct sizes of all anchors, float32 `[k, (h, w)]` in pixels."""
    anchors = anchors_of(config)
    return np.unique((anchors[:, 2:] - anchors[:, :2]).round(1), axis=0)


# --- The gain of anchors that are fitted to a dataset, and the lines to use them.


@dataclasses.dataclass(frozen=True)
class AnchorFit:
    """The result of `fit_anchors`, which `print` shows as a table.

    Attributes:
        config: `EfficientDetConfig` with the model's own anchors.
        fitted: `EfficientDetConfig` with the fitted anchors, equal to `config` if no
            anchors fit better.
        before: tuple of four `Coverage`s with the model's own anchors.
        after: tuple of four `Coverage`s with the fitted anchors.
        class_means: pair of floats, the mean IoU of a box and its best anchor, averaged
            over the classes, before and after.
    """

    config: EfficientDetConfig
    fitted: EfficientDetConfig
    before: tuple[Coverage, ...]
    after: tuple[Coverage, ...]
    class_means: tuple[float, float]

    @property
    def is_better(self) -> bool:
        """Whether the fitted anchors are better than the model's own."""
        return self.fitted != self.config

    def how_to_use(self, data: str | os.PathLike[str] = "DATA") -> str:
        """Returns the lines that make and train a model with the fitted anchors.

        Args:
            data: str or path of the dataset, for the command line.

        Returns:
            Str, or a sentence that advises to keep the model's anchors if no others
            are better.
        """
        if not self.is_better:
            return "No anchors are better by 0.01 in mean IoU: keep those of the model."
        ratios = np.asarray(self.fitted.aspect_ratios, float).tolist()
        scale, size = self.fitted.anchor_scale, self.config.image_size
        settings = f"model_config={{anchor_scale: {scale}, aspect_ratios: {ratios}}}"
        name = self.config.name
        return (
            "To use them, either of\n"
            f"  effdet-keras train {shlex.quote(str(data))} --model {name} "
            f"--image-size {size[0]} {size[1]} --set {shlex.quote(settings)} "
            "--out RUN\n"
            f"  ek.EfficientDet.from_preset({name!r}, dataset=train, "
            f"image_size={size}, anchor_scale={scale}, aspect_ratios={tuple(ratios)})\n"
            "`effdet-keras train` without --set, and `anchors='auto'`, fit them by "
            "themselves."
        )

    def __str__(self):
        height, width = self.config.image_size
        boxes = count_of(self.before[0].num_boxes, "box", "boxes")
        lines = [
            f"anchors of {self.config.name} at {height}x{width}, fitted to {boxes}",
            f"  {'':<12}{'anchor_scale':>13}  {'aspect_ratios':<20}"
            f"{'mean IoU':>9}{'IoU 0.5 or more':>17}",
        ]
        for title, config, rows, mean in (
            ("as they are", self.config, self.before, self.class_means[0]),
            ("fitted", self.fitted, self.after, self.class_means[1]),
        ):
            lines.append(
                f"  {title:<12}{config.anchor_scale!s:>13}  "
                f"{config.aspect_ratios!s:<20}"
                f"{rows[0].mean_iou:>9.3f}{100 * rows[0].share:>15.1f} %"
            )
            lines.append(f"  {'':<12}{'mean of the classes':<35}{mean:>9.3f}")
            lines += [
                f"  {'':<12}{row.size + ' boxes':>13}  {row.num_boxes:<20,}"
                f"{row.mean_iou:>9.3f}{100 * row.share:>15.1f} %"
                for row in rows[1:]
                if row.num_boxes
            ]
        return "\n".join(lines)


def fit_anchors(dataset: Any, config: EfficientDetConfig) -> AnchorFit:
    """Fits the scale and aspect ratios of anchors to a dataset, and measures the gain.

    Boxes are letterboxed to `config.image_size`. Scales from 1.5 to 6 are tried, each
    with the config's own aspect ratios and with the 10 %, 50 % and 90 % quantiles of
    the boxes' aspect ratios. New anchors replace the config's own if they raise the
    mean IoU of a box and its best anchor, averaged over the classes like AP, by more
    than 0.01.

    Args:
        dataset: `DetectionDataset` to train on.
        config: `EfficientDetConfig`, such as `model.config`.

    Returns:
        `AnchorFit`. `print` shows the model's own anchors and the fitted ones as a
        table, and `how_to_use()` returns the lines that train with them.

    Raises:
        ValueError: If the dataset has no boxes to train on.

    Example:
        >>> from effdet_keras.data.formats.arrays import from_arrays
        >>> image = np.zeros((128, 128, 3), "uint8")
        >>> boxes = [[[0, 0, 20, 80], [40, 40, 65, 128], [70, 10, 91, 90]]]
        >>> flat = from_arrays([image], boxes, [[0, 0, 0]], ["pen"])
        >>> fit = fit_anchors(flat, EfficientDetConfig(image_size=128))
        >>> fit.fitted.aspect_ratios
        (3.54, 3.81, 3.96)
        >>> round(fit.before[0].mean_iou, 2), round(fit.after[0].mean_iou, 2)
        (0.57, 0.76)
    """
    fitted = config.replace(**fitted_anchors(dataset, config))
    boxes, _ = input_boxes(dataset.records, config.image_size)
    before, after = (measure_coverage(boxes, c) for c in (config, fitted))
    sample = boxes_to_fit(dataset, config.image_size)
    means = tuple(mean_of_classes(*sample, c) for c in (config, fitted))
    return AnchorFit(config, fitted, before, after, means)
