"""How many images per second does the training input make with each augmentation?

JPEG files of 640 x 480 become batches of 8 at 320 x 320, as Lite0 trains on them: first
without augmentation, then with each of `ek.augment.NAMES`. Here the input pipeline runs
alone. Then Lite0 is trained with the fastest and with the slowest input. This shows how
long a step takes, and whether it waits for its batch.
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

    size, count = (64, 4) if quick else (320, 8)  # count: batches per pass
    names = ("mosaic", "blur") if quick else tuple(ek.augment.NAMES)
    with tempfile.TemporaryDirectory() as folder:
        data = ek.data.from_coco(write_images(folder, count * BATCH_SIZE), folder)
        lines, inputs = [], {}
        for name in ("none", *names):
            augment = None if name == "none" else ek.augment.NAMES[name]()
            start = time.process_time()
            inputs[name] = data.batches(
                BATCH_SIZE, image_size=size, training=True, augment=augment, seed=0
            )
            tracing = round(time.process_time() - start, 2)
            alone = _alone(inputs[name], count)
            lines.append({"case": name, "tracing_cpu_seconds": tracing, **alone})
        most = max(lines, key=lambda line: line["cpu_milliseconds_per_image"])["case"]
        model = ek.EfficientDet.from_preset(
            "efficientdet-lite0", image_size=size, num_classes=3
        )
        model.compile()
        for name in ("none", most):
            beside = _beside_training(model, inputs[name], count)
            lines.append({"case": f"training of Lite0 with {name}", **beside})
        for line in lines[:-2]:
            seconds = BATCH_SIZE / line["images_per_second"]
            line["input_seconds_per_step_second"] = round(
                seconds / lines[-2]["step_seconds"], 3
            )
    return lines


def _alone(batches, count):
    """Returns images per second of the input pipeline while nothing else runs."""
    iterator = iter(batches.repeat(2))
    times = alternate.repeat(lambda: next(iterator), count, warm_up=count // 2)
    images = count * BATCH_SIZE
    cpu_seconds = sum(times["cpu_seconds"])
    return {
        "images_per_second": round(images / sum(times["seconds"]), 1),
        "cpu_milliseconds_per_image": round(1e3 * cpu_seconds / images, 1),
    }


def _beside_training(model, batches, count):
    """Returns the fraction of the training time in which steps wait for batches."""
    iterator = iter(batches)
    for _ in range(2):  # compiles the step, and fills the buffers
        model.train_on_batch(*next(iterator))
    waits, totals = [], []
    for _ in range(count - 2):
        start = time.perf_counter()
        batch = next(iterator)
        waits.append(time.perf_counter() - start)
        model.train_on_batch(*batch)
        totals.append(time.perf_counter() - start)
    return {
        "step_seconds": round(statistics.median(totals), 3),
        "share_of_time_waiting": round(sum(waits) / sum(totals), 4),
        "repeats": len(totals),
    }


if __name__ == "__main__":
    for line in alternate.run_alone(__doc__, ours):
        print(json.dumps(line), flush=True)
