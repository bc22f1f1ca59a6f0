"""AutoAugment for detection: a random sub-policy of a learned policy."""

from __future__ import annotations

from typing import Any

from effdet_keras.augment import draws
from effdet_keras.augment.augmentation import (
    Augmentation,
    Example,
    check_fraction,
    register,
)
from effdet_keras.augment.policies import POLICIES
from effdet_keras.augment.policy_run import run_sub_policy
from effdet_keras.errors import InvalidValueError


@register
class AutoAugment(Augmentation):
    """Applies a random sub-policy of one of google/automl's learned policies.

    The policies were learned on COCO (Zoph et al., "Learning Data Augmentation
    Strategies for Object Detection", https://arxiv.org/abs/1906.11172). Each image
    gets one of 5 to 20 sub-policies, which turns, slants, shifts or recolors the
    image or what is inside its boxes. Pixels are those of the reference; boxes are
    exact, where the reference cuts them down to whole pixels.

    Args:
        policy: string, "v0", "v1", "v2" or "v3".
        long_side: float, the long side in pixels of images for which the policies'
            distances (shifts up to 250 pixels, squares up to 200) are meant. They
            are scaled to other images. None takes them as they are, like the
            reference.
        min_visibility: float from 0 to 1; a box is dropped if less of it than this
            stays in the image.
        reference_boxes: bool, whether boxes are moved by whole pixels and stay as
            strips at the border where they leave the image, as in the reference;
            `min_visibility` is then not used.

    Raises:
        ValueError: If there is no such policy, or a number is out of range.

    Example:
        >>> import numpy as np
        >>> import effdet_keras as ek
        >>> augment = ek.augment.AutoAugment("v0")
        >>> example = {"image": np.zeros((64, 64, 3), "uint8"),
        ...     "boxes": np.float32([[16, 16, 48, 48]]), "labels": np.int32([5])}
        >>> augmented = augment(example, seed=[0, 1])
        >>> augmented["image"].shape, augmented["image"].dtype.name
        (TensorShape([64, 64, 3]), 'uint8')
    """

    def __init__(
        self,
        policy: str = "v0",
        *,
        long_side: float | None = 640.0,
        min_visibility: float = 0.1,
        reference_boxes: bool = False,
    ) -> None:
        if policy not in POLICIES:
            raise InvalidValueError(
                f"`policy` must be one of {', '.join(POLICIES)}. "
                f"Received: policy={policy!r}"
            )
        check_long_side(long_side)
        self.policy = policy
        self.long_side = long_side
        self.min_visibility = check_fraction("min_visibility", min_visibility)
        self.reference_boxes = reference_boxes

    def augment(self, example: Example, seed: Any) -> Example:
        sub_policies = POLICIES[self.policy]
        of_choice, of_steps = draws.split(seed, 2)
        choice = draws.integer(draws.uniform(of_choice), len(sub_policies))
        return run_sub_policy(example, of_steps, sub_policies, choice, self)

    def get_config(self):
        return {
            "policy": self.policy,
            "long_side": self.long_side,
            "min_visibility": self.min_visibility,
            "reference_boxes": self.reference_boxes,
        }


def check_long_side(long_side: Any) -> None:
    """Refuses a long side that is not above 0."""
    if long_side is not None and not long_side > 0:
        raise InvalidValueError(
            "`long_side` must be above 0 pixels, or None. "
            f"Received: long_side={long_side!r}"
        )
