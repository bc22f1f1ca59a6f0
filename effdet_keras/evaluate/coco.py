"""`COCOMetric`: collects the detections of a dataset for COCO's evaluation."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras.box_ops import yxyx_to_xywh
from effdet_keras.errors import InvalidValueError
from effdet_keras.evaluate.image_result import mean_of_measured

_MEANING_OF_ALL = "recall, %d detections per image"
COCO_MEANINGS = {
    "AP": "precision, mean over IoU 0.50 to 0.95",
    "AP50": "precision at IoU 0.50",
    "AP75": "precision at IoU 0.75",
    "APs": "precision, objects under 32 x 32 pixels",
    "APm": "precision, objects between",
    "APl": "precision, objects over 96 x 96 pixels",
    "ARmax1": "recall, 1 detection per image",
    "ARmax10": "recall, 10 detections per image",
    "ARmax100": _MEANING_OF_ALL % 100,
    "ARs": "recall, objects under 32 x 32 pixels",
    "ARm": "recall, objects between",
    "ARl": "recall, objects over 96 x 96 pixels",
}

METRIC_NAMES: tuple[str, ...] = tuple(COCO_MEANINGS)


class COCOMetric:
    """Collects detections, then computes COCO's numbers.

    They are the twelve numbers of the COCO challenge, as pycocotools defines them,
    on the annotations as they are in the file: with its ids, its areas and its crowd
    regions. Every image of the file counts. Where `update` was not called for an
    image, or without detections, all of its annotations count as missed. A number is
    -1 where the file has nothing to measure it on, such as a category without
    annotations.

    Memory holds only what can count: of each image and category the
    `max_detections` best detections, as arrays.

    Args:
        ground_truth: dict as in a COCO json file (`images`, `annotations`,
            `categories`), or the path of such a file. An annotation without `area`
            gets the area of its box; one without `iscrowd` is no crowd region.
        max_detections: int of 10 or more, how many detections per image and category
            count, for `AP` too. COCO uses 100. With another value the recall has
            that value in its name, as in `ARmax300`.
        backend: "pycocotools", COCO's own code; "hotcoco", the same numbers sooner
            (`pip install effdet-keras[fast-eval]`); or "auto", hotcoco where it is
            installed and pycocotools elsewhere.

    Raises:
        ValueError: If `ground_truth` is not such a dict, or an argument is out of
            its range.
        FileNotFoundError: If `ground_truth` is a path and there is no such file.
        ImportError: If the backend that was asked for is not installed.

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
        backend: str = "auto",
    ) -> None:
        if max_detections < 10:
            raise InvalidValueError(
                "`max_detections` must be 10 or more: COCO's recall at 1 and at 10 "
                f"comes with it. Received: {max_detections}"
            )
        self.max_detections = max_detections
        self.backend = _resolved(backend)
        if isinstance(ground_truth, (str, os.PathLike)):
            with open(ground_truth, encoding="utf-8") as file:
                ground_truth = json.load(file)
        self._ground_truth = _checked(ground_truth)
        self.image_ids = frozenset(
            image["id"] for image in self._ground_truth["images"]
        )
        self.category_names = _unique_names(ground_truth["categories"])
        self.num_annotations = len(self._ground_truth["annotations"])
        self.reset()

    def reset(self) -> None:
        """Forgets all detections."""
        self._detections = {}
        self._result = None

    def update(
        self,
        image_id: int,
        boxes: ArrayLike,
        scores: ArrayLike,
        category_ids: ArrayLike,
    ) -> None:
        """Adds the detections of one image.

        Leaves out rows whose category is not in the file, such as padding rows
        with -1.

        Args:
            image_id: int, the id of an image in the file.
            boxes: floats `[n, 4]`, `yxyx` in pixels of the original image. `n` may
                be 0.
            scores: floats `[n]`.
            category_ids: ints `[n]`, category ids of the file (not labels).

        Raises:
            ValueError: If the file has no such image, `update` was called with this
                image before, or the lengths differ.
        """
        image_id = int(image_id)
        boxes = np.asarray(boxes, "float64").reshape(-1, 4)
        scores = np.asarray(scores, "float64").reshape(-1)
        category_ids = np.asarray(category_ids).astype("int64").reshape(-1)
        if not len(boxes) == len(scores) == len(category_ids):
            raise InvalidValueError(
                "`boxes`, `scores` and `category_ids` must have one length. "
                f"Received: {len(boxes)}, {len(scores)}, {len(category_ids)}"
            )
        if image_id not in self.image_ids:
            raise InvalidValueError(
                f"The ground truth has no image with id {image_id}. Its "
                f"{len(self.image_ids)} images have ids like "
                f"{sorted(self.image_ids)[:5]}."
            )
        if image_id in self._detections:
            raise InvalidValueError(
                f"`update` was called twice with image_id={image_id}. Call `reset()` "
                "before a new evaluation."
            )
        best = np.argsort(-scores, kind="stable")
        best = best[np.isin(category_ids[best], list(self.category_names))]
        # COCO takes the best of each category, so no more than this can count.
        best = best[rank_within(category_ids[best]) < self.max_detections]
        self._detections[image_id] = (
            yxyx_to_xywh(boxes[best]),
            scores[best],
            category_ids[best],
            len(boxes),
        )
        self._result = None

    def result(self) -> dict[str, float]:
        """Computes the numbers of all images.

        Returns:
            Dict of floats, 0 to 1, or -1 where there is nothing to measure:
            COCO's twelve (`AP` first), then `AP/<category name>` for each category
            of the file, in the order of the category ids.
        """
        if self._result is None:
            self._warn_if_no_category_fits()
            self._result = _numbers(
                self.backend,
                self._ground_truth,
                list(self._records()),
                self.category_names,
                self.max_detections,
            )
        return dict(self._result)

    @property
    def has_result(self) -> bool:
        """Whether there are detections to compare."""
        return bool(self._detections)

    def table(self) -> str:
        """Writes the result as a text with one line per number.

        Returns:
            str: the twelve numbers and what they mean, then the categories.
        """
        result = self.result()
        lines = [
            f"{len(self._detections)} of {len(self.image_ids)} images evaluated, "
            f"{self.num_annotations} annotations"
        ]
        meanings = {**COCO_MEANINGS, "ARmax100": _MEANING_OF_ALL % self.max_detections}
        for name, meaning in zip(_names(self.max_detections), meanings.values()):
            lines.append(f"  {name:<9} {_number(result[name])}  {meaning}")
        names = [key for key in result if key.startswith("AP/")]
        width = max((len(name) for name in names), default=0)
        lines += [f"  {name:<{width}} {_number(result[name])}" for name in names]
        return "\n".join(lines)

    def _records(self):
        """The detections as pycocotools takes them, numbered from 1."""
        records = itertools.chain.from_iterable(
            coco_records(image_id, *arrays)
            for image_id, (*arrays, _) in self._detections.items()
        )
        for number, record in enumerate(records, start=1):
            _, _, width, height = record["bbox"]
            yield {**record, "id": number, "area": width * height, "iscrowd": 0}

    def _warn_if_no_category_fits(self):
        given = sum(count for *_, count in self._detections.values())
        if given and not any(
            len(scores) for _, scores, *_ in self._detections.values()
        ):
            names = [f"{i}: {name!r}" for i, name in self.category_names.items()]
            shown = ", ".join(names[:5] + ["..."] * (len(names) > 5))
            warnings.warn(
                f"None of the {given} detections has a category of the ground truth, "
                f"{{{shown}}}, so none counts. `update` takes the "
                "category ids of the file, not labels.",
                stacklevel=3,
            )


