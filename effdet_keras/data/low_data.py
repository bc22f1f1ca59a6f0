"""What to expect of a training on few images, or on few boxes of a class."""

from __future__ import annotations

import numpy as np

from effdet_keras.data.dataset import DetectionDataset, boxes_per_class, count_of

_FEW_IMAGES = 40
_FEW_BOXES = 10  # of a class
_NAMED = 5  # classes


def what_to_expect(dataset: DetectionDataset) -> list[str]:
    """A sentence for few images, and one for classes of few boxes; often none."""
    sentences = []
    if 0 < len(dataset) < _FEW_IMAGES:
        sentences.append(
            f"Only {count_of(len(dataset), 'image')}: expect AP to differ from one "
            "training or split to the next, and do not trust small gains. More images "
            "help most."
        )
    counts = boxes_per_class(dataset, crowds=False)
    few = [i for i in np.argsort(counts, kind="stable") if counts[i] < _FEW_BOXES]
    if few and len(dataset):
        named = [f"'{dataset.class_names[i]}' ({counts[i]})" for i in few[:_NAMED]]
        more = [f"{len(few) - _NAMED:,} more"] if len(few) > _NAMED else []
        sentences.append(
            f"Fewer than {_FEW_BOXES} boxes of {', '.join([*named, *more])}: expect "
            "the detector to miss such objects or confuse them; their AP is mostly "
            "luck."
        )
    return sentences
