"""What does a training of COCO's size cost, and what is its first bottleneck?

For D0, D4 and D7x: the steps, what all processes exchange in a step, the size of a
checkpoint, and how many cores decode and augment for one device. These are computed
from the configs, without building a model. The input is measured: what one core makes
of JPEG files of 640 x 480, as in `input_pipeline.py`. `--write` writes a checkpoint of
each model.
"""

import json
import math
import pathlib
import statistics
import sys
import tempfile
import time

import alternate
from images import write_images

COCO_IMAGES = 118_287  # in the `train` split of COCO 2017
BATCH_SIZE = 128
EPOCHS = 300  # google/automl's own `num_epochs`
MODELS = ("efficientdet-d0", "efficientdet-d4", "efficientdet-d7x")
DEVICES = 8
# Multiply-adds of a forward pass for one image
# (https://arxiv.org/abs/1911.09070, table 2).
BILLION_FLOPS = {"efficientdet-d0": 2.5, "efficientdet-d4": 55, "efficientdet-d7x": 410}
# Images per second of NVIDIA's own D0 on one A100, mixed precision, batch 200
# (NVIDIA/DeepLearningExamples, TensorFlow2/Detection/Efficientdet/README.md).
A100_D0 = 397
FLOAT = 4  # bytes

# A checkpoint has each weight, its average, and for trained weights the optimizer's
# momentum. It has moving statistics and their average.
_COPIES_TRAINED, _COPIES_STATISTICS = 3, 2


def ours(quick):
    from effdet_keras.network.config import EfficientDetConfig

    names = MODELS[:1] if quick else MODELS
    return [_line(EfficientDetConfig.from_name(name), quick) for name in names]


def _line(config, quick):
    sizes = counts(config)
    steps = COCO_IMAGES // BATCH_SIZE  # the last, incomplete batch is left out
    exchanged = exchanged_bytes(config)
    line = {
        "case": config.name,
        "image_size": list(config.image_size),
        "parameters": sizes["trained"],
        "moving_statistics": sizes["statistics"],
        "steps_per_epoch": steps,
        "epochs": EPOCHS,
        "steps": steps * EPOCHS,
        "images": steps * EPOCHS * BATCH_SIZE,
        **exchanged,
        "checkpoint_bytes": checkpoint_bytes(config),
        "image_bytes_to_device": 3 * FLOAT * math.prod(config.image_size),
    }
    size = 128 if quick else config.image_size[0]
    return {**line, **_on_a100(config), **_input(size, quick)}


def _on_a100(config):
    """Returns an estimate, with as many FLOPs per second as the published D0.

    In a ring, each device sends and receives `2 (n - 1) / n` of the summed bytes.
    """
    flops = BILLION_FLOPS[config.name]
    speed = A100_D0 * BILLION_FLOPS["efficientdet-d0"] / flops
    step = BATCH_SIZE / DEVICES / speed
    exchanged = exchanged_bytes(config)["all_reduced_bytes_per_step"]
    sent = 2 * (DEVICES - 1) / DEVICES * exchanged
    images = COCO_IMAGES // BATCH_SIZE * BATCH_SIZE * EPOCHS
    return {
        "estimated_images_per_second_of_a_device": round(speed, 1),
        "estimated_step_seconds": round(step, 3),
        "estimated_hours_of_all_devices": round(images / DEVICES / speed / 3600, 1),
        "bytes_sent_per_device_and_step": round(sent),
        "gigabits_per_second_if_exchange_takes_a_tenth": round(
            sent * 8 / (step / 10) / 1e9, 1
        ),
    }


def counts(config):
    """Returns the numbers of trained weights and of moving statistics, and of norms."""
    from effdet_keras.weights.network_arrays import network_arrays

    trained = statistics_ = layers = 0
    for array in network_arrays(config):
        size = math.prod(array.shape)
        if "moving_" in array.name:
            statistics_ += size
            layers += array.name.endswith("moving_mean")
        else:
            trained += size
    return {"trained": trained, "statistics": statistics_, "batch_norms": layers}


def exchanged_bytes(config):
    """Returns the float32 bytes that are summed over all devices in a step.

    Gradients are summed once. Synchronized batch norm sums mean and mean of squares in
    the forward pass, and two sums of the same size in the backward pass. Those of the
    heads are called once for each level, and have statistics of each level.
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
    """Returns images per second and core: decoded, flipped, jittered, batched by 8."""
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
    """Builds each model, and writes checkpoints; prints bytes and seconds."""
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
        write_checkpoints(MODELS)
        sys.exit()
    for line in alternate.run_alone(__doc__, ours):
        print(json.dumps(line), flush=True)
