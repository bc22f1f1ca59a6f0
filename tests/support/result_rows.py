"""`ImageResult`s for tests: at random, and as COCO's dicts."""

import numpy as np
from support.image_results import image_result


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


def random_results(
    seed, *, num_images=12, num_extra=20, noise=3.0, crowds=0.15, truth_seed=0
):
    """Of detectors with one `truth_seed` the truth is the same."""
    of_truth, rng = np.random.default_rng(truth_seed), np.random.default_rng(seed)
    results = []
    for image_id in range(1, num_images + 1):
        truth = random_truth(of_truth, num_objects=of_truth.integers(0, 8))
        is_crowd = of_truth.random(len(truth)) < crowds
        found = random_found(rng, truth, num_extra=num_extra, noise=noise)
        one = image_result(truth, found, image_id=image_id, crowds=is_crowd)
        results.append(one)
    return results


def coco_result(results, *, num_classes=3):
    """The numbers of `COCOMetric`, by name."""
    from effdet_keras.evaluate.coco import COCOMetric

    annotations = [
        {
            **{"image_id": one.image_id, "category_id": int(label) + 1},
            **{"bbox": xywh(box), "iscrowd": int(is_crowd)},
        }
        for one in results
        for box, label, is_crowd in zip(
            one.truth_boxes, one.truth_labels, one.truth_is_crowd
        )
    ]
    metric = COCOMetric(
        {
            "images": [{"id": one.image_id} for one in results],
            "annotations": annotations,
            "categories": [{"id": i + 1, "name": str(i)} for i in range(num_classes)],
        },
        backend="pycocotools",
    )
    for one in results:
        metric.update(one.image_id, one.boxes, one.scores, one.labels + 1)
    return metric.result()


def xywh(box):
    y_min, x_min, y_max, x_max = box.tolist()
    return [x_min, y_min, x_max - x_min, y_max - y_min]
