"""Measures each file to which a model can be exported: AP, time, size, memory."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from PIL import Image

from effdet_keras._internal.number_ranges import check_whole_number
from effdet_keras.data.dataset import boxes_per_class
from effdet_keras.detect.detect import load_rgb
from effdet_keras.detect.evaluate import image_results
from effdet_keras.errors import InvalidValueError, check_choice, reason_of
from effdet_keras.export.check import size_of
from effdet_keras.export.network import evenly
from effdet_keras.export.registry import FORMATS, TARGETS
from effdet_keras.export.runtime import (
    REPORT_NAME,
    ExportedDetector,
    Runtime,
    file_of_export,
    open_runtime,
)
from effdet_keras.extras.analysis.compare import compare_detectors
from effdet_keras.extras.benchmark.files_report import FileNumbers, FilesReport
from effdet_keras.extras.targets.frigate import FLOAT_DETECTORS
from effdet_keras.images import IMAGE_SUFFIXES
from effdet_keras.weights.archive import write_archive

_TIMED_IMAGES = 8  # at most, from the dataset
LIVE_NAME = "live model"
NOT_TIMED = "not timed"
_LIVE_FILE = "live.keras"
_NO_CALIBRATION = (
    "int8 needs calibration images, and they must not be the images that AP is "
    "measured on: give a dataset with a training split, or `calibration`"
)


_STRUCTURAL = (
    "only its structure was checked, because its runtime is not available on this "
    "machine: the part that ONNX Runtime can compute gives the results of the model, "
    "and the rest is what the device's tools expect"
)


_ROWS_OF_FRIGATE = (
    f"{NOT_TIMED}: Frigate reads its rows; they were read here only to measure AP"
)


class Candidate(NamedTuple):
    """One file to write, as arguments of `EfficientDet.export`.

    `reader` opens a file whose outputs `open_runtime` does not support.
    """

    name: str
    path: str  # inside the folder of the files
    format: str | None
    options: Mapping[str, Any]
    needs_calibration: bool
    reader: Callable[[pathlib.Path], Runtime] | None = None


def candidates(names: str | Sequence[str] = "all") -> list[Candidate]:
    """Returns all files that can be exported, or those with the given names.

    Each format has one file for each of its precisions, such as "litert-int8". Each
    target has one file, with the target's defaults. Frigate has one more file for each
    of its detectors that takes a float file. A target with the name of a format, such
    as "ncnn", is one of that format's files.

    Args:
        names: names in one string, separated by commas, or in a list; "all" is all.

    Returns:
        List of `Candidate`.

    Raises:
        ValueError: If a name is unknown; the message lists the known names.

    Example:
        >>> [one.name for one in candidates("onnx, litert-int8")]
        ['onnx', 'litert-int8']
    """
    known = {one.name: one for one in _all_candidates()}
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    if list(names) == ["all"]:
        return list(known.values())
    for name in names:
        check_choice("targets", name, ("all", *known))
    return [known[name] for name in names]


def _all_candidates():
    for name, one in FORMATS.items():
        for precision in one.options.get("precision") or ("float32",):
            is_usual = precision == "float32"
            file = name if is_usual else f"{name}-{precision}"
            options = {} if is_usual else {"precision": precision}
            path = f"{file}/model{one.ending}"
            yield Candidate(file, path, name, options, precision == "int8")
    for name, target in TARGETS.items():
        if name not in FORMATS:
            # The path ends in a version, which one of the targets requires.
            options = {"target": name}
            takes_images = "calibration" in target.options
            yield Candidate(name, f"{name}/1", None, options, takes_images)
    for detector, reader in FLOAT_DETECTORS.items():
        name, options = f"frigate-{detector}", {"target": "frigate"}
        options |= {"detector": detector}
        yield Candidate(name, f"{name}/1", None, options, False, reader)


def benchmark_files(
    model: Any,
    data: Any,
    targets: str | Sequence[str] = "all",
    *,
    calibration: Any = None,
    folder: str | os.PathLike | None = None,
    runs: int = 30,
    threads: int | None = None,
    num_draws: int = 1000,
    seed: int = 0,
    verbose: bool = True,
) -> FilesReport:
    """Exports a model to each target, and measures all files on the same images.

    AP is COCO's, over all images of `data`, computed with the file in its own runtime.
    The interval of the lost AP is that of the paired bootstrap over images
    (`compare_detectors`): as many images as there are are drawn with replacement, the
    same for the file and the live model, and AP is computed for both. 95 % of the
    differences in `num_draws` such draws are in the interval. It says how much the
    number could differ on other images of the same kind, but not how much it could
    differ with other weights.

    Milliseconds are for one image, from reading its file to its boxes. Memory is the
    peak of the process, including the runtime and Python: each file is opened and timed
    alone in a process of its own.

    Args:
        model: `EfficientDet`.
        data: `effdet_keras.data.DetectionDataset` to evaluate on. It should have been
            used neither to train the model nor to calibrate a file.
        targets: names of `candidates`, in one string with commas, or in a list; or
            "all".
        calibration: the calibration images for int8, as `export` takes them. None
            leaves out the files that need them.
        folder: path of a folder to keep the files in; None keeps no file.
        runs: int, number of images to time in each process, after three to warm up.
        threads: int, threads of the runtimes; None for their own choice.
        num_draws, seed: ints, number of draws and seed of the bootstrap.
        verbose: bool, whether to print the progress.

    Returns:
        `FilesReport`. If a file could not be made, its row has the reason.

    Raises:
        ValueError: If a target is unknown, or `data` has no objects.

    Example:
        >>> from effdet_keras.model.efficientdet import EfficientDet
        >>> model = EfficientDet.from_preset("efficientdet-lite0")
        >>> benchmark_files(model, None, "onix")
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `targets` must be one of 'all', ...
    """
    check_whole_number("runs", runs, "[1, inf)")
    check_whole_number("num_draws", num_draws, "[1, inf)")
    chosen = candidates(targets)
    if not boxes_per_class(data, crowds=False).any():
        raise InvalidValueError(
            "AP cannot be measured: no image of `data` has a box. Choose a split "
            "with annotated images (`split`, --split)."
        )
    with contextlib.ExitStack() as stack:
        temporary = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = temporary if folder is None else pathlib.Path(folder)
        images = write_images(data, temporary / "images")
        measure = _Measurement(data, images, runs, threads, num_draws, seed, verbose)
        write_archive(model, temporary / _LIVE_FILE)
        rows = [measure.live(model, temporary / _LIVE_FILE)]
        for one in chosen:
            if verbose:
                print(f"{one.name} ...", flush=True)
            rows.append(_measured(model, one, folder, calibration, measure))
    return FilesReport(
        model=model.config.name,
        num_images=sum(bool((~x.truth_is_crowd).any()) for x in measure.expected),
        runs=runs,
        rows=tuple(rows),
    )


def _measured(model, candidate, folder, calibration, measure):
    """Returns the numbers of one file, or the reason why there are none."""
    path = folder / candidate.path
    options = dict(candidate.options)
    if _takes_calibration(candidate, model):
        if calibration is None:
            return FileNumbers(candidate.name, reason=_NO_CALIBRATION)
        options["calibration"] = calibration
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        report = model.export(
            path, candidate.format, images=measure.images, verbose=0, **options
        )
        if report.format not in FORMATS:  # a vendor's format, only for its device
            return FileNumbers(
                candidate.name, check=_STRUCTURAL, megabytes=file_megabytes(path)
            )
        file = file_of_export(path, report.format)
        if candidate.reader is None:
            runtime = open_runtime(file)  # AP does not depend on threads
            return measure.file(candidate.name, file, runtime, model.postprocess)
        told, runtime = {"time_reason": _ROWS_OF_FRIGATE}, candidate.reader(file)
        return measure.file(candidate.name, file, runtime, model.postprocess, told)
    except ImportError as error:
        return FileNumbers(candidate.name, reason=f"missing package: {error}")
    # Converters raise many kinds of errors. One failure must not lose the other files.
    except Exception as error:
        return FileNumbers(candidate.name, reason=reason_of(error))


def _takes_calibration(candidate, model):
    """Returns whether a file needs calibration: not if it uses learned ranges."""
    target = candidate.options.get("target")
    takes_learned = target is None or TARGETS[target].takes_int8
    has_learned = takes_learned and model.quantization is not None
    return candidate.needs_calibration and not has_learned


def write_images(data: Any, folder: pathlib.Path) -> pathlib.Path:
    """Writes a few images of a dataset as files, which every process reads.

    Image files are copied unchanged, since formats differ in the time to decode them.
    Images in memory, or inside larger files, become PNG files.
    """
    folder.mkdir()
    for number in evenly(range(len(data)), _TIMED_IMAGES):
        example = data[number]
        file = pathlib.Path(example["path"] or "")
        if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file():
            shutil.copyfile(file, folder / f"{number}{file.suffix}")
        else:
            pixels = load_rgb(example["image"], f"image {number}")
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


class _Measurement:
    """Measures detectors on the same images and in the same way."""

    def __init__(self, data, images, runs, threads, num_draws, seed, verbose):
        self.images, self._threads = images, threads
        self.expected = []  # results of the live model
        self._data, self._runs, self._verbose = data, runs, verbose
        self._draws = {"num_draws": num_draws, "seed": seed}

    def live(self, model, path):
        """Returns the numbers of the live model, with which files are compared."""
        if self._verbose:
            print(f"{LIVE_NAME} ...", flush=True)
        self.expected = image_results(model, self._data, verbose=False)
        nothing = {"num_draws": 1, "seed": 0}
        ap = compare_detectors(self.expected, self.expected, **nothing)["AP"].first
        numbers = {"megabytes": file_megabytes(path), **self._times(path)}
        return FileNumbers(LIVE_NAME, ap=ap, **numbers)

    def file(self, name, path, runtime, postprocess, times=None):
        """Returns the numbers of an exported file; measures `times` if not given."""
        detector = ExportedDetector(runtime)
        found = image_results(detector, self._data, verbose=False)
        difference = compare_detectors(self.expected, found, **self._draws)["AP"]
        description = runtime.description
        return FileNumbers(
            name,
            ap=difference.second,
            ap_lost=difference.first - difference.second,
            lost_low=-difference.high,
            lost_high=-difference.low,
            precision=description.precision,
            suppression=description.other_suppression(postprocess),
            megabytes=file_megabytes(path),
            **(self._times(path) if times is None else times),
        )

    def _times(self, path):
        threads = None if path.name == _LIVE_FILE else self._threads
        return time_file(path, images=self.images, runs=self._runs, threads=threads)


def time_file(
    path: pathlib.Path,
    *,
    images: pathlib.Path,
    runs: int,
    threads: int | None = None,
) -> dict[str, Any]:
    """Measures milliseconds and memory with `effdet-keras benchmark` in a process.

    Returns:
        Dict of `median_ms`, `p95_ms` and `peak_mb`; or of `time_reason`, the reason why
        the process failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "times.json"
        words = ["--images", images, "--runs", runs, "--json", file]
        if threads is not None:
            words += ["--threads", threads]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "effdet_keras",
                "benchmark",
                path,
                *map(str, words),
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:]
            return {"time_reason": f"{NOT_TIMED}: {''.join(last)}"}
        numbers = json.loads(file.read_text(encoding="utf-8"))
    times = numbers["stages"]["all"]
    return {
        "median_ms": times["median_ms"],
        "p95_ms": times["p95_ms"],
        "peak_mb": numbers["peak_mb"],
    }


def file_megabytes(path: pathlib.Path) -> float:
    """Returns the size of a model and its files, in megabytes of 10^6 bytes."""
    size = size_of(path)
    weights = path.with_suffix(".bin")  # OpenVINO's
    if path.is_file() and weights.is_file():
        size += size_of(weights)
    if path.is_dir() and (path / REPORT_NAME).is_file():
        size -= size_of(path / REPORT_NAME)
    return size / 1e6
