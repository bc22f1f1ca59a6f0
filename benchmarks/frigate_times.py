"""How long do the files for Frigate's detectors take on one core?

    python benchmarks/frigate_times.py --sizes 192 224 256 320
    python benchmarks/frigate_times.py --archives runs/int8.keras --detectors cpu

Exports each model with `target="frigate"` for each detector. Runs each file in its own
runtime, with one thread on one core, on images of the blood cells, all files in turn.
Prints a JSON line for each: milliseconds of wall-clock and CPU time, median and least.
The file for a Coral runs on the CPU here: it is the file that the compiler would take.
`--sizes` takes a Lite0 with random heads, which finds nothing. This only makes a
difference for the suppression, of a few boxes.
"""

import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time

import numpy as np

import effdet_keras as ek
from effdet_keras.detect.detect import letterboxed
from effdet_keras.export.runtime import open_runtime
from effdet_keras.extras.targets import frigate

BLOOD_CELLS = pathlib.Path(ek.data.__file__).parent / "blood_cells"
DETECTORS = ("edgetpu", "cpu", "openvino", "onnx")
IMAGES = 8


def main():
    options = read_options()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    train = ek.data.load(BLOOD_CELLS, "train")
    test = ek.data.load(BLOOD_CELLS, "test", class_names=train.class_names)
    pixels = [test[i]["image"] for i in range(IMAGES)]
    for model in models(options):
        folder = pathlib.Path(tempfile.mkdtemp())
        images = [letterboxed(model.config, image)[0][None] for image in pixels]
        images = [image.round().astype("uint8") for image in images]
        runs = {
            detector: exported(model, folder / detector, detector, train)
            for detector in options.detectors
        }
        for detector, times in measured(runs, images, options.rounds).items():
            clock, cpu = np.array(times).T * 1000
            line = {
                "image_size": model.config.image_size,
                "detector": detector,
                "ms": round(statistics.median(clock), 2),
                "least_ms": round(min(clock), 2),
                "cpu_ms": round(statistics.median(cpu), 2),
                "least_cpu_ms": round(min(cpu), 2),
            }
            print(json.dumps(line), flush=True)


def models(options):
    """Returns the models whose files are timed."""
    for archive in options.archives:
        yield ek.EfficientDet.from_archive(archive)
    for size in options.sizes:
        yield ek.EfficientDet.from_preset(
            "efficientdet-lite0", image_size=size, num_classes=3, verbose=0
        )


def exported(model, folder, detector, train):
    """Returns a function that runs the file of a detector once, with one thread."""
    is_float = detector in ("openvino", "onnx")
    calibration = {} if is_float or model.quantization else {"calibration": train[:8]}
    model.export(folder, target="frigate", detector=detector, verbose=0, **calibration)
    if detector == "openvino":
        return frigate.OpenVINOCheck(folder / "model.xml", num_threads=1).rows
    if detector == "onnx":
        return frigate.ONNXCheck(folder / "model.onnx", num_threads=1).rows
    return open_runtime(folder / "model.tflite", num_threads=1).run


def measured(runs, images, rounds):
    """Returns seconds of wall-clock and CPU time of each run, all files in turn."""
    times = {name: [] for name in runs}
    for number in range(rounds + 3):
        image = images[number % len(images)]
        for name, run in runs.items():
            start = time.perf_counter(), time.process_time()
            run(image)
            end = time.perf_counter(), time.process_time()
            if number >= 3:  # the first rounds warm up
                times[name].append(np.subtract(end, start))
    return times


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--archives", nargs="*", default=[], help="of square inputs")
    parser.add_argument("--sizes", nargs="*", type=int, default=[])
    parser.add_argument("--detectors", nargs="+", default=DETECTORS)
    parser.add_argument("--rounds", type=int, default=50)
    return parser.parse_args()


if __name__ == "__main__":
    main()
