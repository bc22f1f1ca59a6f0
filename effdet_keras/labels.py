"""Special labels, and the category ids of labels.

Inside the package, classes are labels `0 .. C-1`. Annotation files, COCO results and
the Object Detection API's outputs have category ids. Label `i` has the id
`category_ids[i]`, or `i + 1` if no ids are known: COCO counts from 1, and the Object
Detection API reserves 0 for the background.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

BACKGROUND = -1  # no object: in class targets, and in padding rows of ground truth
IGNORE = -2  # an anchor that adds nothing to the class loss
IGNORED_PIXEL = 255  # in a mask: a pixel without a known class, as in VOC's files
FIRST_CATEGORY_ID = 1


def category_ids_or_default(
    category_ids: Iterable[int] | None, num_classes: int
) -> tuple[int, ...]:
    """Returns the category id of each label, `i + 1` if `category_ids` is None."""
    if category_ids is None:
        return tuple(range(FIRST_CATEGORY_ID, FIRST_CATEGORY_ID + num_classes))
    return tuple(int(category_id) for category_id in category_ids)


def extend_category_ids(
    class_names: Iterable[str], known: Mapping[str, int]
) -> list[int]:
    """Returns the known category id of each class, or an unused id.

    Unused ids are above all known ones.
    """
    highest = max(known.values(), default=FIRST_CATEGORY_ID - 1)
    unused = itertools.count(highest + 1)
    return [known[name] if name in known else next(unused) for name in class_names]
