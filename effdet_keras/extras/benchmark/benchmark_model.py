"""Measures the time of detection: decoding, letterbox, network and postprocess."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import tempfile
import time

import numpy as np
from PIL import Image

from effdet_keras._internal.number_ranges import check_whole_number
from effdet_keras._internal.optional_imports import keras
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.whole_files import local_path, write_text
from effdet_keras.detect.detect import letterboxed
from effdet_keras.export.runtime import ExportedDetector
from effdet_keras.images import list_images, read_image

STAGES = ("decode", "letterbox", "network", "postprocess")
_WARM_UP = 3  # batches: the first one compiles, the next ones allocate memory
_MADE_IMAGES = 4
_MADE_SIZE = (640, 480)  # width, height


@dataclasses.dataclass(frozen=True)
class BenchmarkReport:
    """The times of one batch, by stage, and of all stages together."""

    model: str
    image_size: tuple[int, int]
    batch_size: int
    runs: int
    # Each stage has `median_ms`, `p90_ms` and `p95_ms`. `postprocess` is missing if an
    # exported file contains it in its network.
    stages: dict[str, dict[str, float]]
    images_per_second: float
    peak_mb: float | None = None  # peak memory of the process, in units of 10^6 bytes

    def save(self, path: str | os.PathLike[str]) -> None:
        write_text(path, json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    def __str__(self) -> str:
        height, width = self.image_size
        lines = [
            f"{self.model}, input {height} x {width}, batches of {self.batch_size}, "
            f"{self.runs} runs",
            f"{'':<12}{'median ms':>11}{'p90 ms':>11}",
        ]
        for name in (*STAGES, "all"):
            if name in self.stages:
                times = self.stages[name]
                numbers = f"{times['median_ms']:>11.1f}{times['p90_ms']:>11.1f}"
                lines.append(f"{name:<12}{numbers}")
            else:
                lines.append(f"{name:<12}{'inside the network':>22}")
        lines.append(f"{self.images_per_second:.1f} images per second")
        if self.peak_mb is not None:
            lines.append(f"{self.peak_mb:.0f} MB of memory at the peak")
        return "\n".join(lines)


def benchmark(predictor, images=None, *, batch_size=1, runs=30, trace=None):
    """Times `Predictor.detect` on a folder of images, or on generated images.

    A live model computes network and postprocess as one graph. So its network is also
    measured alone, and `postprocess` is the difference.

    Args:
        predictor: `Predictor`, the model.
        images: path of a folder of images; None generates images of 640x480 pixels.
        batch_size: int, images per batch; a file with a fixed batch size keeps it.
        runs: int, number of timed batches, after three to warm up.
        trace: path of a folder for a profile of the runs by TensorFlow; None for none.

    Returns:
        `BenchmarkReport`.
    """
    check_whole_number("batch_size", batch_size, "[1, inf)")
    check_whole_number("runs", runs, "[1, inf)")
    detector = predictor.detector
    is_exported = isinstance(detector, ExportedDetector)
    measure = _exported_measure(detector) if is_exported else _live_measure(detector)
    if is_exported:
        batch_size = detector.runtime.description.batch_size or batch_size
    with tempfile.TemporaryDirectory() as folder:
        if images is None:
            images = _make_images(pathlib.Path(folder))
        paths = itertools.cycle(list_images(images))
        batches = (list(itertools.islice(paths, batch_size)) for _ in itertools.count())
        for _ in range(_WARM_UP):
            measure(next(batches))
        with contextlib.ExitStack() as stack:
            if trace is not None:
                folder = os.fspath(local_path(trace, "`trace`"))
                stack.enter_context(tf.profiler.experimental.Profile(folder))
            times = [measure(next(batches)) for _ in range(runs)]
    stages = {name: [run[name] for run in times] for name in times[0]}
    stages["all"] = [sum(run.values()) for run in times]
    return BenchmarkReport(
        model=_name(detector),
        image_size=tuple(detector.config.image_size),
        batch_size=batch_size,
        runs=runs,
        stages={name: _summary(values) for name, values in stages.items()},
        images_per_second=float(batch_size / np.median(stages["all"])),
        peak_mb=peak_megabytes(),
    )


_STATUS = pathlib.Path("/proc/self/status")
_PEAK = "VmHWM:"  # the line with the peak, in KiB


def peak_megabytes():
    """Returns the peak memory of this process; None if the system does not say."""
    # `getrusage` would include the memory that the parent process had at the start.
    if not _STATUS.is_file():
        return None
    lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    kibibytes = [int(line.split()[1]) for line in lines if line.startswith(_PEAK)]
    return kibibytes[0] * 1024 / 1e6 if kibibytes else None


def _name(detector):
    if not isinstance(detector, ExportedDetector):
        return f"{detector.config.name} in Keras on {keras.backend.backend()}"
    path, precision = detector.runtime.path, detector.runtime.description.precision
    if not path.exists():  # a live model that was converted for a runtime
        path = path.name
    return f"{os.fspath(path)} ({detector.config.name}, {precision})"


def _exported_measure(detector):
    """Returns a function from paths to the seconds of each stage."""

    def measure(paths):
        images, seconds = _inputs(detector.config, paths)
        outputs, seconds["network"] = _timed(detector.runtime.run, images)
        if detector.runtime.description.is_raw:
            _, seconds["postprocess"] = _timed(detector.detect_outputs, outputs)
        return seconds

    return measure


def _live_measure(model):
    """Returns such a function for a live model."""
    # Imported here: exported files are measured without Keras and its memory.
    from effdet_keras.extras.benchmark.bare_network import BareNetwork

    network = BareNetwork(model)

    def measure(paths):
        images, seconds = _inputs(model.config, paths)
        _, seconds["network"] = _timed(network.predict_on_batch, images)
        _, both = _timed(model.predict_on_batch, images)
        seconds["postprocess"] = max(0.0, both - seconds["network"])
        return seconds

    return measure


def _inputs(config, paths):
    """Returns a letterboxed batch, and the seconds of the first two stages."""
    pixels, decode = _timed(lambda: [read_image(path) for path in paths])
    images, letterbox = _timed(
        lambda: np.stack([letterboxed(config, image)[0] for image in pixels])
    )
    return images, {"decode": decode, "letterbox": letterbox}


def _timed(function, *arguments):
    start = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - start


def _summary(seconds):
    # pXX is the percentile: XX percent of the runs took no longer.
    names = {"median_ms": 50, "p90_ms": 90, "p95_ms": 95}
    values = np.percentile(1e3 * np.array(seconds), list(names.values()))
    return dict(zip(names, values.tolist()))


def _make_images(folder):
    """Writes JPEG files with smooth shapes, as large as photos of their size."""
    rng = np.random.default_rng(0)
    for number in range(_MADE_IMAGES):
        coarse = Image.fromarray(rng.integers(0, 256, (30, 40, 3), "uint8"))
        coarse.resize(_MADE_SIZE, Image.Resampling.BICUBIC).save(
            folder / f"{number}.jpg", quality=90
        )
    return folder
