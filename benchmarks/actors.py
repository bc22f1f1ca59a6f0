"""How many images per second do 1 and 2 actors of Ray Data process, compared to a loop?

JPEG files of 640 x 480 are processed by Lite0 at 320 pixels in ONNX Runtime, with one
thread for each network. The loop calls `Predictor.detect` with one path after another.
`BatchDetector` reads the next batch while the network runs. All of them write their
detections. The time of the actors is given with and without the start of the actors and
of Ray.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

from images import write_images


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--images", type=int, default=2000)
    arguments = parser.parse_args()
    count = 8 if arguments.quick else arguments.images
    import effdet_keras as ek

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_images(folder, min(count, 64))
        files = [str(path) for path in sorted(folder.glob("*.jpg"))]
        files = [files[number % len(files)] for number in range(count)]
        model = ek.EfficientDet.from_preset(
            "efficientdet-lite0", image_size=64 if arguments.quick else 320, verbose=0
        )
        path = folder / "model.onnx"
        model.export(path, verbose=0)
        for case, run in (
            ("loop of Predictor.detect", of_a_loop),
            ("BatchDetector", of_batches),
            ("1 actor", lambda *given: of_actors(*given, actors=1)),
            ("2 actors", lambda *given: of_actors(*given, actors=2)),
        ):
            line = run(path, files)
            print(json.dumps({"case": case, "images": count, **line}), flush=True)


def of_a_loop(path, files):
    import effdet_keras as ek

    predictor = ek.Predictor.load(path, num_threads=1)
    predictor.detect(files[0], verbose=0)
    start = time.perf_counter()
    for file in files:
        predictor.detect(file, verbose=0)
    return speed(len(files), time.perf_counter() - start)


def of_batches(path, files):
    from effdet_keras.extras.bulk.batch_detector import BatchDetector

    detector = BatchDetector(path, num_threads=1)
    detector.rows({"path": files[:8]})
    start = time.perf_counter()
    rows = detector.rows({"path": files})
    assert len(rows) == len(files)
    return speed(len(files), time.perf_counter() - start)


def of_actors(path, files, actors):
    os.environ.setdefault("RAY_worker_niceness", "0")  # the same as of the loop
    import ray

    from effdet_keras.extras.bulk.batch_detector import BatchDetector

    ray.init(num_cpus=actors, include_dashboard=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    start = time.perf_counter()
    found = ray.data.from_items([{"path": file} for file in files]).map_batches(
        BatchDetector,
        fn_constructor_args=(str(path),),
        fn_constructor_kwargs={"num_threads": 1},
        batch_size=32,
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_cpus=1,
    )
    count, first = 0, None
    for batch in found.iter_batches(batch_size=None):
        first = (
            first or time.perf_counter()
        )  # the actors have started, and one batch is done
        count += len(batch["file_name"])
    end = time.perf_counter()
    ray.shutdown()
    assert count == len(files)
    return {
        **speed(count, end - start),
        "seconds_until_the_first_rows": round(first - start, 1),
    }


def speed(count, seconds):
    return {
        "seconds": round(seconds, 1),
        "images_per_second": round(count / seconds, 1),
    }


if __name__ == "__main__":
    main()