def _checked(ground_truth):
    """A checked copy of what counts in a COCO dict, with its optional keys."""
    missing = [
        key
        for key in ("images", "annotations", "categories")
        if not isinstance(ground_truth, dict) or key not in ground_truth
    ]
    if missing:
        raise InvalidValueError(
            "`ground_truth` must be a dict as in a COCO json file, with 'images', "
            f"'annotations' and 'categories'. Missing: {missing}. "
            f"Received: {type(ground_truth).__name__}"
        )
    image_ids = {image["id"] for image in ground_truth["images"]}
    category_ids = {category["id"] for category in ground_truth["categories"]}
    annotations = []
    for number, annotation in enumerate(ground_truth["annotations"], start=1):
        if (
            annotation["image_id"] not in image_ids
            or annotation["category_id"] not in category_ids
        ):
            raise InvalidValueError(
                "Every annotation of `ground_truth` must name an image and a category "
                f"that are in it. Received: image_id={annotation['image_id']}, "
                f"category_id={annotation['category_id']}"
            )
        width, height = annotation["bbox"][2:]
        annotations.append(
            {
                # pycocotools reads an id of 0 as "not matched", so ids start at 1.
                "id": number,
                "image_id": annotation["image_id"],
                "category_id": annotation["category_id"],
                "bbox": list(annotation["bbox"]),  # it takes no tuples
                "area": annotation.get("area", width * height),
                "iscrowd": annotation.get("iscrowd", 0),
            }
        )
    return {
        "images": [{"id": image["id"]} for image in ground_truth["images"]],
        "categories": [
            # hotcoco warns of a category without a name.
            {"id": category["id"], "name": str(category["id"])}
            for category in ground_truth["categories"]
        ],
        "annotations": annotations,
    }


