"""Mean IoU, the metric of semantic segmentation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras.errors import require
from effdet_keras.labels import IGNORED_PIXEL


class MeanIoU:
    """Counts pixels by true and predicted class over all images, and computes IoU.

    The IoU of a class is the number of pixels that have the class in both mask and
    prediction, divided by the number of pixels that have it in at least one of them.
    `mIoU` is the mean over the classes that occur in at least one of them, background
    included. Pixels whose true class is 255 are ignored.

    Args:
        class_names: names of the segmentation classes, in the order of their numbers.

    Example:
        >>> metric = MeanIoU(["background", "cat"])
        >>> metric.update([[0, 0, 1, 1, 255]], [[0, 1, 1, 1, 0]])
        >>> {name: round(value, 3) for name, value in metric.result().items()}
        {'mIoU': 0.583, 'IoU/background': 0.5, 'IoU/cat': 0.667}
    """

    def __init__(self, class_names: Sequence[str]) -> None:
        self.class_names = tuple(map(str, class_names))
        self.reset()

    def reset(self) -> None:
        """Forgets all pixels."""
        count = len(self.class_names)
        self.counts = np.zeros((count, count), np.int64)  # [true, predicted]

    def update(self, mask: ArrayLike, class_map: ArrayLike) -> None:
        """Adds the pixels of one or more images.

        Args:
            mask: int array `[..., H, W]`, the true classes; 255 for ignored pixels.
            class_map: int array of the same shape, the predicted classes.

        Raises:
            ValueError: If the shapes differ, or a class number has no name.
        """
        mask, class_map = np.asarray(mask), np.asarray(class_map)
        rule = "`mask` and `class_map` must be of the same shape"
        shapes = {"mask.shape": mask.shape, "class_map.shape": class_map.shape}
        require(mask.shape == class_map.shape, rule, **shapes)
        has_class = mask != IGNORED_PIXEL
        pairs = np.int64([mask[has_class], class_map[has_class]])
        count = len(self.class_names)
        low, high = pairs.min(initial=0), pairs.max(initial=0)
        rule = f"Classes of pixels must be from 0 to {count - 1}, each with a name"
        require(0 <= low <= high < count, rule, classes=(int(low), int(high)))
        flat = np.bincount(count * pairs[0] + pairs[1], minlength=count**2)
        self.counts += flat.reshape(count, count)

    def result(self) -> dict[str, float]:
        """Returns `mIoU` and `IoU/<class>`; -1 if no pixel has the class."""
        both = np.diag(self.counts)
        either = self.counts.sum(axis=0) + self.counts.sum(axis=1) - both
        measured = either > 0
        of_classes = np.where(measured, both / np.maximum(either, 1), -1.0)
        mean = of_classes[measured].mean() if measured.any() else -1.0
        named = zip(self.class_names, of_classes.tolist())
        return {"mIoU": float(mean), **{f"IoU/{name}": x for name, x in named}}
