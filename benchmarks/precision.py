"""What do half precision and recomputed blocks cost and save: time, memory, AP?

    python benchmarks/precision.py                    # D0, 512 x 512, 4 images
    python benchmarks/precision.py --model efficientdet-d4 --image-size 1024 \\
        --batch-size 1
    python benchmarks/precision.py --model efficientdet-lite0 --image-size 128 \\
        --batch-size 8 --ap-steps 300                 # AP on the blood cells

Each case runs in a process of its own: a precision, with or without `grad_checkpoint`.
It prints a JSON line with the median seconds of a step and the peak memory of the
process (`ru_maxrss`, which does not include a graphics card's own memory).

With `--ap-steps`, it trains on the blood cells of the package instead. Each precision
starts from the same weights (`--weights`) with the same seed. It prints the AP on
`val`, also with the same weights in the other precisions, which separates a problem of
detection from a problem of training.
"""

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import time

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


def main():
    options = read_options()
    if options.case:
        precision, grad_checkpoint = options.case
        measure = trained if options.ap_steps else measured
        print(json.dumps(measure(options, precision, grad_checkpoint == "True")))
        return
    switches = (False,) if options.ap_steps else (False, True)
    for precision in options.precisions:
        for grad_checkpoint in switches:
            case = [precision, str(grad_checkpoint)]
            command = [sys.executable, *sys.argv, "--case", *case]
            done = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True
            )
            line = json.loads(done.stdout.splitlines()[-1])
            case = {"precision": precision, "grad_checkpoint": grad_checkpoint}
            print(json.dumps({**case, **line}), flush=True)


def measured(options, precision, grad_checkpoint):
    import numpy as np

    import effdet_keras as ek

    size, count = options.image_size, options.batch_size
    config = ek.EfficientDetConfig.from_name(options.model, image_size=size)
    model = ek.EfficientDet(config, dtype=precision)
    model.compile(recipe="reference", grad_checkpoint=grad_checkpoint)
    images = np.random.default_rng(0).uniform(0, 255, (count, size, size, 3))
    boxes = np.full((count, 8, 4), [0.1, 0.1, 0.4, 0.5], "float32") * size
    truth = {"boxes": boxes, "labels": np.zeros((count, 8), "int32")}
    seconds = []
    for _ in range(options.repeats + 1):  # the first step compiles
        start = time.perf_counter()
        model.train_on_batch(images.astype("float32"), truth)
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux
    return {
        "step_seconds": round(statistics.median(seconds[1:]), 3),
        "peak_mib": round(peak / 1024),
    }


def trained(options, precision, grad_checkpoint):
    import keras

    import effdet_keras as ek

    cells = pathlib.Path(ek.data.__file__).parent / "blood_cells"
    train, judge = (ek.data.load(cells, split) for split in ("train", "val"))

    def new_model(precision, weights):
        keras.config.set_dtype_policy(precision)
        return ek.EfficientDet.from_preset(
            options.model,
            weights,
            dataset=train,
            image_size=options.image_size,
            max_level=5,
            verbose=0,
        )

    def average_precision(model):
        numbers = ek.callbacks.COCOEvaluation(judge, verbose=0).evaluate(model)
        return round(float(numbers["AP"]), 4)

    keras.utils.set_random_seed(options.seed)
    is_random = options.weights == "scratch"
    model = new_model(precision, None if is_random else options.weights)
    model.compile(grad_checkpoint=grad_checkpoint)
    epochs = max(1, round(options.ap_steps * options.batch_size / len(train)))
    start = time.perf_counter()
    model.fit(train, batch_size=options.batch_size, epochs=epochs, verbose=0)
    line = {
        "steps": int(model.optimizer.iterations.numpy()),
        "seed": options.seed,
        "seconds": round(time.perf_counter() - start, 1),
        "AP": average_precision(model),
    }
    for other in PRECISIONS:
        if other != precision:
            same = new_model(other, None)
            same.set_weights(model.get_weights())
            line[f"AP as {other}"] = average_precision(same)
    return line


def read_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="efficientdet-d0")
    parser.add_argument("--image-size", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS)
    parser.add_argument("--ap-steps", type=int, help="train so many steps for AP")
    parser.add_argument("--weights", default="imagenet", help='or "scratch"')
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.precisions is None:
        options.precisions = PRECISIONS[:2]
    if options.quick:
        options.model, options.image_size = "efficientdet-lite0", 128
        options.batch_size = options.repeats = 1
    return options


if __name__ == "__main__":
    main()
