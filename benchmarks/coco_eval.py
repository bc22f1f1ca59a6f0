"""How long does COCO's evaluation of 5,000 images with 100 detections each take?

Measures `COCOMetric` with each of its backends, and with faster-coco-eval if it is
installed. Also gives the peak memory, and whether all metrics equal pycocotools'.
"""

import argparse
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
from alternate import ENVIRONMENT

NUM_CLASSES = 80
NUM_BOXES = 7  # objects per image, as in COCO
BACKENDS = {
    "pycocotools": "pycocotools",
    "hotcoco": "hotcoco",
    "faster-coco-eval": "faster_coco_eval",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--images", type=int, help="number of images (5000)")
    parser.add_argument("--backend", choices=BACKENDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    num_images = arguments.images or (50 if arguments.quick else 5000)
    if arguments.backend:
        print(json.dumps(evaluate(arguments.backend, num_images)))
        return
    installed = [b for b, m in BACKENDS.items() if importlib.util.find_spec(m)]
    rounds = [
        {backend: _run(backend, num_images) for backend in installed}
        for _ in range(arguments.rounds)
    ]
    for backend in installed:
        runs = [run[backend] for run in rounds]
        seconds = statistics.median(run["seconds"] for run in runs)
        judge = statistics.median(run["pycocotools"]["seconds"] for run in rounds)
        expected = rounds[0]["pycocotools"]["numbers"]
        line = {
            "case": backend,
            "images": num_images,
            "detections": num_images * 100,
            "seconds": round(seconds, 2),
            "times_as_fast_as_pycocotools": round(judge / seconds, 1),
            "peak_mb": round(statistics.median(run["peak_mb"] for run in runs)),
            "numbers_are_equal": all(_equal(r["numbers"], expected) for r in runs),
        }
        print(json.dumps(line), flush=True)


def evaluate(backend, num_images):
    """Returns the time from detections to metrics, and the memory of all of it."""
    if backend == "faster-coco-eval":
        _offer_faster_coco_eval()
    from effdet_keras.evaluate.coco import COCOMetric

    truth, detections = _random_case(num_images)
    metric = COCOMetric(truth)
    metric.backend = backend
    start = time.perf_counter()
    for image_id, *rows in detections:
        metric.update(image_id, *rows)
    numbers = metric.result()
    return {
        "seconds": time.perf_counter() - start,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "numbers": numbers,
    }


def _offer_faster_coco_eval():
    """Makes it a backend in this process only; its class has another name."""
    import faster_coco_eval

    from effdet_keras.evaluate.coco import BACKENDS

    faster_coco_eval.COCOeval = faster_coco_eval.COCOeval_faster
    BACKENDS["faster-coco-eval"] = (faster_coco_eval,) * 2


def _run(backend, num_images):
    command = [sys.executable, __file__, "--backend", backend]
    command += ["--images", str(num_images)]
    done = subprocess.run(
        command, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def _random_case(num_images):
    """Returns ground truth, and detections some of which are near an object."""
    rng = np.random.default_rng(0)
    annotations, detections = [], []
    for image_id in range(1, num_images + 1):
        low = rng.uniform(0, 400, (NUM_BOXES, 2))
        boxes = np.concatenate([low, low + rng.uniform(8, 200, (NUM_BOXES, 2))], axis=1)
        classes = rng.integers(1, NUM_CLASSES + 1, NUM_BOXES)
        for (y_min, x_min, y_max, x_max), category in zip(boxes, classes):
            annotations.append(
                {
                    "image_id": image_id,
                    "category_id": int(category),
                    "bbox": [x_min, y_min, x_max - x_min, y_max - y_min],
                    "iscrowd": int(rng.uniform() < 0.02),
                }
            )
        near = rng.integers(0, NUM_BOXES, 100)
        found = boxes[near] + rng.normal(0, 8, (100, 4))
        found[:, 2:] = np.maximum(found[:, 2:], found[:, :2] + 1)
        is_right = rng.uniform(size=100) < 0.5
        labels = np.where(is_right, classes[near], rng.integers(1, NUM_CLASSES, 100))
        detections.append((image_id, found, rng.uniform(size=100), labels))
    categories = [{"id": i, "name": str(i)} for i in range(1, NUM_CLASSES + 1)]
    images = [{"id": i} for i in range(1, num_images + 1)]
    truth = {"images": images, "categories": categories, "annotations": annotations}
    return truth, detections


def _equal(numbers, expected):
    return numbers.keys() == expected.keys() and all(
        abs(numbers[name] - expected[name]) < 1e-12 for name in expected
    )


if __name__ == "__main__":
    main()
