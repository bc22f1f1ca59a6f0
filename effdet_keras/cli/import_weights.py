"""From one file of weights to another, of this package or of an older tool."""

from __future__ import annotations

import os
from collections.abc import Sequence

from effdet_keras._internal.whole_files import local_path
from effdet_keras.errors import InvalidValueError
from effdet_keras.model.config import MODEL_NAMES
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.weights.archive import write_archive
from effdet_keras.weights.assign import LoadReport
from effdet_keras.weights.identify import identify
from effdet_keras.weights.kinds.torch_effdet import ENDINGS
from effdet_keras.weights.pretrained import config_for_weights, load_source
from effdet_keras.weights.read_weights import read_weights, with_class_names


def import_weights(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    model_name: str | None = None,
    class_names: Sequence[str] | None = None,
    averages: bool = True,
    skip_mismatch: bool = False,
    verbose: int = 1,
) -> LoadReport:
    """Reads weights of any known kind, and writes them as the ending of `out` says.

    Args:
        source: path or URL, or a key such as "coco" with `model_name`; see
            `EfficientDet.load_pretrained`.
        out: path that ends in `.keras` (an archive with names and config),
            `.weights.h5`, `.pth` or `.safetensors` (PyTorch effdet); anything else
            is the prefix of a TF1 checkpoint of google/automl. It must not exist.
        class_names: sequence of strings, the names of the classes if the file does
            not have them; they are written into a `.keras`.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> model = EfficientDet.from_preset("efficientdet-d0", num_classes=2)
        >>> model.save_weights(f"{folder}/d0.weights.h5")
        >>> report = import_weights(
        ...     f"{folder}/d0.weights.h5", f"{folder}/d0.safetensors", verbose=0)
        >>> report.num_loaded == report.num_weights
        True
    """
    out = local_path(out, "`out`")
    _check_free(out)
    weights = read_weights(source, model_name, averages=averages, verbose=verbose)
    if class_names is not None:
        weights = with_class_names(weights, class_names)
    config, class_names, category_ids = config_for_weights(
        model_name or _model_of(weights),
        weights,
        class_names=None,
        category_ids=None,
        overrides={},
    )
    model = EfficientDet(config, class_names=class_names, category_ids=category_ids)
    report = load_source(model, weights, skip_mismatch=skip_mismatch, verbose=verbose)
    _write(model, out)
    if verbose:
        print(f"Wrote '{out}'", flush=True)
    return report


def _check_free(out):
    taken = [out, out.with_name(out.name + ".index")]
    for path in taken:
        if path.exists():
            raise FileExistsError(
                f"'{path}' exists, and nothing is overwritten: give another path."
            )


def _model_of(weights):
    named = (weights.config or {}).get("name")
    if named in MODEL_NAMES:
        return named
    identity = identify(weights)
    if len(identity.names) == 1:
        return identity.names[0]
    # D6 and D7 have the same network and differ only in the size of their input.
    raise InvalidValueError(
        f"The weights in '{weights.path}' ({weights.kind}) fit {identity}: say which "
        "model is meant with `model_name` (`--model`)."
    )


def _write(model, out):
    if out.suffix == ".keras":
        write_archive(model, out)
    elif out.name.endswith(".weights.h5"):
        out.parent.mkdir(parents=True, exist_ok=True)
        model.save_weights(out)
    elif out.suffix in ENDINGS:
        model.export_checkpoint(out, format="torch-effdet")
    else:
        model.export_checkpoint(out, format="automl-tf1")
