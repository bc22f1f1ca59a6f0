"""`effdet-keras export`: its flags are the options of the formats' writers."""

from __future__ import annotations

import argparse
import pathlib
import re
from typing import Annotated, Any

from effdet_keras.cli.arguments import DatasetFormat, Flag
from effdet_keras.export.registry import (
    FORMATS,
    TARGETS,
    target_options,
    writer_options,
)

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
    evaluation_format: DatasetFormat | None = None,
    calibration: str | None = None,
    calibration_split: str | None = None,
    calibration_format: DatasetFormat | None = None,
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
        evaluation_format: the format of that dataset, if it holds several; found out by
            default

    calibration of int8:
        calibration (DATA): images like yours: a folder of images, or a dataset
        calibration_split (NAME): split of that dataset (by default, train)
        calibration_format: the format of that dataset, if it holds several; found out
            by default
    """
    from effdet_keras.cli.files import (
        EVALUATION_SPLITS,
        DatasetSource,
        check_outputs,
        open_live_model,
    )

    check_outputs([out], [model], overwrite=overwrite)
    names = "--evaluate", evaluate, evaluation_split, evaluation_format
    source = DatasetSource(*names)
    if evaluate is not None:
        options["evaluate"] = source.load(EVALUATION_SPLITS)
    names = "--calibration", calibration, calibration_split, calibration_format
    source = DatasetSource(*names)
    if calibration is not None:
        is_folder = calibration_split is None and calibration_format is None
        if is_folder and source.is_folder_of_images():
            options["calibration"] = pathlib.Path(calibration)
        else:
            options["calibration"] = source.load(_CALIBRATION_SPLITS)
    if target is not None:
        options["target"] = target
    open_live_model(model).export(out, format, images=images, **options)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the formats and targets."""
    known = [(format, writer_options(format)) for format in FORMATS]
    known += [(target, target_options(target)) for target in TARGETS]
    options: dict[str, dict] = {}
    for owner, its_options in known:
        for option in its_options:
            if option.type is not None:  # else an object of Python
                options.setdefault(option.name, {})[owner] = option
    group = parser.add_argument_group("options of some formats and targets")
    for name, by_owner in options.items():
        _add_option(group, name, by_owner)


def _add_option(group, name, by_owner):
    first = next(iter(by_owner.values()))
    flag = name.replace("_", "-")
    help = f"{', '.join(by_owner)}: {_summary(by_owner.values())}"
    more = {"dest": name, "default": argparse.SUPPRESS}
    if first.type is bool:
        action = "store_false" if first.default else "store_true"
        prefix = "no-" if first.default else ""
        group.add_argument(f"--{prefix}{flag}", action=action, help=help, **more)
        return
    choices = dict.fromkeys(c for option in by_owner.values() for c in option.choices)
    if len("".join(choices)) > _LONGEST:  # argparse would not break the line
        more["metavar"] = flag.rpartition("-")[2].upper()
        help += f" ({', '.join(choices)})"
    elif not choices:
        more["metavar"] = first.type.__name__.upper()
    more |= {"type": first.type, "choices": tuple(choices) or None, "help": help}
    group.add_argument(f"--{flag}", **more)


def _summary(options):
    """The first help text that does not only send the reader to another one."""
    texts = [
        re.split(r"\.(?:\s|$)", option.help.replace("`", ""))[0] for option in options
    ]
    first = next((text for text in texts if not text.startswith("see ")), texts[0])
    # No flag means None.
    return first.replace("None for ", "by default, ").replace("%", "%%")
