"""How anchors get their boxes in training: the rules, as `compile(matching=...)`."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from effdet_keras.errors import InvalidValueError
from effdet_keras.geometry.anchors import level_sizes
from effdet_keras.geometry.atss import match_atss
from effdet_keras.geometry.matching import check_iou_threshold, match_anchors

if TYPE_CHECKING:
    from effdet_keras.config import EfficientDetConfig

__all__ = ["ATSSMatching", "IoUMatching", "Matching"]

_ADDED_FRACTION = 1e-8  # of the image's sides: EPSILON of that API's box coders


class Matching(abc.ABC):
    """A rule that says which anchor has to predict which box.

    One of your own has `__call__`. Registered, it is kept in files of the model.

    Example:
        >>> @keras.saving.register_keras_serializable(package="mine")
        ... class StrictMatching(Matching):
        ...     def __call__(self, boxes, labels, anchors, config):
        ...         rule = IoUMatching(iou_threshold=0.7)
        ...         return rule(boxes, labels, anchors, config)
        ...
        ...     def get_config(self):
        ...         return {}
        >>> from effdet_keras.models import EfficientDet
        >>> model = EfficientDet.from_preset("efficientdet-lite0", image_size=64)
        >>> model.compile(matching=StrictMatching())
    """

    @abc.abstractmethod
    def __call__(
        self,
        boxes: Any,
        labels: Any,
        anchors: Any,
        config: EfficientDetConfig,
        weights: Any = None,
    ) -> tuple[Any, ...]:
        """Gives each anchor the class and the box it has to predict.

        Args:
            boxes: float tensor `[B, M, 4]`, `yxyx` in pixels of the input.
            labels: int tensor `[B, M]`, `0 .. C-1`, and -1 in padding rows.
            anchors: float array `[N, 4]`, `yxyx` in pixels of the input.
            config: `EfficientDetConfig` that the anchors are of.
            weights: float tensor `[B, M]`, how much each box counts. It is given where
                the ground truth has `weights`; a rule without it takes no such.

        Returns:
            Tuple of `class_targets`, int32 `[B, N]`, the label of the matched box, -1
            for background or -2 for what no loss is to be taken of; `box_targets`,
            float32 `[B, N, 4]`, its `encode_boxes` code with `config.box_scales`, 0
            where there is none; and, where not all anchors count alike,
            `anchor_weights`, float32 `[B, N]`.
        """

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments.

        Example:
            >>> ATSSMatching(top_k=5).get_config()
            {'top_k': 5}
        """
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Matching:
        """Builds the rule from `get_config()`.

        Example:
            >>> IoUMatching.from_config({"iou_threshold": 0.6})
            IoUMatching(iou_threshold=0.6)
        """
        return cls(**config)


@keras.saving.register_keras_serializable(package="effdet_keras")
@dataclasses.dataclass(frozen=True)
class IoUMatching(Matching):
    """Anchors take the box they overlap enough: the rule of the reference.

    RetinaNet, https://arxiv.org/abs/1708.02002, section 4; see
    `geometry.matching.match_anchors`.

    Args:
        iou_threshold: float above 0, at most 1.
        ignore_threshold: float above 0, at most `iou_threshold`, or None. Anchors
            between the two are neither positive nor background.
        force: bool, whether each box takes the anchor it overlaps most, however little.
        background_weight: float of at least 0, how much an anchor of the background
            counts beside one that has a box.
        in_fractions: bool, whether to compute in fractions of the image, and with
            1e-8 added to all sides, as the TF Object Detection API does. It differs
            from computing in pixels by rounding alone, but for boxes of a few
            thousandths of a pixel.

    Example:
        >>> IoUMatching(ignore_threshold=0.4)
        IoUMatching(iou_threshold=0.5, ignore_threshold=0.4, force=True, \
background_weight=1.0, in_fractions=False)
    """

    iou_threshold: float = 0.5
    ignore_threshold: float | None = None
    force: bool = True
    background_weight: float = 1.0
    in_fractions: bool = False

    def __post_init__(self) -> None:
        check_iou_threshold(self.iou_threshold, self.ignore_threshold)
        if not 0.0 <= self.background_weight < math.inf:
            raise InvalidValueError(
                "`background_weight` must be a number of at least 0. Received: "
                f"background_weight={self.background_weight!r}"
            )

    def __call__(
        self,
        boxes: Any,
        labels: Any,
        anchors: Any,
        config: EfficientDetConfig,
        weights: Any = None,
    ) -> tuple[Any, ...]:
        added_side = 0.0
        if self.in_fractions:
            sides = ops.convert_to_tensor((*config.image_size,) * 2, dtype="float32")
            boxes, anchors = (
                ops.cast(ops.convert_to_tensor(value), "float32") / sides
                for value in (boxes, anchors)
            )
            added_side = _ADDED_FRACTION
        return match_anchors(
            boxes,
            labels,
            anchors,
            iou_threshold=self.iou_threshold,
            ignore_threshold=self.ignore_threshold,
            force=self.force,
            weights=weights,
            background_weight=self.background_weight,
            box_scales=config.box_scales,
            added_side=added_side,
        )


@keras.saving.register_keras_serializable(package="effdet_keras")
@dataclasses.dataclass(frozen=True)
class ATSSMatching(Matching):
    """Each box takes the best of the anchors around it, by a threshold of its own.

    ATSS, https://arxiv.org/abs/1912.02424, section 3.2; see `geometry.atss.match_atss`.
    Boxes that no anchor fits well get as much to learn from as others.

    Args:
        top_k: int, 1 or above; how many places of each level are candidates.

    Example:
        >>> ATSSMatching()
        ATSSMatching(top_k=9)
    """

    top_k: int = 9

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise InvalidValueError(
                f"`top_k` must be at least 1. Received: top_k={self.top_k!r}"
            )

    def __call__(
        self,
        boxes: Any,
        labels: Any,
        anchors: Any,
        config: EfficientDetConfig,
        weights: Any = None,
    ) -> tuple[Any, ...]:
        levels = level_sizes(config.image_size, config.min_level, config.max_level)
        return match_atss(
            boxes,
            labels,
            anchors,
            level_sizes=levels,
            top_k=self.top_k,
            box_scales=config.box_scales,
            weights=weights,
        )
