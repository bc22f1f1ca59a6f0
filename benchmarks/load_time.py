"""How long does finding and reading a dataset of 120,000 images take, in what memory?

The dataset is a COCO JSON file with 7 boxes of 80 classes in each image. Every image is
a link to one of a few JPEG files of 640 x 480. The size of each image is in the JSON
file, as in COCO's own files.
"""

import json
import multiprocessing
import pathlib
import resource
import tempfile
import time

import alternate
import numpy as np
from images import HEIGHT, WIDTH, write_images

_IMAGES = 120_000
_FILES = 8  # number of JPEG files to which all names link
_BOXES = 7
_CLASSES = 80


def ours(quick):
    from effdet_keras.data import load_splits

    with tempfile.TemporaryDirectory() as folder:
        count = 100 if quick else _IMAGES
        # In a process of its own, so that its memory is not counted.
        writer = multiprocessing.get_context("spawn").Process(
            target=write_dataset, args=(pathlib.Path(folder), count)
        )
        writer.start()
        writer.join()
        clock, cpu = time.perf_counter(), time.process_time()
        splits = load_splits(f"{folder}/data")
        clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
    return [
        {
            "case": "COCO json",
            "images": sum(map(len, splits.values())),
            "seconds": round(clock, 2),
            "cpu_seconds": round(cpu, 2),
            "peak_gb": round(
                resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2
            ),
        }
    ]


def write_dataset(folder, count):
    """Writes `train2017/` and `annotations/instances_train2017.json`."""
    rng = np.random.default_rng(0)
    for name in ("files", "data/train2017", "data/annotations"):
        (folder / name).mkdir(parents=True)
    write_images(folder / "files", _FILES)
    images, annotations = [], []
    for i in range(count):
        name = f"{i:012d}.jpg"
        file = folder / "files" / f"{i % _FILES + 1}.jpg"
        (folder / "data/train2017" / name).symlink_to(file)
        size = {"width": WIDTH, "height": HEIGHT}
        images.append({"id": i, "file_name": name, **size})
        low = rng.uniform(0, (WIDTH / 2, HEIGHT / 2), (_BOXES, 2))
        sides = rng.uniform(8, (WIDTH / 2, HEIGHT / 2), (_BOXES, 2))
        classes = rng.integers(1, _CLASSES + 1, _BOXES)
        for box, label in zip(np.hstack([low, sides]).tolist(), classes.tolist()):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": i,
                    "category_id": label,
                    "bbox": box,
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                }
            )
    classes = [{"id": i, "name": f"class {i}"} for i in range(1, _CLASSES + 1)]
    content = {"images": images, "annotations": annotations, "categories": classes}
    path = folder / "data/annotations/instances_train2017.json"
    path.write_text(json.dumps(content))


if __name__ == "__main__":
    for line in alternate.run_alone(__doc__, ours):
        print(json.dumps(line), flush=True)
