"""How long detection takes: reading, letterbox, network and postprocess."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import tempfile
import time

import keras
import numpy as np
from keras import ops
from PIL import Image

from effdet_keras._internal.backend import default_jit_compile
from effdet_keras._internal.number_ranges import check_whole_number
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.whole_files import local_path, write_text
from effdet_keras.detect.detect import letterboxed
from effdet_keras.export.runtime import ExportedDetector
from effdet_keras.images import list_images, read_image

STAGES = ("decode", "letterbox", "network", "postprocess")
_WARM_UP = 3  # batches: the first compiles, the next find their memory
_MADE_IMAGES = 4
_MADE_SIZE = (640, 480)  # width, height


@dataclasses.dataclass(frozen=True)
class BenchmarkReport:
    """The times that one batch takes, by stage, and all the stages together."""

    model: str
    image_size: tuple[int, int]
    batch_size: int
    runs: int
    # Of each stage `median_ms` and `p90_ms`; without `postprocess`, if an exported file
    # does it inside its network.
    stages: dict[str, dict[str, float]]
    images_per_second: float

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
        return "\n".join(lines)


def benchmark(predictor, images=None, *, batch_size=1, runs=30, trace=None):
    """Measures what `Predictor.detect` does with a folder, or with generated images.

    A live model computes network and postprocess as one graph. There the network is
    also measured alone, and `postprocess` is the difference. TensorFlow's profiler
    writes what happens in the runs to the folder `trace`.
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
    )


def _name(detector):
    if not isinstance(detector, ExportedDetector):
        return f"{detector.config.name} in Keras on {keras.backend.backend()}"
    path, precision = detector.runtime.path, detector.runtime.description.precision
    if not path.exists():  # a live model that was put into a runtime
        path = path.name
    return f"{os.fspath(path)} ({detector.config.name}, {precision})"


def _exported_measure(detector):
    """A function that takes paths and returns the seconds of each stage."""

    def measure(paths):
        images, seconds = _inputs(detector.config, paths)
        outputs, seconds["network"] = _timed(detector.runtime.run, images)
        if detector.runtime.description.outputs == "raw":
            _, seconds["postprocess"] = _timed(detector.detect_outputs, outputs)
        return seconds

    return measure


def _live_measure(model):
    """The same for a live model."""
    network = _Network(model)

    def measure(paths):
        images, seconds = _inputs(model.config, paths)
        _, seconds["network"] = _timed(network.predict_on_batch, images)
        _, both = _timed(model.predict_on_batch, images)
        seconds["postprocess"] = max(0.0, both - seconds["network"])
        return seconds

    return measure


def _inputs(config, paths):
    """A letterboxed batch, and how many seconds its two stages took."""
    pixels, decode = _timed(lambda: [read_image(path) for path in paths])
    images, letterbox = _timed(
        lambda: np.stack([letterboxed(config, image)[0] for image in pixels])
    )
    return images, {"decode": decode, "letterbox": letterbox}


def _timed(function, *arguments):
    start = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - start


class _Network(keras.Model):
    """The network alone, compiled as `predict` compiles it."""

    def __init__(self, model):
        super().__init__(name="network")
        self.model = model
        self.jit_compile = default_jit_compile()

    def call(self, images):
        outputs = self.model(images, training=False)
        # All logits of D0 are 18 MB, which take time to copy to the host. The
        # postprocess begins with the best logit of each anchor, so that is enough.
        best = ops.max(outputs["class_logits"], axis=-1)
        return {"best": best, "box_deltas": outputs["box_deltas"]}


def _summary(seconds):
    median, ninetieth = np.percentile(1e3 * np.array(seconds), [50, 90]).tolist()
    return {"median_ms": median, "p90_ms": ninetieth}


def _make_images(folder):
    """JPEG files with smooth shapes, about as large as photographs of their size."""
    rng = np.random.default_rng(0)
    for number in range(_MADE_IMAGES):
        coarse = Image.fromarray(rng.integers(0, 256, (30, 40, 3), "uint8"))
        coarse.resize(_MADE_SIZE, Image.Resampling.BICUBIC).save(
            folder / f"{number}.jpg", quality=90
        )
    return folder
