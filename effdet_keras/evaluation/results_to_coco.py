"""`ImageResult`s as ground truth and detections in COCO's formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluation.coco_metric import COCOMetric
from effdet_keras.evaluation.coco_records import coco_records
from effdet_keras.evaluation.image_result import ImageResult
from effdet_keras.evaluation.outcomes import check_labels
from effdet_keras.geometry.box_ops import yxyx_to_xywh


def detections_to_coco(
    results: Sequence[ImageResult], category_ids: Sequence[int]
) -> list[dict[str, Any]]:
    """Writes detections in COCO's result format, as its servers take them.

    `results_of_coco` is the inverse. `json.dump` writes the list; `read_detections`
    reads the file.

    Args:
        results: an `ImageResult` per image.
        category_ids: ints `[C]`, the id in the annotation file of each label, such as
            `dataset.category_ids`.

    Returns:
        List of dicts `image_id`, `category_id`, `bbox` (`[x, y, width, height]` in
        pixels of the image) and `score`, all plain Python numbers.

    Raises:
        InvalidValueError: If a label has no id.

    Example:
        >>> result = ImageResult(7, [], [], [[20, 10, 40, 50]], [0.9], [0])
        >>> detections_to_coco([result], category_ids=[3])
        [{'image_id': 7, 'category_id': 3, 'bbox': [10.0, 20.0, 40.0, 20.0],
          'score': 0.9}]
    """
    highest = max((int(x.labels.max(initial=-1)) for x in results), default=-1)
    if highest >= len(category_ids):
        raise InvalidValueError(
            "`category_ids` must have an id for each label. Received: "
            f"{len(category_ids)} ids; label {highest}"
        )
    ids = np.array(category_ids, int)
    return [
        record
        for result in results
        for record in coco_records(
            result.image_id,
            yxyx_to_xywh(result.boxes),
            result.scores,
            ids[result.labels],
        )
    ]


def coco_numbers_of(
    results: Sequence[ImageResult], class_names: Sequence[str]
) -> dict[str, float]:
    """Computes COCO's numbers of results, as `COCOMetric` does.

    Args:
        results: an `ImageResult` per image, also for images without objects.
        class_names: strings `[C]`, in the order of the labels.

    Returns:
        Dict of floats: COCO's twelve, then `AP/<class>`; -1 where there is nothing to
        measure.

    Raises:
        InvalidValueError: If a label has no name, or two images have one id.

    Example:
        >>> result = ImageResult(
        ...     7, [[20, 10, 40, 50]], [0], [[20, 10, 40, 50]], [0.9], [0])
        >>> numbers = coco_numbers_of([result], ["cat"])
        >>> round(numbers["AP"], 3), list(numbers)[-1], numbers["APl"]
        (1.0, 'AP/cat', -1.0)
    """
    check_labels(results, class_names)
    ids = [result.image_id for result in results]
    if len(set(ids)) < len(ids):
        twice = next(i for n, i in enumerate(ids) if i in ids[:n])
        raise InvalidValueError(
            f"Every image must have one result. Received: two with image_id={twice}"
        )
    metric = COCOMetric(_ground_truth(results, class_names))
    for result in results:
        metric.update(result.image_id, result.boxes, result.scores, result.labels + 1)
    return metric.result()


def _ground_truth(results, class_names):
    """A COCO dict in which label `i` has the category id `i + 1`."""
    annotations = [
        {
            "image_id": result.image_id,
            "category_id": int(label) + 1,
            "bbox": box,
            "area": area,
            "iscrowd": int(is_crowd),
        }
        for result in results
        for box, label, area, is_crowd in zip(
            yxyx_to_xywh(result.truth_boxes).tolist(),
            result.truth_labels,
            result.truth_areas.tolist(),
            result.truth_is_crowd,
        )
    ]
    return {
        "images": [{"id": result.image_id} for result in results],
        "annotations": annotations,
        "categories": [
            {"id": label + 1, "name": name} for label, name in enumerate(class_names)
        ],
    }
