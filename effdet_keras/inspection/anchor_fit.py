"""What anchors that are fitted to a dataset would gain, and the lines to use them."""

from __future__ import annotations

import dataclasses
import os
import shlex

import numpy as np

from effdet_keras.config import EfficientDetConfig
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.summary import count_of
from effdet_keras.inspection.coverage import Coverage, input_boxes, measure_coverage
from effdet_keras.inspection.fit_to_boxes import class_mean_iou, fitted_anchors


@dataclasses.dataclass(frozen=True)
class AnchorFit:
    """Anchors that fit the boxes of a dataset, beside those of a model.

    `print(fit)` shows both as a table.

    Attributes:
        config: `EfficientDetConfig` with the model's own anchors.
        fitted: `EfficientDetConfig` with the anchors that fit; equal to `config` where
            none fits better.
        before: tuple of four `Coverage`, of the model's own anchors: all, small, medium
            and large boxes.
        after: the same of the fitted anchors.
        class_means: tuple of two floats, before and after: the mean IoU of boxes and
            their best anchors, averaged over the classes, by which they are chosen.
    """

    config: EfficientDetConfig
    fitted: EfficientDetConfig
    before: tuple[Coverage, ...]
    after: tuple[Coverage, ...]
    class_means: tuple[float, float]

    @property
    def is_better(self) -> bool:
        """Whether other anchors fit better than the model's own."""
        return self.fitted != self.config

    @property
    def worse_sizes(self) -> tuple[str, ...]:
        """Sizes of which a share of 0.01 less has an anchor with an IoU of 0.5."""
        pairs = zip(self.before[1:], self.after[1:])
        return tuple(then.size for then, now in pairs if now.share < then.share - 0.01)

    def how_to_use(self, data: str | os.PathLike[str] = "DATA") -> str:
        """Returns the lines that make and train a model with the fitted anchors.

        Args:
            data: path of the dataset, for the command line.

        Example:
            >>> config = EfficientDetConfig.from_name("efficientdet-lite0")
            >>> print(AnchorFit(config, config, (), (), (0.6, 0.6)).how_to_use())
            No anchors are better by 0.01 in mean IoU: keep those of the model.
        """
        if not self.is_better:
            return "No anchors are better by 0.01 in mean IoU: keep those of the model."
        ratios = np.asarray(self.fitted.aspect_ratios, float).tolist()
        scale, size = self.fitted.anchor_scale, self.config.image_size
        settings = f"model_config={{anchor_scale: {scale}, aspect_ratios: {ratios}}}"
        name = self.config.name
        caution = []
        if self.worse_sizes:
            caution = [
                f"Caution: fewer of the {' and '.join(self.worse_sizes)} boxes have an "
                "anchor with an IoU of 0.5 or more. If these matter, keep the model's "
                "own, or take a larger input."
            ]
        return "\n".join(
            [
                *caution,
                "To use them, either of",
                f"  effdet-keras train {shlex.quote(str(data))} --model {name} "
                f"--image-size {size[0]} {size[1]} --set {shlex.quote(settings)} "
                "--out RUN",
                f"  ek.EfficientDet.from_preset({name!r}, dataset=train, "
                f"image_size={size}, anchor_scale={scale}, "
                f"aspect_ratios={tuple(ratios)})",
                "`effdet-keras train` without --set, and `anchors='auto'`, fit them by "
                "themselves.",
            ]
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


def fit_anchors(dataset: DetectionDataset, config: EfficientDetConfig) -> AnchorFit:
    """Fits scale and aspect ratios of anchors to a dataset, and measures the gain.

    Boxes are letterboxed to `config.image_size`. Tried are scales from 1.5 to 6, each
    with the config's own aspect ratios and with the 10 %, 50 % and 90 % quantiles of
    the boxes' own. Others than the config's are taken if they raise the mean IoU of
    a box and its best anchor, averaged over the classes as AP is, by 0.01 or more.

    Args:
        dataset: `DetectionDataset`, what is trained on.
        config: `EfficientDetConfig`, such as `model.config`.

    Returns:
        `AnchorFit`.

    Raises:
        ValueError: If the dataset has no boxes to train on.

    Example:
        >>> from effdet_keras.data import from_arrays
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
    return AnchorFit(
        config=config,
        fitted=fitted,
        before=measure_coverage(boxes, config),
        after=measure_coverage(boxes, fitted),
        class_means=(class_mean_iou(dataset, config), class_mean_iou(dataset, fitted)),
    )
