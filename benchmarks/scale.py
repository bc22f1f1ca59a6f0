"""What does a COCO-size training cost, and what waits for what first?

For D0, D4 and D7x: steps, what all processes exchange in a step, how large a checkpoint
is, and how many cores decode and augment for one device. Computed from the configs,
without building a model. Of the input it measures what one core makes of JPEG files of
640 x 480, as `input_pipeline.py` does; `--write` writes a checkpoint of each model.
"""

import json
import pathlib
import statistics
import sys
import tempfile
import time

import alternate
from images import write_images

# COCO 2017's `train`, and how long the paper trains on it, 128 images at a time
# (https://arxiv.org/abs/1911.09070, section 5.1).
COCO_IMAGES = 118_287
BATCH_SIZE = 128
EPOCHS = {"efficientdet-d0": 300, "efficientdet-d4": 300, "efficientdet-d7x": 600}
FLOAT = 4  # bytes

# What a checkpoint holds of each weight: itself, its average, and for weights that
# train the optimizer's momentum. Of moving statistics: themselves and their average.
_COPIES_TRAINED, _COPIES_STATISTICS = 3, 2


def ours(quick):
    from effdet_keras.config import EfficientDetConfig

    names = list(EPOCHS)[:1] if quick else list(EPOCHS)
    return [_line(EfficientDetConfig.from_name(name), quick) for name in names]


def _line(config, quick):
    sizes = counts(config)
    steps = COCO_IMAGES // BATCH_SIZE  # the last, not full, batch is left out
    epochs = EPOCHS[config.name]
    exchanged = exchanged_bytes(config)
    line = {
        "case": config.name,
        "image_size": list(config.image_size),
        "parameters": sizes["trained"],
        "moving_statistics": sizes["statistics"],
        "steps_per_epoch": steps,
        "epochs": epochs,
        "steps": steps * epochs,
        "images": steps * epochs * BATCH_SIZE,
        **exchanged,
        "checkpoint_bytes": checkpoint_bytes(config),
        "image_bytes_to_device": config.image_size[0] * config.image_size[1] * 3 * FLOAT,
    }
    size = 128 if quick else config.image_size[0]
    return {**line, **_input(size, quick)}


def counts(config):
    """How many numbers train, how many are moving statistics, and of how many layers."""
    from effdet_keras.weights.network_arrays import network_arrays

    trained = statistics_ = layers = 0
    for array in network_arrays(config):
        size = 1
        for side in array.shape:
            size *= side
        if "moving_" in array.name:
            statistics_ += size
            layers += array.name.endswith("moving_mean")
        else:
            trained += size
    return {"trained": trained, "statistics": statistics_, "batch_norms": layers}


def exchanged_bytes(config):
    """Bytes that are summed over all devices in a step, as float32.

    Gradients once. Synchronized batch norm sums mean and mean of squares forward, and
    two sums of the same size backward; the heads' are called once for each level, and
    have statistics of each level.
    """
    sizes = counts(config)
    gradients = FLOAT * sizes["trained"]
    batch_norm = 2 * FLOAT * sizes["statistics"]
    return {
        "gradient_bytes_per_step": gradients,
        "batch_norm_bytes_per_step": batch_norm,
        "batch_norms": sizes["batch_norms"],
        "all_reduced_bytes_per_step": gradients + batch_norm,
    }


def checkpoint_bytes(config):
    sizes = counts(config)
    trained = _COPIES_TRAINED * sizes["trained"]
    return FLOAT * (trained + _COPIES_STATISTICS * sizes["statistics"])


def _input(size, quick):
    """Images per second of one core: decoded, flipped, jittered, in batches of 8."""
    import effdet_keras as ek

    batch_size = 8
    with tempfile.TemporaryDirectory() as folder:
        data = ek.data.from_coco(write_images(folder, 8 if quick else 64), folder)
        batches = data.batches(batch_size, image_size=size, training=True)
        iterator = iter(batches.repeat())
        count = 2 if quick else 40
        times = alternate.repeat(lambda: next(iterator), count, warm_up=4)
    speed = count * batch_size / sum(times["cpu_seconds"])
    return {"input_images_per_cpu_second": round(speed, 1), "repeats": count}


def write_checkpoints(names):
    """Builds each model, and writes checkpoints of a training: bytes and seconds."""
    import effdet_keras as ek
    from effdet_keras.weights.archive import write_archive

    for name in names:
        model = ek.EfficientDet.from_preset(name, num_classes=90)
        model.compile(recipe="reference")
        seconds = []
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "last.keras")
            for _ in range(3):
                start = time.perf_counter()
                write_archive(model, path)
                seconds.append(time.perf_counter() - start)
            line = {
                "case": f"{name}, checkpoint written",
                "bytes": path.stat().st_size,
                "computed_bytes": checkpoint_bytes(model.config),
                "seconds": round(statistics.median(seconds), 2),
                "repeats": len(seconds),
            }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    if "--write" in sys.argv:
        write_checkpoints(EPOCHS)
        sys.exit()
    for line in alternate.run_alone(__doc__, ours):
        print(json.dumps(line), flush=True)
