"""COCO's average precision and recall, by pycocotools, from detections."""

import contextlib
import importlib
import importlib.util
import io
import json
import os
import warnings

import numpy as np

from effdet_keras.errors import InvalidValueError, MissingPackageError

METRIC_NAMES = (
    "AP",
    "AP50",
    "AP75",
    "APs",
    "APm",
    "APl",
    "ARmax1",
    "ARmax10",
    "ARmax100",
    "ARs",
    "ARm",
    "ARl",
)

# Where the classes `COCO` and `COCOeval` of a backend are. hotcoco is 16 times as
# fast (benchmarks/coco_eval.py), and its arrays are those of pycocotools, bit by bit
# (tests/test_metrics.py).
_BACKENDS = {
    "pycocotools": ("pycocotools.coco", "pycocotools.cocoeval"),
    "hotcoco": ("hotcoco", "hotcoco"),
}

_MEANINGS = {
    "AP": "precision, mean over IoU 0.50 to 0.95",
    "AP50": "precision at IoU 0.50",
    "AP75": "precision at IoU 0.75",
    "APs": "precision, objects under 32 x 32 pixels",
    "APm": "precision, objects between",
    "APl": "precision, objects over 96 x 96 pixels",
    "ARmax1": "recall, 1 detection an image",
    "ARmax10": "recall, 10 detections an image",
    "ARmax100": "recall, 100 detections an image",
    "ARs": "recall, objects under 32 x 32 pixels",
    "ARm": "recall, objects between",
    "ARl": "recall, objects over 96 x 96 pixels",
}


class COCOMetric:
    """Collects detections, then computes COCO's numbers.

    The twelve numbers of the COCO challenge, as pycocotools defines them,
    on the annotations as they are in the file: its ids, its areas, its crowd
    regions. Every image of the file counts; one that got no detections, or
    was never given to `update`, counts as missed. A number is -1 where the
    file has nothing to measure it on: a category without objects, no small
    objects.

    What cannot count is dropped at once and the rest kept as arrays: at most
    `max_detections` for each image and category.

    Args:
        ground_truth: dict in the form of a COCO json file (`images`,
            `annotations`, `categories`), or the path of such a file.
            Annotations without `area` get that of their box, without
            `iscrowd` 0.
        max_detections: int of 10 or more: detections an image that count,
            for `AP` too. COCO uses 100; other values name the recall after
            themselves, as in `ARmax300`.
        backend: "pycocotools", the judge; "hotcoco", the same numbers sooner
            (`pip install effdet-keras[fast-eval]`); "auto", hotcoco where it
            is installed.

    Raises:
        ValueError: If `ground_truth` is not in this form, or an argument is
            out of its range.
        FileNotFoundError: If its path is not a file.
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

    def __init__(self, ground_truth, *, max_detections=100, backend="auto"):
        if max_detections < 10:
            raise InvalidValueError(
                "`max_detections` must be 10 or more: COCO's recall at 1 and at 10 "
                f"comes with it. Received: {max_detections}"
            )
        self.max_detections = max_detections
        self.backend = _resolve_backend(backend)
        if isinstance(ground_truth, (str, os.PathLike)):
            with open(ground_truth, encoding="utf-8") as file:
                ground_truth = json.load(file)
        self._truth = _checked(ground_truth)
        self.image_ids = frozenset(image["id"] for image in self._truth["images"])
        self.category_names = _unique_names(ground_truth["categories"])
        self.num_annotations = len(self._truth["annotations"])
        self.reset()

    def reset(self):
        """Forgets all detections. Returns `None`."""
        self._detections = {}
        self._result = None

    def update(self, image_id, boxes, scores, category_ids):
        """Adds the detections of one image.

        Rows whose category the file does not have, such as padding rows with
        -1, are left out.

        Args:
            image_id: int, an image of the file.
            boxes: `[n, 4]`, `yxyx` in pixels of the original image. `n` may
                be 0.
            scores: `[n]`.
            category_ids: `[n]`, ints, ids of the file (not labels).

        Raises:
            ValueError: If the file has no such image, the image was given
                before, or the lengths differ.
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
        best = best[_rank_within(category_ids[best]) < self.max_detections]
        self._detections[image_id] = (
            _xywh(boxes[best]),
            scores[best],
            category_ids[best],
            len(boxes),
        )
        self._result = None

    def result(self):
        """Computes the numbers of all images.

        Returns:
            Dict of floats, 0 to 1, or -1 where there is nothing to measure:
            the twelve of COCO (`AP` first), then `AP/<category name>` for
            each category of the file, in the order of their ids.
        """
        if self._result is None:
            self._warn_if_no_category_fits()
            self._result = self._evaluate()
        return dict(self._result)

    def table(self):
        """Writes the result as a text of one line a number.

        Returns:
            str: the twelve numbers with what they mean, then the categories.
        """
        result = self.result()
        lines = [
            f"{len(self._detections)} of {len(self.image_ids)} images evaluated, "
            f"{self.num_annotations} annotations"
        ]
        for name, meaning in _MEANINGS.items():
            if name == "ARmax100":
                name = f"ARmax{self.max_detections}"
                meaning = f"recall, {self.max_detections} detections an image"
            lines.append(f"  {name:<9} {_number(result[name])}  {meaning}")
        names = [key for key in result if key.startswith("AP/")]
        width = max((len(name) for name in names), default=0)
        lines += [f"  {name:<{width}} {_number(result[name])}" for name in names]
        return "\n".join(lines)

    def _evaluate(self):
        truth = self._truth
        found = {**truth, "annotations": list(self._records())}
        with contextlib.redirect_stdout(io.StringIO()):
            coco, coco_eval = _load_backend(self.backend)
            evaluation = coco_eval(_index(coco, truth), _index(coco, found), "bbox")
            evaluation.params.maxDets = [1, 10, self.max_detections]
            evaluation.evaluate()
            evaluation.accumulate()
        return _summarize(evaluation, self.category_names, self.max_detections)

    def _records(self):
        """The detections in the form that pycocotools wants, numbered from 1."""
        number = 0
        for image_id, (boxes_xywh, scores, categories, _) in self._detections.items():
            for box, score, category in zip(
                boxes_xywh.tolist(), scores.tolist(), categories.tolist()
            ):
                number += 1
                yield {
                    "id": number,
                    "image_id": image_id,
                    "category_id": category,
                    "bbox": box,
                    "area": box[2] * box[3],
                    "score": score,
                    "iscrowd": 0,
                }

    def _warn_if_no_category_fits(self):
        given = sum(count for *_, count in self._detections.values())
        kept = sum(len(scores) for _, scores, *_ in self._detections.values())
        if given and not kept:
            warnings.warn(
                f"None of the {given} detections has a category of the ground truth "
                f"{_shorten(self.category_names)}, so none counts. `category_ids` are "
                "the ids of the file, not labels.",
                stacklevel=3,
            )


