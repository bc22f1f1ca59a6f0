"""How many images per second does one `Predictor` process, from several threads?

A server opens a file once, and detects in images in many threads. ONNX Runtime and
TensorFlow then run several networks at a time. LiteRT and OpenVINO run one network,
which uses all cores. Lite0 at 320 pixels. The numbers of threads take turns, and the
result is the median of some rounds.
"""

import argparse
import concurrent.futures
import json
import pathlib
import statistics
import tempfile
import time

import numpy as np

THREADS = (1, 2, 4)
FILES = ("model.tflite", "model.onnx", "model.xml", "saved_model")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    quick = parser.parse_args().quick
    import effdet_keras as ek

    model = ek.EfficientDet.from_preset(
        "efficientdet-lite0", image_size=64 if quick else 320, verbose=0
    )
    images = 4 if quick else 24
    with tempfile.TemporaryDirectory() as folder:
        for name in FILES:
            path = pathlib.Path(folder) / name
            model.export(path, verbose=0)
            line = measured(ek.Predictor.load(path), images, rounds=2 if quick else 5)
            print(json.dumps({"case": name, **line}), flush=True)


def measured(predictor, num_images, rounds):
    """Returns images per second by number of threads, and relative to one thread."""
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (240, 320, 3), "uint8") for _ in range(num_images)]
    speeds = {threads: [] for threads in THREADS}
    for number in range(rounds + 1):
        for threads in THREADS:
            speed = images_per_second(predictor, images, threads)
            if number:  # the first round only warms up
                speeds[threads].append(speed)
    medians = {threads: statistics.median(speeds[threads]) for threads in THREADS}
    return {
        "images_per_second_by_threads": {t: round(s, 1) for t, s in medians.items()},
        "times_one_thread": {t: round(s / medians[1], 2) for t, s in medians.items()},
        "repeats": rounds,
    }


def images_per_second(predictor, images, threads):
    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda image: predictor.detect(image, verbose=0), images))
    return len(images) / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
