"""What tests of analyses share: results to analyse, and COCO's numbers of them."""

import dataclasses

import numpy as np

from effdet_keras.evaluate.coco import metric_of
from effdet_keras.evaluate.image_result import ImageResult
from effdet_keras.labels import BACKGROUND


def image_result(truth=(), found=(), *, image_id=1, crowds=None, size=None):
    """A result by hand.

    Args:
        truth: rows of `(label, y1, x1, y2, x2)`.
        found: rows of `(label, score, y1, x1, y2, x2)`.
    """
    truth = np.array(truth, float).reshape(-1, 5)
    found = np.array(found, float).reshape(-1, 6)
    return ImageResult(
        image_id,
        truth_boxes=truth[:, 1:],
        truth_labels=truth[:, 0],
        truth_is_crowd=crowds,
        boxes=found[:, 2:],
        scores=found[:, 1],
        labels=found[:, 0],
        name=f"{image_id}.jpg",
        size=size,
    )


NOTHING = (np.zeros((0, 4)), [], [])


def postprocessed(found, rows=9):
    """What `Postprocess` returns of images, each with `(boxes, scores, labels)`."""
    outputs = {
        "boxes": np.zeros((len(found), rows, 4), "float32"),
        "scores": np.zeros((len(found), rows), "float32"),
        "labels": np.full((len(found), rows), BACKGROUND, "int32"),
        "num_detections": np.int32([len(boxes) for boxes, *_ in found]),
    }
    for row, of_image in enumerate(found):
        for name, values in zip(outputs, of_image):
            outputs[name][row, : len(values)] = values
    return outputs


def random_results(seed, *, num_images=15, num_classes=3):
    """Results with all that is awkward.

    Ties of scores in an image and between images, crowds, areas unlike those of the
    boxes, wrong classes, doubled detections, images without objects or detections, ids
    out of order, and a last class that no object has. Corners are whole numbers, so
    that an IoU is the same however it is computed.
    """
    rng = np.random.default_rng(seed)
    ids = rng.permutation(100)[:num_images]
    return [_random_result(rng, int(image_id), num_classes) for image_id in ids]


def _random_result(rng, image_id, num_classes):
    num_true = rng.choice([0, 3, 8])
    boxes, labels = _random_boxes(rng, num_true, num_classes - 1)
    near = np.repeat(np.arange(num_true), 2)
    jitter = rng.integers(-3, 4, (len(near), 4))
    others, other_labels = _random_boxes(rng, rng.choice([0, 10]), num_classes)
    found = np.concatenate([boxes[near] + jitter, others])
    wrong = rng.integers(0, num_classes, len(near))
    said = np.where(rng.random(len(near)) < 0.3, wrong, labels[near])
    keep = rng.random(len(found)) < rng.choice([0.0, 0.8, 0.9])
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    return ImageResult(
        image_id,
        truth_boxes=boxes,
        truth_labels=labels,
        truth_is_crowd=rng.random(num_true) < 0.15,
        truth_areas=areas * rng.uniform(0.4, 1, num_true),
        boxes=found[keep],
        scores=np.ceil(rng.random(keep.sum()) * 20) / 20,
        labels=np.concatenate([said, other_labels])[keep],
        size=tuple(rng.choice([200, 400], 2).tolist()),
    )


def _random_boxes(rng, count, num_classes):
    low = rng.integers(0, 200, (count, 2))
    side = np.exp(rng.uniform(np.log(8), np.log(150), (count, 2))).astype(int)
    labels = rng.integers(0, num_classes, count)
    return np.concatenate([low, low + side], axis=1), labels


def coco_numbers(results, num_classes, backend="auto"):
    """What `COCOMetric` says of results; the name of a class is its label."""
    metric = metric_of(results, range(num_classes))
    metric.backend = metric.backend if backend == "auto" else backend
    return metric.result()


def of_one_class(results, label):
    """Results with only the objects and detections of one class, whose label is 0."""
    parts = []
    for result in results:
        true, found = result.truth_labels == label, result.labels == label
        parts.append(
            dataclasses.replace(
                result,
                truth_boxes=result.truth_boxes[true],
                truth_labels=np.zeros(true.sum(), int),
                truth_is_crowd=result.truth_is_crowd[true],
                truth_areas=result.truth_areas[true],
                boxes=result.boxes[found],
                scores=result.scores[found],
                labels=np.zeros(found.sum(), int),
            )
        )
    return parts


def random_truth(rng, *, num_objects, num_classes=3):
    """Rows `(label, y1, x1, y2, x2)`."""
    corner = rng.uniform(0, 80, (num_objects, 2))
    side = rng.uniform(8, 40, (num_objects, 2))
    labels = rng.integers(0, num_classes, (num_objects, 1))
    return np.concatenate([labels, corner, corner + side], axis=1)


def random_found(rng, truth, *, num_extra, noise=3.0):
    """Rows `(label, score, y1, x1, y2, x2)`: near the truth, and anywhere."""
    near = truth + np.r_[0.0, noise * np.ones(4)] * rng.normal(size=truth.shape)
    near[:, 3:] = np.maximum(near[:, 3:], near[:, 1:3] + 1)
    rows = np.concatenate([near, random_truth(rng, num_objects=num_extra)])
    scores = np.r_[rng.beta(4, 2, len(near)), rng.beta(2, 4, num_extra)]
    return np.column_stack([rows[:, 0], scores, rows[:, 1:]])


def noisy_results(
    seed, *, num_images=12, num_extra=20, noise=3.0, crowds=0.15, truth_seed=0
):
    """Results of a detector that is good; of one `truth_seed` the truth is the same."""
    of_truth, rng = np.random.default_rng(truth_seed), np.random.default_rng(seed)
    results = []
    for image_id in range(1, num_images + 1):
        truth = random_truth(of_truth, num_objects=of_truth.integers(0, 8))
        is_crowd = of_truth.random(len(truth)) < crowds
        found = random_found(rng, truth, num_extra=num_extra, noise=noise)
        one = image_result(truth, found, image_id=image_id, crowds=is_crowd)
        results.append(one)
    return results
