"""`effdet-keras inspect-weights`: shows which model weights belong to."""

from __future__ import annotations

import argparse

from effdet_keras._internal.optional_imports import keras
from effdet_keras.cli.arguments import add_raw
from effdet_keras.errors import printable

SUMMARY = "print which model a file of weights belongs to"
DESCRIPTION = (
    "Reads weights of any known kind, and prints which model they belong to and which "
    "of them would be loaded into it."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    parser.add_argument(
        "weights",
        metavar="WEIGHTS",
        help=(
            "file, folder or address of weights; or the key of published weights, "
            "such as coco, together with --model"
        ),
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="the model to load the weights into (default: the one that fits)",
    )
    parser.add_argument(
        "--all", dest="list_all", action="store_true", help="list every array"
    )
    add_raw(parser)


def run(
    weights: str,
    *,
    model: str | None = None,
    list_all: bool = False,
    raw: bool = False,
) -> None:
    """Prints which model a weights file belongs to, and what it contains."""
    keras.require("`effdet-keras inspect-weights`")
    import numpy as np

    from effdet_keras.network.config import EfficientDetConfig
    from effdet_keras.weights.assign import parts_of
    from effdet_keras.weights.identify import identify, match_arrays
    from effdet_keras.weights.read_weights import read_weights

    source = read_weights(weights, model, averages=not raw)
    identity = identify(source)
    size = sum(np.size(array) for array in source.arrays.values())
    averages = f", {source.num_averages:,} of them moving averages"
    lines = [
        f"{source.path}: {source.kind}",
        f"Model:   {identity}",
        f"Arrays:  {len(source.arrays):,} ({size:,} values)"
        + (averages if source.num_averages else ""),
        *(f"Note:    {note}" for note in source.notes),
    ]
    if source.class_names is not None:
        lines.append(f"Classes: {', '.join(source.class_names)}")
    if identity.is_backbone:
        lines.append(
            f"Use:     `ek.EfficientDet.from_preset({identity.names[0]!r}, "
            f"weights={source.path!r}, class_names=[...])`, and train the model: "
            "BiFPN and heads keep their initial values"
        )
    groups = {"Not part of a network": source.others}
    model_name = model or next(iter(identity.names), identity.nearest)
    if model_name is None:
        groups["Part of another network"] = list(source.arrays)
    else:
        num_classes = identity.num_classes or 90
        config = EfficientDetConfig.from_name(model_name, num_classes=num_classes)
        match = match_arrays(source, config)
        count = len(match.found) + len(match.mismatched) + len(match.missing)
        loads = f"{len(match.found)} of {count} weights"
        lines.append(f"Would load into {model_name}: {loads}")
        groups["Missing from the file"] = [array.name for array in match.missing]
        groups["With another shape in the model"] = list(match.mismatched)
        groups["In the file, but not in the model"] = match.left_over
    for heading, names in groups.items():
        if names:
            lines.append(f"{heading}: {len(names):,}")
            lines += [f"  {line}" for line in parts_of(names)]
    for name, array in sorted(source.arrays.items()) if list_all else ():
        lines.append(f"{name}  {'x'.join(map(str, np.shape(array))) or 'scalar'}")
    print(printable("\n".join(lines)))
