"""`effdet-keras export`: exports a model; its flags are the options of the formats."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from effdet_keras._internal.optional_imports import keras
from effdet_keras.cli.arguments import (
    add_on_error,
    add_overwrite,
    add_reader_options,
    add_unlabelled,
)
from effdet_keras.export.registry import (
    FORMATS,
    OPTIONS,
    TARGETS,
    format_to_write,
    target_to_write,
)

SUMMARY = "export a model for another runtime, and check the export"
DESCRIPTION = (
    "Exports a model to the format that --format, --target or the ending of OUT names. "
    "Then runs the export and the model on the same images, and prints how much their "
    "results differ. It is an error to give an option that the format or target does "
    "not have."
)

_CALIBRATION_SPLITS = ("train", "trainval")
# If a flag's choices have more characters than this, they do not fit in its line.
_LONGEST = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help=(
            "the model: a .keras file, a folder that CheckpointArchive wrote, the "
            "folder of a run of `train`, or the name of a published model such as "
            "efficientdet-d0"
        ),
    )
    parser.add_argument(
        "out",
        metavar="OUT",
        help=(
            "file or folder to write; its ending determines the format unless --format "
            "or --target is given"
        ),
    )
    parser.add_argument("--format", choices=tuple(FORMATS), help="the format of OUT")
    parser.add_argument(
        "--target",
        choices=tuple(TARGETS),
        metavar="TARGET",
        help=(
            "where the model will run, instead of a format; OUT is then a folder: "
            f"{', '.join(TARGETS)}"
        ),
    )
    parser.add_argument(
        "--images",
        metavar="FOLDER",
        help="folder of images to check the export with (default: generated images)",
    )
    add_overwrite(parser)

    comparing = parser.add_argument_group("comparing the AP of model and export")
    comparing.add_argument(
        "--evaluate",
        metavar="DATA",
        help="dataset to evaluate both the model and the export on",
    )
    comparing.add_argument(
        "--evaluation-split",
        metavar="NAME",
        help=(
            "split of that dataset (default: test, or else valid, validation or val, "
            "or else the images that the run held out)"
        ),
    )

    add_unlabelled(comparing)
    add_on_error(comparing)
    add_reader_options(comparing)

    calibration = parser.add_argument_group("calibration of int8")
    calibration.add_argument(
        "--calibration",
        metavar="DATA",
        help=(
            "images like those that the model will see: a folder of images, or a "
            "dataset"
        ),
    )
    calibration.add_argument(
        "--calibration-split",
        metavar="NAME",
        help="split of that dataset (default: train, or else trainval)",
    )

    _add_options(parser)


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the formats and targets."""
    group = parser.add_argument_group("options of some formats and targets")
    for name, (kind, help) in OPTIONS.items():
        if kind is None:  # the option takes a Python object, which no flag can give
            continue
        known = (*FORMATS.values(), *TARGETS.values())
        owners = [owner for owner in known if name in owner.options]
        choices = dict.fromkeys(c for owner in owners for c in owner.options[name])
        # A target may have the same name as the format that it writes.
        names = dict.fromkeys(owner.name for owner in owners)
        help = f"{', '.join(names)}: {help}"
        more: dict = {"dest": name, "default": argparse.SUPPRESS}
        flag = name.replace("_", "-")
        if kind is bool:
            group.add_argument(f"--{flag}", action="store_true", help=help, **more)
            continue
        if len("".join(choices)) > _LONGEST:  # argparse would not wrap this line
            more["metavar"] = flag.rpartition("-")[2].upper()
            help += f" ({', '.join(choices)})"
        elif not choices:
            more["metavar"] = kind.__name__.upper()
        more |= {"type": kind, "choices": tuple(choices) or None, "help": help}
        group.add_argument(f"--{flag}", **more)


def run(
    model: str,
    out: str,
    *,
    format: str | None = None,
    target: str | None = None,
    images: str | None = None,
    overwrite: bool = False,
    evaluate: str | None = None,
    evaluation_split: str | None = None,
    unlabelled: str | None = None,
    on_error: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
    calibration: str | None = None,
    calibration_split: str | None = None,
    **options: Any,
) -> None:
    """Exports a model for another runtime; `options` are those of its format."""
    from effdet_keras.cli.files import (
        DatasetSource,
        check_outputs,
        open_live_model,
    )

    check_outputs([out], models=[model], overwrite=overwrite)
    # This comes before data is read and the model is opened, which takes long.
    all_options = {**options, **({"calibration": calibration} if calibration else {})}
    if target is None:
        format_to_write(out, format, all_options)
    else:
        target_to_write(pathlib.Path(out), target, format, all_options)
    how = {"on_error": on_error, "reader_options": reader_options}
    source = DatasetSource(
        "--evaluate", evaluate, evaluation_split, unlabelled=unlabelled, **how
    )
    if evaluate is not None:
        keras.require("`effdet-keras export`")
        from effdet_keras.cli.evaluation_images import evaluation_images

        options["evaluate"] = evaluation_images(source, [model]).dataset
    source = DatasetSource(
        "--calibration", calibration, calibration_split, on_error=on_error
    )
    if calibration is not None:
        is_folder = calibration_split is None and source.is_folder_of_images()
        if reader_options and (evaluate is None or source.takes(reader_options)):
            source = dataclasses.replace(source, reader_options=reader_options)
        if not is_folder:
            from effdet_keras.cli.evaluation_images import (
                read_as_trained,
                takes_unlabelled,
            )

            if unlabelled and (evaluate is None or takes_unlabelled(source)):
                source = dataclasses.replace(source, unlabelled=unlabelled)
            source = read_as_trained(source, [model])
        options["calibration"] = (
            pathlib.Path(calibration) if is_folder else source.load(_CALIBRATION_SPLITS)
        )
    if target is not None:
        options["target"] = target
    open_live_model(model).export(out, format, images=images, **options)
