"""`ImageResult`s from ground truth and detections in COCO's formats."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from effdet_keras.box_ops import xywh_to_yxyx, yxyx_to_xywh
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.coco import RECORD_KEYS, COCOMetric, coco_records
from effdet_keras.evaluate.image_result import ImageResult
from effdet_keras.evaluate.matches import check_labels


def results_of_coco(
    ground_truth: Mapping[str, Any], detections: Iterable[Mapping[str, Any]]
) -> list[ImageResult]:
    """Brings ground truth and detections together, image by image.

    Labels are places in the ground truth's `categories`. Detections of categories that
    it does not have are left out, as COCO's evaluation does.

    Args:
        ground_truth: dict as in a COCO json file: `images`, `annotations`,
            `categories`.
        detections: dicts with `image_id`, `category_id`, `bbox` (`[x, y, width,
            height]` in pixels of the image) and `score`, as `read_detections` gives
            them.

    Returns:
        List of `ImageResult`, one for each image of the ground truth, in its order.

    Raises:
        ValueError: If a detection is of an image that the ground truth does not have.

    Example:
        >>> truth = {
        ...     "images": [{"id": 7, "file_name": "a.jpg", "height": 64, "width": 96}],
        ...     "categories": [{"id": 3, "name": "car"}],
        ...     "annotations": [{"image_id": 7, "category_id": 3,
        ...                      "bbox": [10, 20, 40, 30]}]}
        >>> found = [{"image_id": 7, "category_id": 3, "bbox": [10, 20, 40, 20],
        ...           "score": 0.9}]
        >>> result, = results_of_coco(truth, found)
        >>> result.truth_boxes.tolist(), result.boxes.tolist(), result.labels.tolist()
        ([[20.0, 10.0, 50.0, 50.0]], [[20.0, 10.0, 40.0, 50.0]], [0])
    """
    categories = [category["id"] for category in ground_truth["categories"]]
    label_of = {category_id: label for label, category_id in enumerate(categories)}
    truth: dict = {image["id"]: [] for image in ground_truth["images"]}
    found: dict = {image_id: [] for image_id in truth}
    for annotation in ground_truth["annotations"]:
        truth[annotation["image_id"]].append(annotation)
    for detection in detections:
        if detection["image_id"] not in found:
            raise InvalidValueError(
                "Detections must be of the images of the ground truth. Received: "
                f"image_id={detection['image_id']!r}, and {len(truth)} images with "
                f"ids like {sorted(truth)[:5]}"
            )
        if detection["category_id"] in label_of:
            found[detection["image_id"]].append(detection)
    return [
        _result_of(image, truth[image["id"]], found[image["id"]], label_of)
        for image in ground_truth["images"]
    ]


def _result_of(image, truth, found, label_of):
    size = image.get("height"), image.get("width")
    return ImageResult(
        image["id"],
        truth_boxes=_boxes(truth),
        truth_labels=[label_of[one["category_id"]] for one in truth],
        truth_is_crowd=[one.get("iscrowd", 0) for one in truth],
        truth_areas=[one.get("area", math.prod(one["bbox"][2:])) for one in truth],
        boxes=_boxes(found),
        scores=[one["score"] for one in found],
        labels=[label_of[one["category_id"]] for one in found],
        name=str(image.get("file_name", "")),
        size=None if None in size else size,
    )


def _boxes(rows):
    return xywh_to_yxyx(np.array([row["bbox"] for row in rows], float).reshape(-1, 4))


def read_detections(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Reads a file of detections in COCO's result format, of any system.

    It is a list of objects with `image_id`, `category_id`, `bbox` (`[x, y, width,
    height]` in pixels of the image) and `score`; or a COCO file with scores, as
    `effdet-keras predict --json` writes it, whose `annotations` are such a list.

    Args:
        path: path of a json file.

    Returns:
        List of dicts with those four keys.

    Raises:
        ValueError: If the file is no such list; the message names the first entry that
            is wrong.
        OSError: If it cannot be read.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "found.json")
        >>> _ = path.write_text(
        ...     '[{"image_id": 1, "category_id": 2, "bbox": [0, 0, 4, 4], "score": 1}]')
        >>> read_detections(path)[0]["bbox"]
        [0, 0, 4, 4]
    """
    keys = ", ".join(RECORD_KEYS)
    with open(path, encoding="utf-8") as file:
        try:
            content = json.load(file)
        except ValueError as error:  # a `UnicodeDecodeError` is one, too
            raise InvalidValueError(f"'{path}' is no json file: {error}") from error
    if isinstance(content, dict):
        content = content.get("annotations")
    if not isinstance(content, list):
        raise InvalidValueError(
            f"'{path}' must be a list of detections, each with {keys}."
        )
    for number, detection in enumerate(content):
        if not _is_detection(detection):
            raise InvalidValueError(
                f"Every detection must have {keys}: two whole numbers, a "
                "box of four finite ones, [x, y, width, height] in pixels, and a "
                "finite score. "
                f"Received: entry {number} of '{path}', {str(detection)[:200]}"
            )
    return content


def _is_detection(detection):
    if not isinstance(detection, dict) or not detection.keys() >= set(RECORD_KEYS):
        return False
    image_id, category_id, box, score = (detection[key] for key in RECORD_KEYS)
    numbers = [*box, score] if isinstance(box, list) else []
    are_numbers = (isinstance(x, (int, float)) and math.isfinite(x) for x in numbers)
    are_ids = isinstance(image_id, int) and isinstance(category_id, int)
    return are_ids and len(numbers) == 5 and all(are_numbers)


# --- `ImageResult`s as ground truth and detections in COCO's formats.


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
    """Computes COCO's numbers of results, as `COCOMetric` does."""
    check_labels(results, class_names)
    ids = [result.image_id for result in results]
    if len(set(ids)) < len(ids):
        twice = next(i for n, i in enumerate(ids) if i in ids[:n])
        raise InvalidValueError(
            f"Every image must have one result. Received: two with image_id={twice}"
        )
    # Label `i` has the category id `i + 1`.
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
    categories = [{"id": i, "name": name} for i, name in enumerate(class_names, 1)]
    images = [{"id": image_id} for image_id in ids]
    metric = COCOMetric(
        {"images": images, "annotations": annotations, "categories": categories}
    )
    for result in results:
        metric.update(result.image_id, result.boxes, result.scores, result.labels + 1)
    return metric.result()
