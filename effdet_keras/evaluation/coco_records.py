"""Detections of an image as records of COCO's result format: the one place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def coco_records(
    image_id: int, boxes_xywh: ArrayLike, scores: ArrayLike, category_ids: ArrayLike
) -> Iterator[dict[str, Any]]:
    """Gives a record per detection, all plain Python numbers.

    Args:
        image_id: int.
        boxes_xywh: floats `[n, 4]`: left, top, width, height in pixels of the image.
        scores: floats `[n]`.
        category_ids: ints `[n]`, ids of the annotation file.

    Yields:
        Dict of `image_id`, `category_id`, `bbox` and `score`.

    Example:
        >>> list(coco_records(7, [[10, 20, 40, 20]], [0.5], [3]))
        [{'image_id': 7, 'category_id': 3, 'bbox': [10.0, 20.0, 40.0, 20.0],
          'score': 0.5}]
    """
    rows = (np.asarray(boxes_xywh, float), np.asarray(scores, float))
    ids = np.asarray(category_ids).astype(int)
    for box, score, category_id in zip(*(x.tolist() for x in (*rows, ids))):
        yield {
            "image_id": image_id,
            "category_id": category_id,
            "bbox": box,
            "score": score,
        }
