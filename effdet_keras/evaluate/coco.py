"""COCO metrics, and conversion of `ImageResult`s from and to COCO's formats."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras._internal.number_ranges import NumberRange
from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras.box_ops import xywh_to_yxyx, yxyx_to_xywh
from effdet_keras.errors import (
    InvalidValueError,
    check_argument,
    first_line,
    printable,
    require,
)
from effdet_keras.evaluate.image_result import (
    UNMEASURED,
    ImageResult,
    mean_of_measured,
    spread,
)

COCO_MEANINGS = {
    "AP": "precision, mean over IoU 0.50 to 0.95",
    "AP50": "precision at IoU 0.50",
    "AP75": "precision at IoU 0.75",
    "APs": "precision, objects under 32 x 32 pixels",
    "APm": "precision, objects from 32 x 32 to 96 x 96 pixels",
    "APl": "precision, objects over 96 x 96 pixels",
    "ARmax1": "recall, 1 detection per image",
    "ARmax10": "recall, 10 detections per image",
    "ARmax100": "recall, 100 detections per image",
    "ARs": "recall, objects under 32 x 32 pixels",
    "ARm": "recall, objects from 32 x 32 to 96 x 96 pixels",
    "ARl": "recall, objects over 96 x 96 pixels",
}
METRIC_NAMES = tuple(COCO_MEANINGS)

_hotcoco = OptionalModule("hotcoco", install="effdet-keras[fast-eval]")

# The modules that hold the classes `COCO` and `COCOeval`. hotcoco is 16 times as fast
# as pycocotools (benchmarks/coco_eval.py), and its arrays are bitwise equal to those of
# pycocotools (tests/evaluate/test_coco_metric.py).
BACKENDS = {
    "pycocotools": (
        OptionalModule("pycocotools.coco", install="pycocotools"),
        OptionalModule("pycocotools.cocoeval", install="pycocotools"),
    ),
    "hotcoco": (_hotcoco, _hotcoco),
}


class COCOMetric:
    """Collects detections, then computes COCO metrics.

    These are the twelve COCO metrics as pycocotools defines them. If hotcoco is
    installed (`effdet-keras[fast-eval]`), it computes the same values faster. Every
    image of the ground truth counts, whether `update` was called for it or not. A
    metric is -1 if there is nothing to measure.

    Args:
        ground_truth: dict as in a COCO json file (`images`, `annotations`,
            `categories`), or the path of such a file. An annotation without `area`
            gets the area of its box. An annotation without `iscrowd` is not a crowd
            region.
        max_detections: int of 10 or more, the number of detections per image and
            category that count, also for `AP`. It is part of the name of the recall,
            such as `ARmax300`.

    Raises:
        ValueError: If the image or category of an annotation does not exist, or an
            argument is out of its range.
        ImportError: From `result`, if neither hotcoco nor pycocotools is installed.

    Example:
        >>> metric = COCOMetric({
        ...     "images": [{"id": 7, "height": 100, "width": 100}],
        ...     "categories": [{"id": 3, "name": "car"}],
        ...     "annotations": [{"image_id": 7, "category_id": 3,
        ...                      "bbox": [10, 20, 40, 40]}]})
        >>> metric.update(7, boxes=[[20, 10, 60, 50]], scores=[0.9],
        ...               category_ids=[3])
        >>> result = metric.result()
        >>> [round(result[name], 3) for name in ("AP", "AP/car", "APs")]
        [1.0, 1.0, -1.0]
    """

    def __init__(
        self,
        ground_truth: dict[str, Any] | str | os.PathLike[str],
        *,
        max_detections: int = 100,
    ) -> None:
        expected = "10 or more, as COCO's recall is measured at 1 and at 10 as well"
        is_right = NumberRange("[10, inf)", whole=True).contains(max_detections)
        check_argument(is_right, "max_detections", max_detections, expected)
        self.max_detections = max_detections
        self.backend = "hotcoco" if _hotcoco.is_installed() else "pycocotools"
        if isinstance(ground_truth, (str, os.PathLike)):
            with open(ground_truth, encoding="utf-8") as file:
                ground_truth = json.load(file)
        self._ground_truth = _checked(ground_truth)
        self.image_ids = frozenset(x["id"] for x in self._ground_truth["images"])
        self.category_names = _unique_names(ground_truth["categories"])
        self.num_annotations = len(self._ground_truth["annotations"])
        self.reset()

    def reset(self) -> None:
        """Forgets all detections."""
        self._detections, self._result = {}, None

    def update(
        self,
        image_id: int,
        boxes: ArrayLike,
        scores: ArrayLike,
        category_ids: ArrayLike,
    ) -> None:
        """Adds the detections of one image; padding rows with category -1 are ignored.

        Args:
            image_id: int, the id of an image in the ground truth.
            boxes: floats `[n, 4]`, `yxyx` in pixels of the original image.
            scores: floats `[n]`.
            category_ids: ints `[n]`, category ids of the ground truth (not labels).
                Detections of other categories are ignored.

        Raises:
            ValueError: If the ground truth does not have the image, `update` was called
                with it before, or the lengths differ.
        """
        image_id = int(image_id)
        boxes = np.asarray(boxes, "float64").reshape(-1, 4)
        scores = np.asarray(scores, "float64").reshape(-1)
        category_ids = np.asarray(category_ids).astype("int64").reshape(-1)
        rule = "`boxes`, `scores` and `category_ids` must be of the same length"
        is_one = len(boxes) == len(scores) == len(category_ids)
        received = {"boxes": len(boxes), "scores": len(scores)}
        require(is_one, rule, **received, category_ids=len(category_ids))
        some = sorted(self.image_ids)[:5]
        rule = f"`image_id` must be an image of the ground truth, such as {some}"
        require(image_id in self.image_ids, rule, image_id=image_id)
        rule = "`update` takes each image once: call `reset()` before a new evaluation"
        require(image_id not in self._detections, rule, image_id=image_id)
        best = np.argsort(-scores, kind="stable")
        best = best[np.isin(category_ids[best], list(self.category_names))]
        # COCO keeps the best `max_detections` of each category, so no others can count.
        best = best[rank_within(category_ids[best]) < self.max_detections]
        found = yxyx_to_xywh(boxes[best]), scores[best], category_ids[best]
        self._detections[image_id] = (*found, len(boxes))
        self._result = None

    def result(self) -> dict[str, float]:
        """Returns the twelve COCO metrics, then `AP/<category name>` per category."""
        if self._result is None:
            self._warn_if_no_category_fits()
            self._result = self._computed()
        return dict(self._result)

    @property
    def has_result(self) -> bool:
        """Whether `update` was called since the last `reset`."""
        return bool(self._detections)

    def table(self) -> str:
        """Returns the result as text, one line per metric."""
        result = self.result()
        values = {k: "   -  " if v == -1 else f"{v:6.4f}" for k, v in result.items()}
        last = COCO_MEANINGS["ARmax100"].replace("100", str(self.max_detections))
        meanings = {**COCO_MEANINGS, "ARmax100": last}.values()
        lines = [
            f"{len(self._detections)} of {len(self.image_ids)} images evaluated, "
            f"{self.num_annotations} annotations"
        ]
        for name, meaning in zip(self._names(), meanings):
            lines.append(f"  {name:<9} {values.pop(name)}  {meaning}")
        width = max(map(len, values), default=0)
        lines += [f"  {name:<{width}} {value}" for name, value in values.items()]
        return printable("\n".join(lines))

    def _names(self):
        """Returns the names of the twelve metrics.

        The third recall has `max_detections` in its name, as in `ARmax300`.
        """
        last = f"ARmax{self.max_detections}"
        return [last if name == "ARmax100" else name for name in METRIC_NAMES]

    def _computed(self):
        precision, recall = self._arrays()
        everything, *sizes = range(4)
        measured = [
            *(precision[iou, ..., everything] for iou in (slice(None), 0, 5)),
            *(precision[..., size] for size in sizes),
            *(recall[..., everything, limit] for limit in range(3)),
            *(recall[..., size, 2] for size in sizes),
        ]
        result = dict(zip(self._names(), map(mean_of_measured, measured)))
        for index, name in enumerate(self.category_names.values()):
            of_category = precision[:, :, index, everything]
            result[f"AP/{name}"] = mean_of_measured(of_category)
        return result

    def _arrays(self):
        """Returns COCO's arrays of precision and recall.

        Precision is `[10 IoUs, 101 recalls, C, 4 areas]`, with `max_detections`
        detections. Recall is `[10 IoUs, C, 4 areas, 3]`; its last axis is for 1, 10 and
        `max_detections` detections.
        """
        coco, coco_eval = BACKENDS[self.backend]
        with contextlib.redirect_stdout(io.StringIO()):
            indices = []
            for rows in (self._ground_truth["annotations"], list(self._records())):
                indices.append(coco.COCO())
                indices[-1].dataset = {**self._ground_truth, "annotations": rows}
                indices[-1].createIndex()
            evaluation = coco_eval.COCOeval(*indices, "bbox")
            evaluation.params.maxDets = [1, 10, self.max_detections]
            evaluation.evaluate()
            evaluation.accumulate()
        precision, recall = (evaluation.eval[key] for key in ("precision", "recall"))
        return np.asarray(precision)[..., 2], np.asarray(recall)

    def _records(self):
        """Yields the detections as records for pycocotools, with ids from 1."""
        records = itertools.chain.from_iterable(
            coco_records(image_id, *arrays)
            for image_id, (*arrays, _) in self._detections.items()
        )
        for number, record in enumerate(records, start=1):
            _, _, width, height = record["bbox"]
            yield {**record, "id": number, "area": width * height, "iscrowd": 0}

    def _warn_if_no_category_fits(self):
        found = self._detections.values()
        given, fitting = sum(x[-1] for x in found), sum(len(x[1]) for x in found)
        if given and not fitting:
            ids = list(self.category_names)[:5]
            warnings.warn(
                f"The ground truth has category ids such as {ids}, but none of the "
                f"{given:,} detections has one of its ids. `update` takes category "
                "ids, not labels.",
                stacklevel=3,
            )


def _checked(ground_truth):
    """Checks a COCO dict, and copies the keys that are used; fills in defaults."""
    image_ids = {image["id"] for image in ground_truth["images"]}
    category_ids = {category["id"] for category in ground_truth["categories"]}
    annotations = []
    for number, annotation in enumerate(ground_truth["annotations"], start=1):
        image_id, category_id = annotation["image_id"], annotation["category_id"]
        require(
            image_id in image_ids and category_id in category_ids,
            "Each annotation of `ground_truth` must have the id of one of its images "
            "and the id of one of its categories",
            image_id=image_id,
            category_id=category_id,
        )
        annotations.append(
            {
                # pycocotools reads an id of 0 as "not matched", so ids start at 1.
                "id": number,
                "image_id": image_id,
                "category_id": category_id,
                "bbox": list(annotation["bbox"]),  # pycocotools does not accept tuples
                "area": annotation.get("area", math.prod(annotation["bbox"][2:])),
                "iscrowd": annotation.get("iscrowd", 0),
            }
        )
    # hotcoco warns about a category without a name.
    categories = [{"id": id_, "name": str(id_)} for id_ in sorted(category_ids)]
    images = [{"id": image["id"]} for image in ground_truth["images"]]
    return {"images": images, "categories": categories, "annotations": annotations}


def _unique_names(categories):
    """Maps category ids to names, in ascending order of ids.

    The id is appended to a repeated name, to make it unique.
    """
    names = {}
    for category in sorted(categories, key=lambda category: category["id"]):
        name = str(category.get("name", category["id"]))
        is_repeated = name in names.values()
        names[category["id"]] = f"{name} ({category['id']})" if is_repeated else name
    return names


def rank_within(groups):
    """Counts, for each element, the elements of the same group before it."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])[: len(groups)]
    counts = np.diff(np.r_[starts, len(groups)])
    rank = np.empty(len(groups), "int64")
    rank[order] = np.arange(len(groups)) - np.repeat(starts, counts)
    return rank


