"""The exports of a run: a trial with the untrained model, then the best checkpoint."""

from __future__ import annotations

import pathlib
import tempfile

from effdet_keras.export.drawn_weights import draw_weights
from effdet_keras.export.registry import TARGETS
from effdet_keras.network.build import copied

_FEW_IMAGES = 8  # to calibrate the trial export, whose file is thrown away


def try_export(model, target, dataset):
    """Exports an untrained model to a temporary folder, to find failures early.

    This shows before hours of training whether the target rejects the model, a package
    is missing, or the converted model computes something else.

    For this trial, the weights and the statistics of batch normalization are random
    numbers like those of a trained model. The exception is int8, for whose rounding
    these numbers are not made. A quantization-aware model has not seen any activations
    yet, so it is exported without its quantization.
    """
    print(
        f"Exporting the untrained model for '{target}', to check that the export works."
    )
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
    """Exports the best checkpoint of a run to a subfolder of `folder`."""
    path = _path(folder, model, target)
    path.parent.mkdir(parents=True, exist_ok=True)
    print(f"\nExport of that checkpoint for '{target}':")
    model.export(path, target=target, **_options(model, target, dataset))


def _path(folder, model, target):
    """Returns the output path: TF Serving needs a version, other targets a name."""
    version = ("1",) if target == "tf-serving" else ()
    return folder.joinpath(target, model.config.name, *version)


def _options(model, target, dataset):
    """Returns images for calibration, if the target is int8 only and needs them."""
    chosen = TARGETS[target]
    is_free = "precision" in chosen.options or "calibration" not in chosen.options
    learned = chosen.takes_int8 and model.quantization is not None
    return {} if is_free or learned else {"calibration": dataset}
