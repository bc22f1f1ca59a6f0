"""`effdet-keras export`: its flags are the options of the formats."""

from __future__ import annotations

import argparse
import pathlib
from typing import Annotated, Any

from effdet_keras.cli.arguments import Flag
from effdet_keras.export.registry import FORMATS, OPTIONS, TARGETS

_CALIBRATION_SPLITS = ("train", "trainval")
# Characters of all choices of a flag together, for which there is room in its line.
_LONGEST = 60


def run(
    model: str,
    out: str,
    *,
    format: Annotated[str | None, Flag(choices=tuple(FORMATS))] = None,
    target: Annotated[
        str | None, Flag(choices=tuple(TARGETS), metavar="TARGET")
    ] = None,
    images: str | None = None,
    overwrite: bool = False,
    evaluate: str | None = None,
    evaluation_split: str | None = None,
    calibration: str | None = None,
    calibration_split: str | None = None,
    **options: Any,
) -> None:
    """write a model for another runtime, and check it there

    Writes a model in the format that --format, --target or the ending of OUT says, runs
    the export and the model on the same images, and says how far they are apart. An
    option that the format or target does not have is an error.

    Args:
        model (MODEL): a .keras file, a folder of CheckpointArchive, the folder of a run
            of `train`, the name of a published model such as efficientdet-d0
        out (OUT): file or folder to write; its ending says the format
        format: the format of OUT
        target: in the place of a format, where the model will run; OUT is a folder
        images (FOLDER): images to check the export with (by default, generated ones)

    comparing the AP of model and export:
        evaluate (DATA): dataset to evaluate both on
        evaluation_split (NAME): split of that dataset (by default, the test or
            validation split)

    calibration of int8:
        calibration (DATA): images like yours: a folder of images, or a dataset
        calibration_split (NAME): split of that dataset (by default, train)
    """
    from effdet_keras.cli.files import (
        EVALUATION_SPLITS,
        DatasetSource,
        check_outputs,
        open_live_model,
    )

    check_outputs([out], [model], overwrite=overwrite)
    source = DatasetSource("--evaluate", evaluate, evaluation_split)
    if evaluate is not None:
        options["evaluate"] = source.load(EVALUATION_SPLITS)
    source = DatasetSource("--calibration", calibration, calibration_split)
    if calibration is not None:
        is_folder = calibration_split is None and source.is_folder_of_images()
        options["calibration"] = (
            pathlib.Path(calibration) if is_folder else source.load(_CALIBRATION_SPLITS)
        )
    if target is not None:
        options["target"] = target
    open_live_model(model).export(out, format, images=images, **options)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the formats and targets."""
    group = parser.add_argument_group("options of some formats and targets")
    for name, (kind, help) in OPTIONS.items():
        if kind is None:  # an object of Python
            continue
        known = {**FORMATS, **TARGETS}.values()
        owners = [owner for owner in known if name in owner.options]
        choices = dict.fromkeys(c for owner in owners for c in owner.options[name])
        help = f"{', '.join(owner.name for owner in owners)}: {help}"
        more: dict = {"dest": name, "default": argparse.SUPPRESS}
        flag = name.replace("_", "-")
        if kind is bool:
            group.add_argument(f"--{flag}", action="store_true", help=help, **more)
            continue
        if len("".join(choices)) > _LONGEST:  # argparse would not break the line
            more["metavar"] = flag.rpartition("-")[2].upper()
            help += f" ({', '.join(choices)})"
        elif not choices:
            more["metavar"] = kind.__name__.upper()
        more |= {"type": kind, "choices": tuple(choices) or None, "help": help}
        group.add_argument(f"--{flag}", **more)
