"""`EfficientDet.export`: writes a format, checks it, and only then puts it in place."""

import contextlib
import dataclasses
import importlib
import inspect
import os
import pathlib
import shutil
import tempfile

import keras
import numpy as np

from effdet_keras.errors import InvalidStateError, InvalidTypeError, InvalidValueError
from effdet_keras.export.check import check_export
from effdet_keras.export.exported_detector import ExportedDetector
from effdet_keras.export.runtime import open_runtime, runtime_class
from effdet_keras.inference import evaluate as coco

REPORT_NAME = "export_report.json"
WRITERS = {
    "saved_model": "effdet_keras.export.saved_model.write.write_saved_model",
    "litert": "effdet_keras.export.litert.write.write_litert",
    "onnx": "effdet_keras.export.onnx.write.write_onnx",
    "openvino": "effdet_keras.export.openvino.write.write_openvino",
}
_ENDINGS = {".tflite": "litert", ".onnx": "onnx", ".xml": "openvino", "": "saved_model"}
_DRAWN_SIZES = (96, 160, 320, 480)  # pixels, of images that are drawn for a check


def export_model(
    model, path, format=None, *, images=None, evaluate=None, verbose=1, **options
):
    """`EfficientDet.export`; see there."""
    path = pathlib.Path(path)
    format = _format(path, format)
    write = _writer(format)
    _check_options(format, write, options)
    if keras.backend.backend() != "tensorflow":
        raise InvalidStateError(
            f"`export` traces a TensorFlow graph, and Keras runs on "
            f"{keras.backend.backend()}. Save the model, and export it in a process "
            "with KERAS_BACKEND=tensorflow: `effdet-keras export MODEL OUT`."
        )
    ending = "" if format == "saved_model" else path.suffix.lower()
    runtime_class(ending).require_installed()  # for the check, before the long work
    _check_replaceable(path)
    if model.averages is not None:
        model.averages.require_restored("export")
    from effdet_keras.export.network import evaluated  # it imports TensorFlow

    if images is None:
        images = _drawn()
    with _staged(path) as partial, evaluated(model) as model:
        write(model, partial, **options)
        runtime = open_runtime(partial)
        report = check_export(model, runtime, images, format=format)
        metrics = None
        if evaluate is not None:
            metrics = _metrics(model, runtime, evaluate, verbose)
        report = dataclasses.replace(report, path=os.fspath(path), metrics=metrics)
        report.save(_report_path(partial))
    if verbose:
        print(report)
    return report


def _metrics(model, runtime, dataset, verbose):
    """COCO's numbers of the model and of its export."""
    detectors = {"model": model, "export": ExportedDetector(runtime)}
    numbers = {}
    for name, detector in detectors.items():
        if verbose:
            print(f"\nCOCO evaluation of the {name}", flush=True)
        numbers[name] = coco.evaluate(detector, dataset, verbose=bool(verbose))
    return numbers


def _format(path, format):
    by_ending = _ENDINGS.get(path.suffix.lower())
    if format is None:
        format = by_ending
    if format not in WRITERS:
        raise InvalidValueError(
            f"`format` must be one of {', '.join(WRITERS)}, or `path` end in "
            f"{', '.join(filter(None, _ENDINGS))}. Received: format={format!r}, "
            f"path='{path}'"
        )
    if by_ending != format and (by_ending or format != "saved_model"):
        ending = next(e for e, name in _ENDINGS.items() if name == format)
        raise InvalidValueError(
            f"The path of a {format} export must "
            f"{f'end in {ending!r}' if ending else 'be a folder without an ending'}. "
            f"Received: path='{path}'"
        )
    return format


def _writer(format):
    module, _, name = WRITERS[format].rpartition(".")
    return getattr(importlib.import_module(module), name)


def _check_options(format, write, options):
    known = list(inspect.signature(write).parameters)[2:]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidTypeError(
            f"A {format} export has the options {', '.join(known)}. Received: "
            f"{', '.join(f'{name}={options[name]!r}' for name in unknown)}"
        )


def _check_replaceable(path):
    """An old export may be replaced; a folder of anything else may not."""
    if path.is_dir() and any(path.iterdir()) and not _report_path(path).exists():
        raise FileExistsError(
            f"The folder '{path}' is not an export ('{REPORT_NAME}' is not in it), and "
            "nothing else is overwritten. Give another path."
        )


def _report_path(path):
    if path.is_dir():
        return path / REPORT_NAME
    return path.with_name(f"{path.name}.{REPORT_NAME}")


@contextlib.contextmanager
def _staged(path):
    """A path beside `path`, whose files take their place when the block is done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{path.name}.", dir=path.parent, ignore_cleanup_errors=True
    ) as folder:
        folder = pathlib.Path(folder)
        yield folder / path.name
        # What is named first is what others open: it comes last.
        for new in sorted(folder.iterdir(), key=lambda new: new.name == path.name):
            _put_in_place(new, path.parent / new.name, folder / "replaced")


def _put_in_place(new, old, aside):
    if old.is_dir():
        os.replace(old, aside)
        try:
            os.replace(new, old)
        except OSError:
            os.replace(aside, old)
            raise
        shutil.rmtree(aside, ignore_errors=True)
    else:
        os.replace(new, old)


def _drawn():
    from effdet_keras.data.shapes import draw_shapes  # it imports TensorFlow

    rng = np.random.default_rng(0)
    return [draw_shapes(rng, size)[0] for size in _DRAWN_SIZES]
