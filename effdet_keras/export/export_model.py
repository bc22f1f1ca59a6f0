"""`EfficientDet.export`: writes a format, checks it, and only then puts it in place."""

import dataclasses
import os

import numpy as np

from effdet_keras._internal.backend import require_tensorflow
from effdet_keras._internal.whole_files import atomic_write_all, local_path
from effdet_keras.detect.evaluate import evaluate
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.check import check_export
from effdet_keras.export.network import (
    CALIBRATION_IMAGES,
    CHECK_IMAGES,
    divided_calibration,
    evaluated,
    evenly,
)
from effdet_keras.export.registry import (
    Written,
    format_to_write,
    target_to_write,
)
from effdet_keras.export.runtime import ExportedDetector, open_runtime

REPORT_NAME = "export_report.json"
_DRAWN_SIZES = (96, 160, 320, 480)  # pixels, of images that are drawn for a check


def export_model(
    model,
    path,
    format=None,
    *,
    target=None,
    images=None,
    evaluate=None,
    verbose=1,
    **options,
):
    """`EfficientDet.export`; see there."""
    path = local_path(path, "The path of an export")
    if target is not None:
        chosen = target_to_write(path, target, format, options)
    else:
        chosen = format_to_write(path, format, options)
    if chosen.needs_tensorflow(options):
        require_tensorflow(
            f"An export of {chosen.name} traces a TensorFlow graph",
            "Save the model, and export it in a process with KERAS_BACKEND=tensorflow: "
            "`effdet-keras export MODEL OUT`. ONNX, OpenVINO, LiteRT and PyTorch files "
            "(`.onnx`, `.xml`, `.tflite`, `.pt2`) do without TensorFlow."
            f"{chosen.without_tensorflow()}",
        )
    if target is None:
        chosen.require_runtime()  # before the long work
    _check_replaceable(path)
    if hasattr(images, "records"):  # a `DetectionDataset`
        images = _images_of_dataset(images)
    # Whether the file of a quantization-aware model will round as that does.
    of_target = "int8" if target is not None and chosen.is_int8(options) else None
    is_int8 = (options.get("precision") or of_target) == "int8"
    live = evaluated(model, quantized=is_int8)
    with atomic_write_all(path) as folder, live as model:
        partial = folder / path.name
        if target is not None:
            partial.mkdir()
            written = chosen.load_writer()(model, partial, path, **options)
        else:
            chosen.write(model, partial, **options)
            written = Written(partial, chosen.name)
        runtime = written.runtime or open_runtime(written.path)
        others = ()
        if images is None:
            images = _drawn_images()
            if options.get("calibration") is not None:
                images, others = _images_of_calibration(options), images
        report = check_export(
            model, runtime, images, format=written.format, others=others
        )
        metrics = None
        if evaluate is not None:
            metrics = _metrics(model, runtime, evaluate, verbose)
        report = dataclasses.replace(
            report,
            path=os.fspath(path),
            metrics=metrics,
            target=target,
            notes=written.notes,
        )
        if report.precision == "int8" and model.quantization is None:
            from effdet_keras.extras.quantization.rounding import with_rounding

            report = with_rounding(
                report, model, runtime, evaluate, options["calibration"]
            )
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
        numbers[name] = evaluate(detector, dataset, verbose=bool(verbose))
    return numbers


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


def _images_of_calibration(options):
    """A few that did not calibrate the file, filled up with some that did."""
    limit = options.get("calibration_images") or CALIBRATION_IMAGES
    used, held_back = divided_calibration(options["calibration"], limit)
    used = evenly(used, CHECK_IMAGES - len(held_back))
    return [read() for read in (*held_back, *used)]


def _images_of_dataset(dataset):
    """A few, evenly spread: the rest is what `evaluate` is for."""
    if len(dataset) == 0:
        raise InvalidValueError(
            "`images` is a dataset without images, so that nothing can be compared. "
            "Give one with images, or leave `images` out: four are drawn then."
        )
    return [dataset[i]["image"] for i in evenly(range(len(dataset)), CHECK_IMAGES)]


def _drawn_images():
    from effdet_keras.extras.shapes import draw_shapes

    rng, draw = np.random.default_rng(0), draw_shapes
    return [draw(rng, size)[0] for size in _DRAWN_SIZES]
