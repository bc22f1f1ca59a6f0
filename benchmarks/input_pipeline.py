"""How many images per second does the training input make, and does training wait?

JPEG files of 640 x 480 become batches of 8, with scale jitter and flip. Measures images
per second while nothing else runs, and then the fraction of D0's training loop that is
spent waiting for batches.
"""

import json
import statistics
import tempfile
import time

import alternate
from images import write_images

BATCH_SIZE = 8


def ours(quick):
    import effdet_keras as ek

    sizes = (128,) if quick else (128, 512)
    with tempfile.TemporaryDirectory() as folder:
        data = ek.data.from_coco(write_images(folder, 8 if quick else 64), folder)
        lines = []
        for size in sizes:
            batches = data.batches(BATCH_SIZE, image_size=size, training=True)
            lines.append(_throughput(batches, size, passes=1 if quick else 4))
            lines.append(_waiting(batches, size, steps=1 if quick else 5))
    return lines


def _throughput(batches, size, passes):
    iterator = iter(batches.repeat())
    next(iterator)
    count = passes * max(len(batches), 1)
    times = alternate.repeat(lambda: next(iterator), count, warm_up=1)
    images = count * BATCH_SIZE
    return {
        "case": f"images per second, {size} x {size}",
        "images_per_second": round(images / sum(times["seconds"]), 1),
        "images_per_cpu_second": round(images / sum(times["cpu_seconds"]), 1),
        "repeats": count,
    }


def _waiting(batches, size, steps):
    import effdet_keras as ek

    model = ek.EfficientDet.from_preset(
        "efficientdet-d0", image_size=size, num_classes=3
    )
    model.compile()
    iterator = iter(batches.repeat())
    model.train_on_batch(*next(iterator))  # compiles the step
    waits, totals = [], []
    for _ in range(steps):
        start = time.perf_counter()
        batch = next(iterator)
        waits.append(time.perf_counter() - start)
        model.train_on_batch(*batch)
        totals.append(time.perf_counter() - start)
    return {
        "case": f"training of D0, {size} x {size}",
        "step_seconds": round(statistics.median(totals), 3),
        "share_of_time_waiting": round(sum(waits) / sum(totals), 4),
        "repeats": steps,
    }


if __name__ == "__main__":
    for line in alternate.run_alone(__doc__, ours):
        print(json.dumps(line), flush=True)
