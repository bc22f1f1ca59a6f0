"""How much memory does a shard of 2,000, 20,000 and 100,000 images take, and its merge?

Each file name is a link to one of a few JPEG files of 640 x 480, which are really read
and decoded. A stand-in for the network finds ten boxes in each image. So only the
memory that the package itself keeps can grow. Each number of images runs in a process
of its own. The peak is given beside that of a process that only made the detector.
"""

import argparse
import contextlib
import io
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

COUNTS = (2_000, 20_000, 100_000)
_FILES = 8  # number of JPEG files to which all names link
_FOUND = 10  # number of boxes in each image


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        measure(arguments.measure)
        return
    counts = (20, 40) if arguments.quick else arguments.counts
    for count in (0, *counts):
        subprocess.run([sys.executable, __file__, "--measure", str(count)], check=True)


def measure(count):
    """Prints a line with the peak memory after `count` images."""
    from images import write_images

    from effdet_keras.extras.bulk.batch_detector import BatchDetector
    from effdet_keras.extras.bulk.merge import merge_parts
    from effdet_keras.extras.bulk.parts import Parts
    from effdet_keras.extras.bulk.shard import (
        Shard,
        detect_shard,
        settings_of,
        sources_of,
    )

    line, start = {"case": "bulk memory", "images": count}, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "files").mkdir()
        (folder / "images").mkdir()
        write_images(folder / "files", _FILES)
        for number in range(count):
            file = folder / "files" / f"{number % _FILES + 1}.jpg"
            (folder / "images" / f"{number:07}.jpg").symlink_to(file)
        detector = BatchDetector(stand_in(), batch_size=8)
        if count:
            shard, parts = Shard(1, 1), Parts(folder / "parts")
            parts.agree(settings_of(detector, shard))
            sources = sources_of([folder / "images"], shard)
            with contextlib.redirect_stdout(io.StringIO()):
                detect_shard(detector, sources, parts, shard, part_images=500)
            line["peak_mb_of_shard"] = peak()
            line["seconds_of_shard"] = round(time.perf_counter() - start, 1)
            merged, _ = merge_parts(folder / "parts", folder / "found.json")
            assert merged == count
    print(json.dumps({**line, "peak_mb": peak()}), flush=True)


def peak():
    """Returns the peak memory of this process so far, in MB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def stand_in():
    """Returns a `Predictor` without a network, which finds the same in every image."""
    import numpy as np

    import effdet_keras as ek

    class StandIn(ek.Predictor):
        def detect(self, images, *_, **__):
            scores = np.linspace(0.9, 0.4, _FOUND, dtype="float32")
            boxes = np.tile(np.float32([[10, 20, 200, 300]]), (_FOUND, 1))
            labels = np.arange(_FOUND) % self.config.num_classes
            return [ek.Detections(boxes, scores, labels, image=i) for i in images]

    model = ek.EfficientDet.from_preset(
        "efficientdet-lite0", image_size=64, max_level=6, num_classes=3, verbose=0
    )
    return StandIn(model)


if __name__ == "__main__":
    main()