def _checked(ground_truth):
    """A checked copy of what counts in a COCO dict, its optional keys filled."""
    missing = [
        key
        for key in ("images", "annotations", "categories")
        if not isinstance(ground_truth, dict) or key not in ground_truth
    ]
    if missing:
        raise InvalidValueError(
            "`ground_truth` must be in the form of a COCO json file, a dict with "
            f"'images', 'annotations' and 'categories'. Missing: {missing}. "
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
                "An annotation of `ground_truth` names an image or a category that "
                f"is not in it. Received: image_id={annotation['image_id']}, "
                f"category_id={annotation['category_id']}"
            )
        width, height = annotation["bbox"][2:]
        annotations.append(
            {
                # pycocotools takes an id of 0 for "not matched": they start at 1.
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


def _resolve_backend(backend):
    if backend != "auto" and backend not in _BACKENDS:
        raise InvalidValueError(
            f"`backend` must be 'auto' or one of {', '.join(map(repr, _BACKENDS))}. "
            f"Received: backend={backend!r}"
        )
    has_hotcoco = importlib.util.find_spec("hotcoco") is not None
    if backend == "hotcoco" and not has_hotcoco:
        raise MissingPackageError(
            "`COCOMetric(backend='hotcoco')` needs hotcoco, which is not installed. "
            "Run `pip install effdet-keras[fast-eval]`, or leave `backend` out."
        )
    if backend == "auto":
        return "hotcoco" if has_hotcoco else "pycocotools"
    return backend


def _load_backend(backend):
    """The classes `COCO` and `COCOeval` of a backend."""
    coco, coco_eval = map(importlib.import_module, _BACKENDS[backend])
    return coco.COCO, coco_eval.COCOeval


def _index(coco, dataset):
    index = coco()
    index.dataset = dataset
    index.createIndex()
    return index


def _summarize(evaluation, category_names, max_detections):
    """The twelve numbers and the categories, from the arrays of pycocotools."""
    # [IoU threshold, recall, category, area, max detections] and without recall
    precision = np.asarray(evaluation.eval["precision"])
    recall = np.asarray(evaluation.eval["recall"])
    iou50, iou75 = (
        int(np.flatnonzero(np.isclose(evaluation.params.iouThrs, threshold))[0])
        for threshold in (0.5, 0.75)
    )
    everything, small, medium, large = range(4)
    result = {
        "AP": _mean(precision[..., everything, 2]),
        "AP50": _mean(precision[iou50, ..., everything, 2]),
        "AP75": _mean(precision[iou75, ..., everything, 2]),
        "APs": _mean(precision[..., small, 2]),
        "APm": _mean(precision[..., medium, 2]),
        "APl": _mean(precision[..., large, 2]),
        "ARmax1": _mean(recall[..., everything, 0]),
        "ARmax10": _mean(recall[..., everything, 1]),
        f"ARmax{max_detections}": _mean(recall[..., everything, 2]),
        "ARs": _mean(recall[..., small, 2]),
        "ARm": _mean(recall[..., medium, 2]),
        "ARl": _mean(recall[..., large, 2]),
    }
    for index, category_id in enumerate(evaluation.params.catIds):
        name = category_names[category_id]
        result[f"AP/{name}"] = _mean(precision[:, :, index, everything, 2])
    return result


def _mean(values):
    """The mean of what could be measured; pycocotools marks the rest with -1."""
    values = values[values > -1]
    return float(values.mean()) if values.size else -1.0


def _unique_names(categories):
    """Category id -> name, in ascending id; a repeated name gets its id."""
    names = {}
    for category in sorted(categories, key=lambda category: category["id"]):
        name = str(category.get("name", category["id"]))
        if name in names.values():
            name = f"{name} ({category['id']})"
        names[category["id"]] = name
    return names


def _xywh(boxes):
    y_min, x_min, y_max, x_max = boxes.T
    return np.stack([x_min, y_min, x_max - x_min, y_max - y_min], axis=-1)


def _rank_within(groups):
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


def _shorten(category_names):
    shown = list(category_names.items())[:5]
    more = ", ..." if len(category_names) > 5 else ""
    return "{" + ", ".join(f"{i}: {name!r}" for i, name in shown) + more + "}"