def _unique_names(categories):
    """Category id -> name, in ascending id; a repeated name gets its id."""
    names = {}
    for category in sorted(categories, key=lambda category: category["id"]):
        name = str(category.get("name", category["id"]))
        if name in names.values():
            name = f"{name} ({category['id']})"
        names[category["id"]] = name
    return names


def rank_within(groups):
    """For each element, how many of its group come before it."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])[: len(groups)]
    counts = np.diff(np.r_[starts, len(groups)])
    rank = np.empty(len(groups), "int64")
    rank[order] = np.arange(len(groups)) - np.repeat(starts, counts)
    return rank


def _number(value):
    return "   -  " if value == -1 else f"{value:6.4f}"


# --- COCO's evaluation itself, by pycocotools or a faster package: dicts to numbers.

_hotcoco = OptionalModule("hotcoco", install="effdet-keras[fast-eval]")

# The modules that hold the classes `COCO` and `COCOeval`. hotcoco is 16 times as fast
# (benchmarks/coco_eval.py), and its arrays are those of pycocotools, bit by bit
# (tests/evaluate/test_coco_metric.py).
BACKENDS = {
    "pycocotools": (
        OptionalModule("pycocotools.coco", install="pycocotools"),
        OptionalModule("pycocotools.cocoeval", install="pycocotools"),
    ),
    "hotcoco": (_hotcoco, _hotcoco),
}


def _resolved(backend):
    """The name of the backend to use; "auto" is hotcoco where it is installed."""
    if backend != "auto" and backend not in BACKENDS:
        raise InvalidValueError(
            f"`backend` must be 'auto' or one of {', '.join(map(repr, BACKENDS))}. "
            f"Received: backend={backend!r}"
        )
    if backend == "auto":
        return "hotcoco" if _hotcoco.is_installed() else "pycocotools"
    if backend == "hotcoco":
        _hotcoco.require("`COCOMetric(backend='hotcoco')`")
    return backend


def _numbers(backend, ground_truth, detections, category_names, max_detections):
    """COCO's twelve numbers, and the AP of the categories."""
    coco, coco_eval = BACKENDS[backend]
    with contextlib.redirect_stdout(io.StringIO()):
        indices = []
        for annotations in (ground_truth["annotations"], detections):
            indices.append(coco.COCO())
            indices[-1].dataset = {**ground_truth, "annotations": annotations}
            indices[-1].createIndex()
        evaluation = coco_eval.COCOeval(*indices, "bbox")
        evaluation.params.maxDets = [1, 10, max_detections]
        evaluation.evaluate()
        evaluation.accumulate()
    # [IoU threshold, recall, category, area, max detections] and without recall
    precision = np.asarray(evaluation.eval["precision"])[..., 2]
    recall = np.asarray(evaluation.eval["recall"])
    iou50, iou75 = (
        int(np.flatnonzero(np.isclose(evaluation.params.iouThrs, threshold))[0])
        for threshold in (0.5, 0.75)
    )
    everything, *sizes = range(4)
    measured = [
        *(precision[iou, ..., everything] for iou in (slice(None), iou50, iou75)),
        *(precision[..., size] for size in sizes),
        *(recall[..., everything, limit] for limit in range(3)),
        *(recall[..., size, 2] for size in sizes),
    ]
    result = dict(zip(_names(max_detections), map(mean_of_measured, measured)))
    for index, category_id in enumerate(evaluation.params.catIds):
        of_category = precision[:, :, index, everything]
        result[f"AP/{category_names[category_id]}"] = mean_of_measured(of_category)
    return result


def _names(max_detections):
    """COCO's twelve names; the recall of all detections has their number in it."""
    last = f"ARmax{max_detections}"
    return [last if name == "ARmax100" else name for name in METRIC_NAMES]


# --- Detections of an image as records of COCO's result format: the one place.


RECORD_KEYS = ("image_id", "category_id", "bbox", "score")


def coco_records(
    image_id: int, boxes_xywh: ArrayLike, scores: ArrayLike, category_ids: ArrayLike
) -> Iterator[dict[str, Any]]:
    """Gives a record per detection, all plain Python numbers."""
    rows = (np.asarray(boxes_xywh, float), np.asarray(scores, float))
    ids = np.asarray(category_ids).astype(int)
    for box, score, category_id in zip(*(x.tolist() for x in (*rows, ids))):
        yield dict(zip(RECORD_KEYS, (image_id, category_id, box, score)))
