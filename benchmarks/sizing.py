"""What does a worker need: images per second and core, and memory, by runtime?

Each file is opened by a process of its own, with one thread. It detects in JPEG files
of 640 x 480, including all stages: read, decode, letterbox, network, postprocess. Cores
are counted by the CPU time of the process, which other processes on the machine hardly
change: `images_per_second_and_core` is one divided by the median CPU seconds per image.
`peak_mb` is the peak memory with one image at a time.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = ("efficientdet-lite0", "efficientdet-d0", "efficientdet-d2")
FILES = {
    "Keras": "model.keras",
    "SavedModel": "saved_model",
    "LiteRT": "model.tflite",
    "ONNX Runtime": "model.onnx",
    "OpenVINO": "model.xml",
}
_ONE_THREAD = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
_FIRST = 3  # number of images until a runtime is warm


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--images", type=int, default=30)
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write(*arguments.write, arguments.quick)
    elif arguments.measure:
        measure(arguments.measure, 3 if arguments.quick else arguments.images)
    else:
        measure_all(arguments)


def measure_all(arguments):
    quick = ["--quick"] if arguments.quick else []
    for model in arguments.models[: 1 if arguments.quick else None]:
        with tempfile.TemporaryDirectory() as folder:
            call(["--write", model, folder, *quick])
            for runtime, name in FILES.items():
                path = pathlib.Path(folder) / name
                given = ["--images", str(arguments.images), *quick]
                if path.exists():
                    line = json.loads(call(["--measure", str(path), *given]))
                    print(
                        json.dumps({"model": model, "runtime": runtime, **line}),
                        flush=True,
                    )


def call(given):
    done = subprocess.run(
        [sys.executable, __file__, *given],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **_ONE_THREAD},
    )
    return (done.stdout.splitlines() or [""])[-1]


def write(model, folder, quick):
    from images import write_images

    import effdet_keras as ek
    from effdet_keras.errors import MissingPackageError

    size = {"image_size": 64, "max_level": 6} if quick else {}
    network = ek.EfficientDet.from_preset(model, verbose=0, **size)
    network.save(pathlib.Path(folder) / FILES["Keras"])
    for name in list(FILES.values())[1:]:
        try:
            network.export(pathlib.Path(folder) / name, verbose=0)
        except MissingPackageError as error:
            print(error, file=sys.stderr)
    write_images(folder, 8)


def measure(path, count):
    import effdet_keras as ek

    path = pathlib.Path(path)
    is_exported = path.suffix != ".keras"
    threads = {"num_threads": 1} if is_exported and path.suffix else {}
    predictor = ek.Predictor.load(path, **threads)
    images, seconds = sorted(path.parent.glob("*.jpg")), []
    for number in range(_FIRST + count):
        start = time.process_time()
        predictor.detect(images[number % len(images)], verbose=0)
        seconds.append(time.process_time() - start)
    median = statistics.median(seconds[_FIRST:])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    height, width = predictor.config.image_size
    line = {
        "input": f"{height} x {width}",
        "images_per_second_and_core": round(1 / median, 2),
        "peak_mb": round(peak),
        "images": count,
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
