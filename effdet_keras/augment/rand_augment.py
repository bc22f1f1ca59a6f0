"""RandAugment for detection: random operations at one level."""

from __future__ import annotations

from typing import Any

from effdet_keras.augment import draws
from effdet_keras.augment.augmentation import (
    Augmentation,
    Example,
    check_fraction,
    register,
)
from effdet_keras.augment.auto_augment import check_long_side
from effdet_keras.augment.policies import RAND_AUGMENT_OPERATIONS
from effdet_keras.augment.policy_run import run_sub_policy
from effdet_keras.errors import InvalidValueError


@register
class RandAugment(Augmentation):
    """Applies random operations, all of one level, one after the other.

    Nothing is learned here (Cubuk et al., https://arxiv.org/abs/1909.13719): each
    operation is any of ten, with one chance for all. They are equalize, solarize,
    solarize-add, color, cutout, and shift, slant (both along x or y) and rotation.

    Args:
        num_operations: int, how many operations each image gets.
        level: float; at 10 an operation has the largest strength that AutoAugment
            learns with, such as a rotation by 30 degrees. google/automl uses 15.
        long_side: as of `AutoAugment`.
        min_visibility: as of `AutoAugment`.
        reference_boxes: as of `AutoAugment`.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> augment = ek.augment.RandAugment(num_operations=2, level=5.0)
        >>> example = {"image": np.zeros((64, 64, 3), "uint8"),
        ...     "boxes": np.float32([[16, 16, 48, 48]]), "labels": np.int32([5])}
        >>> augmented = augment(example, seed=[0, 1])
        >>> augmented["image"].shape, augmented["image"].dtype.name
        (TensorShape([64, 64, 3]), 'uint8')
    """

    def __init__(
        self,
        num_operations: int = 1,
        level: float = 15.0,
        *,
        long_side: float | None = 640.0,
        min_visibility: float = 0.1,
        reference_boxes: bool = False,
    ) -> None:
        if num_operations < 1:
            raise InvalidValueError(
                "`num_operations` must be 1 or more. "
                f"Received: num_operations={num_operations!r}"
            )
        if level < 0:
            raise InvalidValueError(
                f"`level` must be 0 or more. Received: level={level!r}"
            )
        check_long_side(long_side)
        self.num_operations = int(num_operations)
        self.level = float(level)
        self.long_side = long_side
        self.min_visibility = check_fraction("min_visibility", min_visibility)
        self.reference_boxes = reference_boxes

    def augment(self, example: Example, seed: Any) -> Example:
        # Each operation is a sub-policy of one step, which always happens.
        sub_policies = [[(name, 1.0, self.level)] for name in RAND_AUGMENT_OPERATIONS]
        for one in draws.split(seed, self.num_operations):
            of_choice, of_steps = draws.split(one, 2)
            choice = draws.integer(draws.uniform(of_choice), len(sub_policies))
            example = run_sub_policy(example, of_steps, sub_policies, choice, self)
        return example

    def get_config(self):
        return {
            "num_operations": self.num_operations,
            "level": self.level,
            "long_side": self.long_side,
            "min_visibility": self.min_visibility,
            "reference_boxes": self.reference_boxes,
        }