# --- Conversion of `ImageResult`s from and to COCO's formats.

RECORD_KEYS = ("image_id", "category_id", "bbox", "score")


def coco_records(
    image_id: int, boxes_xywh: ArrayLike, scores: ArrayLike, category_ids: ArrayLike
) -> Iterator[dict[str, Any]]:
    """Yields a record of COCO's result format per detection, plain Python numbers."""
    rows = (np.asarray(boxes_xywh, float), np.asarray(scores, float))
    ids = np.asarray(category_ids).astype(int)
    for box, score, category_id in zip(*(x.tolist() for x in (*rows, ids))):
        yield dict(zip(RECORD_KEYS, (image_id, category_id, box, score)))


def results_of_coco(
    ground_truth: Mapping[str, Any], detections: Iterable[Mapping[str, Any]]
) -> list[ImageResult]:
    """Combines ground truth and detections, image by image.

    Labels are positions in the ground truth's `categories`. Detections of other
    categories are left out, as in COCO's evaluation.

    Args:
        ground_truth: dict as in a COCO json file.
        detections: dicts with `image_id`, `category_id`, `bbox` (`[x, y, width,
            height]` in pixels of the image) and `score`: COCO's result format.

    Returns:
        List of `ImageResult`, one for each image of the ground truth, in its order.

    Raises:
        ValueError: If the image of a detection is not in the ground truth.

    Example:
        >>> truth = {
        ...     "images": [{"id": 7, "file_name": "a.jpg", "height": 64, "width": 96}],
        ...     "categories": [{"id": 3, "name": "car"}], "annotations": []}
        >>> found = [{"image_id": 7, "category_id": 3, "bbox": [10, 20, 40, 20],
        ...           "score": 0.9}]
        >>> result, = results_of_coco(truth, found)
        >>> result.boxes.tolist(), result.labels.tolist()
        ([[20.0, 10.0, 40.0, 50.0]], [0])
    """
    categories = [category["id"] for category in ground_truth["categories"]]
    label_of = {category_id: label for label, category_id in enumerate(categories)}
    truth = {image["id"]: [] for image in ground_truth["images"]}
    found = {image_id: [] for image_id in truth}
    for annotation in ground_truth["annotations"]:
        truth[annotation["image_id"]].append(annotation)
    for detection in detections:
        image_id = detection["image_id"]
        if image_id not in found:
            some = sorted(truth)[:5]
            rule = "Each detection must have the `image_id` of an image of the ground "
            rule += f"truth, such as {some}"
            if str(image_id) in map(str, truth):
                rule += ". A number and a string with this number are different ids"
            require(False, rule, image_id=image_id)
        if detection["category_id"] in label_of:
            found[image_id].append(detection)

    def of(rows, prefix=""):
        boxes = np.float64([row["bbox"] for row in rows]).reshape(-1, 4)
        labels = [label_of[row["category_id"]] for row in rows]
        return {f"{prefix}boxes": xywh_to_yxyx(boxes), f"{prefix}labels": labels}

    return [
        ImageResult(
            image["id"],
            **of(objects := truth[image["id"]], "truth_"),
            truth_is_crowd=[x.get("iscrowd", 0) for x in objects],
            truth_areas=[x.get("area", math.prod(x["bbox"][2:])) for x in objects],
            **of(rows := found[image["id"]]),
            scores=[row["score"] for row in rows],
            name=str(image.get("file_name", "")),
            size=(image["height"], image["width"]) if image.get("width") else None,
        )
        for image in ground_truth["images"]
    ]


