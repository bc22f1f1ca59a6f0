"""`EfficientDet.export`: writes a file, checks it, and then moves it to its path."""

import dataclasses
import os
import pathlib

import numpy as np

from effdet_keras._internal.backend import require_tensorflow
from effdet_keras._internal.whole_files import atomic_write_all, files_in, local_path
from effdet_keras.detect.detect import image_sources
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
from effdet_keras.export.runtime import (
    REPORT_NAME,
    ExportedDetector,
    open_runtime,
    read_report,
)

_SHOWN_FILES = 5
_DRAWN_SIZES = (96, 160, 320, 480)  # pixels, sides of the images drawn for the check


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
    """Implements `EfficientDet.export`; see there."""
    path = local_path(path, "The path of an export")
    if path.is_dir() and (path.is_symlink() or path.name in ("", "..")):
        path = path.resolve()  # the link itself is not replaced
    if target is not None:
        chosen = target_to_write(path, target, format, options)
    else:
        chosen = format_to_write(path, format, options)
    # None means the default, which is in the signature of each writer.
    options = {name: value for name, value in options.items() if value is not None}
    if chosen.needs_tensorflow(options):
        require_tensorflow(
            f"Exporting to {chosen.name} traces a TensorFlow graph",
            "Save the model, and export it in a process with "
            "KERAS_BACKEND=tensorflow: `effdet-keras export MODEL OUT`. Files for "
            "ONNX, OpenVINO, LiteRT and PyTorch (`.onnx`, `.xml`, `.tflite`, `.pt2`) "
            f"can be exported without TensorFlow.{chosen.without_tensorflow()}",
        )
    if target is None:
        chosen.require_runtime()  # an error before the conversion, which takes long
    is_folder = target is not None or not chosen.ending
    _check_replaceable(path, is_folder, () if is_folder else chosen.files_beside(path))
    kept = _files_to_keep(path)
    if hasattr(images, "records"):  # a `DetectionDataset`
        images = _images_of_dataset(images)
    elif images is not None and not image_sources(images)[0]:
        raise InvalidValueError(
            "`images` contains no image, so the exported file could not be compared "
            "with the model. Pass images, or leave `images` out: then four images are "
            "drawn."
        )
    # Whether a quantization-aware model becomes an int8 file, with the same rounding.
    of_target = "int8" if target is not None and chosen.is_int8(options) else None
    is_int8 = (options.get("precision") or of_target) == "int8"
    live = evaluated(model, quantized=is_int8)
    with atomic_write_all(path, kept) as folder, live as model:
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
        written_files = files_in(partial if is_folder else folder)
        report_path = _report_path(partial)
        report = dataclasses.replace(
            report,
            notes=(*report.notes, *_kept_note(set(kept) - set(written_files))),
            files=(*written_files, report_path.name),
        )
        report.save(report_path)
    if verbose:
        print(report)
    return report


def _metrics(model, runtime, dataset, verbose):
    """Computes the COCO metrics of the model and of its export."""
    detectors = {"model": model, "export": ExportedDetector(runtime)}
    numbers = {}
    for name, detector in detectors.items():
        if verbose:
            print(f"\nCOCO evaluation of the {name}", flush=True)
        numbers[name] = evaluate(detector, dataset, verbose=bool(verbose))
    return numbers


def _check_replaceable(path, is_folder, other_files):
    """Raises an error if the export would replace anything but an older export.

    This includes `other_files` next to the path, unless an older export to the same
    path wrote them.
    """
    report = _report_path(path)
    if path.is_dir() and any(path.iterdir()) and not report.exists():
        raise FileExistsError(
            f"The folder '{path}' is not an older export, because it contains no "
            f"'{REPORT_NAME}': it is not overwritten. Give another path."
        )
    if is_folder and path.exists() and not path.is_dir():
        raise FileExistsError(
            f"'{path}' is a file, but this export writes a folder. Give another path."
        )
    here = pathlib.Path.cwd()
    if is_folder and path.is_dir() and path.resolve() in (here, *here.parents):
        raise InvalidValueError(
            "This export replaces a folder that contains the current folder of this "
            f"process. Received: path='{path}'. Change to the folder above it, and "
            "give the path from there."
        )
    others = [str(file) for file in other_files if os.path.lexists(file)]
    if others and not report.exists():
        raise FileExistsError(
            f"The export to '{path}' also writes {', '.join(map(repr, others))}, which "
            "already exists and is not part of an older export to this path: it is "
            "not overwritten. Give a path with another name before the ending."
        )


def _files_to_keep(path):
    """Returns the files in an older export's folder that the export did not write."""
    if not path.is_dir():
        return []
    # Older reports do not list files. Then all files are kept that the new export does
    # not write.
    own = {REPORT_NAME, *read_report(path).get("files", ())}
    return [name for name in files_in(path) if name not in own]


def _kept_note(kept):
    """Returns a note about files that are kept, which may belong to the old model."""
    if not kept:
        return ()
    names = ", ".join(sorted(kept)[:_SHOWN_FILES])
    more = ", ..." if len(kept) > _SHOWN_FILES else ""
    return (
        f"  kept in the folder, although this export did not write them: {names}{more}",
    )


def _report_path(path):
    if path.is_dir():
        return path / REPORT_NAME
    return path.with_name(f"{path.name}.{REPORT_NAME}")


def _images_of_calibration(options):
    """Reads a few images that were not used for calibration; if too few, used ones."""
    limit = options.get("calibration_images") or CALIBRATION_IMAGES
    used, held_back = divided_calibration(options["calibration"], limit)
    used = evenly(used, CHECK_IMAGES - len(held_back))
    return [read() for read in (*held_back, *used)]


def _images_of_dataset(dataset):
    """Reads a few images, evenly spread; `evaluate` is for the whole dataset."""
    if len(dataset) == 0:
        raise InvalidValueError(
            "`images` is a dataset without images, so the exported file could not be "
            "compared with the model. Pass a dataset with images, or leave `images` "
            "out: then four images are drawn."
        )
    return [dataset[i]["image"] for i in evenly(range(len(dataset)), CHECK_IMAGES)]


def _drawn_images():
    from effdet_keras.extras.shapes import draw_shapes

    rng, draw = np.random.default_rng(0), draw_shapes
    return [draw(rng, size)[0] for size in _DRAWN_SIZES]
