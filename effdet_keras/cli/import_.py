"""`effdet-keras import`: reads weights of any known kind, and writes another kind."""

from __future__ import annotations

import argparse

from effdet_keras._internal.optional_imports import keras
from effdet_keras._internal.whole_files import check_may_be_written, local_path
from effdet_keras.cli.arguments import add_raw
from effdet_keras.errors import InvalidValueError, check_argument
from effdet_keras.network.config import MODEL_NAMES

SUMMARY = "read weights of any known kind, and write them as another kind"
DESCRIPTION = (
    "Reads weights of google/automl, PyTorch effdet, Keras Applications or this "
    "package, and writes them to OUT. The ending of OUT determines the kind of file: "
    ".keras (an archive), .weights.h5, .pth or .safetensors (for PyTorch effdet). Any "
    "other OUT is the prefix of a TensorFlow 1 checkpoint for google/automl."
)
_WRITTEN = (
    "a path that ends in .keras, .weights.h5, .pth or .safetensors, or the prefix of a "
    "TensorFlow checkpoint (for .onnx and .tflite: `effdet-keras export`)"
)
# Endings of other files, which nobody means as the prefix of a checkpoint.
_OTHER_FILES = (".h5", ".hdf5", ".index", ".onnx", ".tflite")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    parser.add_argument(
        "source", metavar="SOURCE", help="file, folder or address of the weights"
    )
    parser.add_argument(
        "out",
        metavar="OUT",
        help="file to write, or prefix of a checkpoint, which must not exist yet",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help=(
            "the model that the weights belong to; needed only if they fit several "
            "models"
        ),
    )
    parser.add_argument(
        "--class-names",
        nargs="+",
        metavar="NAME",
        help="names of the classes, in the order of the labels",
    )
    parser.add_argument(
        "--skip-mismatch",
        action="store_true",
        help=(
            "keep the initial values of weights that are missing in the file or have "
            "another shape there"
        ),
    )
    add_raw(parser)


def run(
    source: str,
    out: str,
    *,
    model: str | None = None,
    class_names: list[str] | None = None,
    skip_mismatch: bool = False,
    raw: bool = False,
) -> None:
    """Reads weights of any known kind and writes them as another."""
    keras.require("`effdet-keras import`")
    from effdet_keras.detect.postprocess import Postprocess
    from effdet_keras.model.efficientdet import EfficientDet
    from effdet_keras.weights.archive import write_archive
    from effdet_keras.weights.identify import identify
    from effdet_keras.weights.kinds.torch_state_dict import ENDINGS
    from effdet_keras.weights.pretrained import config_for_weights, load_source
    from effdet_keras.weights.read_weights import read_weights, with_class_names

    out = local_path(out, "`out`")
    is_prefix = not out.name.endswith(_OTHER_FILES) or out.name.endswith(".weights.h5")
    check_argument(is_prefix, "out", str(out), _WRITTEN)
    for path in (out, out.with_name(out.name + ".index")):
        if path.exists():
            raise FileExistsError(
                f"'{path}' already exists, and is not overwritten: give another path."
            )
    check_may_be_written(out)
    weights = read_weights(source, model, averages=not raw, verbose=1)
    if class_names is not None:
        weights = with_class_names(weights, class_names)
    named = (weights.config or {}).get("name")
    names = [named] if named in MODEL_NAMES else identify(weights).names
    if model is None and len(names) != 1:  # D6 and D7 are one network
        raise InvalidValueError(
            f"The weights in '{weights.path}' ({weights.kind}) fit {identify(weights)}"
            ": choose the model with --model."
        )
    config, class_names, category_ids = config_for_weights(
        model or names[0], weights, class_names=None, category_ids=None, overrides={}
    )
    network = EfficientDet(
        config,
        class_names=class_names,
        category_ids=category_ids,
        postprocess=weights.postprocess
        and Postprocess.from_config(weights.postprocess),
    )
    load_source(network, weights, skip_mismatch=skip_mismatch, verbose=1)
    if out.suffix == ".keras":
        write_archive(network, out)
    elif out.name.endswith(".weights.h5"):
        out.parent.mkdir(parents=True, exist_ok=True)
        network.save_weights(out)
    else:
        kind = "torch-effdet" if out.suffix in ENDINGS else "automl-tf1"
        network.export_checkpoint(out, format=kind)
    print(f"Wrote '{out}'", flush=True)