def read_detections(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Reads a file in COCO's result format, or a COCO file with scores.

    Args:
        path: path of a json file.

    Returns:
        List of dicts with at least `image_id`, `category_id`, `bbox` and `score`.

    Raises:
        ValueError: If the file is not a list of such detections.
        FileNotFoundError: If there is no such file.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(
            f"'{path}' is not valid json: {first_line(error)}. Give a file in COCO's "
            "result format, such as `eval --json` writes."
        ) from error
    content = content.get("annotations") if isinstance(content, dict) else content
    rule = f"'{path}' must be a list of detections, each with {', '.join(RECORD_KEYS)}"
    require(isinstance(content, list), rule, found=type(content).__name__)
    for number, row in enumerate(content):
        require(_is_detection(row), rule, entry=number, found=row)
    return content


def _is_detection(row):
    if not isinstance(row, dict) or not row.keys() >= set(RECORD_KEYS):
        return False
    box = row["bbox"]
    if not isinstance(box, list) or len(box) != 4:
        return False
    ids, numbers = (row["image_id"], row["category_id"]), (*box, row["score"])
    are_ids = all(isinstance(x, (int, float, str)) for x in ids)
    are_numbers = all(isinstance(x, (int, float)) for x in numbers)
    return are_ids and are_numbers and all(map(math.isfinite, numbers))


def detections_to_coco(
    results: Sequence[ImageResult], category_ids: Sequence[int]
) -> list[dict[str, Any]]:
    """Converts detections to COCO's result format; label `i` gets the `i`-th id."""
    ids, records = np.array(category_ids, int), []
    for x in results:
        boxes_xywh = yxyx_to_xywh(x.boxes)
        records += coco_records(x.image_id, boxes_xywh, x.scores, ids[x.labels])
    return records


def metric_of(
    results: Sequence[ImageResult],
    class_names: Sequence[str],
    *,
    max_detections: int = 100,
) -> COCOMetric:
    """Makes a `COCOMetric` of results; label `i` gets the category id `i + 1`."""
    rule = "`class_names` must have a name for each label; padding rows are left out"
    for x in results:
        wrong = {*x.truth_labels, *x.labels} - {*range(len(class_names))}
        require(not wrong, rule, image_id=x.image_id, labels=[*map(int, wrong)])
    ids = [result.image_id for result in results]
    twice = [i for i, count in Counter(ids).items() if count > 1]
    require(not twice, "Every image must have one result", image_id=twice[:1])
    keys = "image_id", "category_id", "bbox", "area", "iscrowd"
    annotations = [
        dict(zip(keys, (result.image_id, *values)))
        for result in results
        for values in zip(
            (result.truth_labels + 1).tolist(),
            yxyx_to_xywh(result.truth_boxes).tolist(),
            result.truth_areas.tolist(),
            result.truth_is_crowd.astype(int).tolist(),
        )
    ]
    categories = [{"id": i, "name": name} for i, name in enumerate(class_names, 1)]
    images = [{"id": image_id} for image_id in ids]
    metric = COCOMetric(
        {"images": images, "annotations": annotations, "categories": categories},
        max_detections=max_detections,
    )
    for result in results:
        metric.update(result.image_id, result.boxes, result.scores, result.labels + 1)
    return metric


def results_of_metric(metric: COCOMetric, count: int) -> list[ImageResult]:
    """Returns the `ImageResult`s of at most `count` of a metric's images."""
    ids, truth = set(spread(sorted(metric.image_ids), count)), metric._ground_truth
    found = {i: x for i, x in metric._detections.items() if i in ids}
    records = [row for i, (*x, _) in found.items() for row in coco_records(i, *x)]
    rows = [x for x in truth["annotations"] if x["image_id"] in ids]
    images = [{"id": image_id} for image_id in sorted(ids)]
    return results_of_coco({**truth, "images": images, "annotations": rows}, records)


def average_precisions(results: Sequence[ImageResult], num_classes: int) -> np.ndarray:
    """Computes COCO's AP without a limit on detections: `[10 IoUs, C, 4 areas]`.

    An AP that cannot be measured is -1.
    """
    if not any((~result.truth_is_crowd).any() for result in results):
        return np.full((10, num_classes, 4), UNMEASURED)
    limit = max(10, *(len(result.scores) for result in results))
    metric = metric_of(results, range(num_classes), max_detections=limit)
    return metric._arrays()[0].mean(axis=1)
