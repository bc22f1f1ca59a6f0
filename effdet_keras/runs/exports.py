"""The export of a run: tried with the untrained model, made of the best checkpoint."""

from __future__ import annotations

import pathlib
import tempfile

from effdet_keras.export.drawn_weights import draw_weights
from effdet_keras.export.registry import TARGETS
from effdet_keras.network.build import copied

_FEW_IMAGES = 8  # to calibrate with, where the file is thrown away


def try_export(model, target, dataset):
    """Exports a model that is not trained yet to a folder that is removed.

    What a target refuses, a package that is missing and a conversion that computes
    something else is known before hours of training. Batch norms get numbers of their
    own, as training gives them, except for int8, whose rounding they are not made for.
    A quantization-aware model, which has seen no numbers yet, is exported without that.
    """
    print(f"Exporting the untrained model for '{target}', to see that it can be.")
    trial = copied(model, quantization=None)
    options = _options(trial, target, dataset)
    if "calibration" in options:
        options["calibration_images"] = _FEW_IMAGES
    else:
        draw_weights(trial)
        if "precision" in TARGETS[target].options:
            options["precision"] = "float32"
    with tempfile.TemporaryDirectory() as folder:
        path = _path(pathlib.Path(folder), trial, target)
        trial.export(path, target=target, verbose=0, **options)


def export_run(model, target, folder, dataset):
    """Exports the best checkpoint of a run to a folder in `folder`."""
    path = _path(folder, model, target)
    path.parent.mkdir(parents=True, exist_ok=True)
    print(f"\nExport of that checkpoint for '{target}':")
    model.export(path, target=target, **_options(model, target, dataset))


def _path(folder, model, target):
    """Where a target writes to: TF Serving wants a version, and others take a name."""
    version = ("1",) if target == "tf-serving" else ()
    return folder.joinpath(target, model.config.name, *version)


def _options(model, target, dataset):
    """The images that int8 is calibrated with, where a target has nothing else."""
    chosen = TARGETS[target]
    is_free = "precision" in chosen.options or "calibration" not in chosen.options
    learned = chosen.takes_int8 and model.quantization is not None
    return {} if is_free or learned else {"calibration": dataset}
