"""`effdet-keras export`: its flags are the options of the formats' writers."""

import argparse
import re

from effdet_keras.cli.shared_arguments import (
    add_dataset_format,
    add_model,
    add_overwrite,
)
from effdet_keras.export.registry import (
    FORMATS,
    TARGETS,
    WriterOption,
    target_options,
    writer_options,
)

# An option that is a dataset, which a path stands for; see `add_parser`.
_CALIBRATION = "calibration"

# Characters of all choices of a flag together, for which there is room in its line.
_LONGEST = 60


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    kinds = [f"{item.title} ({item.ending or 'a folder'})" for item in FORMATS.values()]
    parser = commands.add_parser(
        "export",
        help="write a model for another runtime, and check it there",
        description=f"Writes a model as {', '.join(kinds[:-1])} or {kinds[-1]}, runs "
        "the export and the model on the same images, and says how far they are apart.",
    )
    add_model(parser, may_be_exported=False)
    parser.add_argument(
        "out", metavar="OUT", help="file or folder to write; its ending says the format"
    )
    parser.add_argument(
        "--format", default=None, choices=tuple(FORMATS), help="the format of OUT"
    )
    parser.add_argument(
        "--target",
        default=None,
        choices=tuple(TARGETS),
        metavar="TARGET",
        help="in the place of a format, where the model will run; OUT is a folder "
        f"({', '.join(TARGETS)})",
    )
    parser.add_argument(
        "--images",
        metavar="FOLDER",
        default=None,
        help="images to check the export with (by default, generated ones)",
    )
    add_overwrite(parser)
    evaluation = parser.add_argument_group("comparing the AP of model and export")
    evaluation.add_argument(
        "--evaluate", metavar="DATA", default=None, help="dataset to evaluate both on"
    )
    evaluation.add_argument(
        "--evaluation-split",
        metavar="NAME",
        default=None,
        help="split of that dataset (by default, the test or validation split)",
    )
    add_dataset_format(evaluation, "--evaluation-format", "that dataset")
    options = parser.add_argument_group(
        "options of some formats and targets",
        "An option that the format or target does not have is an error.",
    )
    for name, of_formats in _options().items():
        if name == _CALIBRATION:
            _add_calibration(options, of_formats)
        else:
            _add_option(options, name, of_formats)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    from effdet_keras.cli.dataset_source import DatasetSource
    from effdet_keras.cli.export_file import export_file
    from effdet_keras.cli.outputs import check_outputs

    check_outputs([arguments.out], [arguments.model], overwrite=arguments.overwrite)
    given = {name: getattr(arguments, name) for name in _options()}
    given.pop(_CALIBRATION)
    export_file(
        arguments.model,
        arguments.out,
        arguments.format,
        target=arguments.target,
        images=arguments.images,
        evaluate=DatasetSource(
            "--evaluate",
            arguments.evaluate,
            arguments.evaluation_split,
            arguments.evaluation_format,
        ),
        calibration=DatasetSource(
            "--calibration",
            arguments.calibration,
            arguments.calibration_split,
            arguments.calibration_format,
        ),
        options={name: value for name, value in given.items() if value is not None},
    )
    return 0


def _options() -> dict[str, dict[str, WriterOption]]:
    """The options that have flags, by name, then by format or target."""
    known = [(format, writer_options(format)) for format in FORMATS]
    known += [(target, target_options(target)) for target in TARGETS]
    options: dict[str, dict[str, WriterOption]] = {}
    for name, its_options in known:
        for option in its_options:
            if option.type is not None or option.name == _CALIBRATION:
                options.setdefault(option.name, {})[name] = option
    return options


def _add_calibration(group, of_formats):
    formats = ", ".join(of_formats)
    group.add_argument(
        "--calibration",
        metavar="DATA",
        default=None,
        help=f"{formats}: images like yours, for int8: a folder of images, or a "
        "dataset",
    )
    group.add_argument(
        "--calibration-split",
        metavar="NAME",
        default=None,
        help="split of that dataset (by default, train)",
    )
    add_dataset_format(group, "--calibration-format", "that dataset")


def _add_option(group, name, of_formats):
    first = next(iter(of_formats.values()))
    flag = name.replace("_", "-")
    choices = [choice for option in of_formats.values() for choice in option.choices]
    help = f"{', '.join(of_formats)}: {_summary(of_formats)}"
    if first.type is bool:
        # None, unless the flag is there: formats without the option take no value.
        prefix = "no-" if first.default else ""
        value = not first.default
        group.add_argument(
            f"--{prefix}{flag}",
            dest=name,
            action="store_const",
            const=value,
            default=None,
            help=help,
        )
        return
    choices = tuple(dict.fromkeys(choices))
    metavar = None if choices else first.type.__name__.upper()
    if len("".join(choices)) > _LONGEST:  # argparse would not break the line
        metavar = flag.rpartition("-")[2].upper()
        help += f" ({', '.join(choices)})"
    group.add_argument(
        f"--{flag}",
        metavar=metavar,
        type=first.type,
        choices=choices or None,
        default=None,
        help=help,
    )


def _summary(of_formats):
    """The first help text that does not only send the reader to another one."""
    texts = [_first_sentence(option.help) for option in of_formats.values()]
    told = [text for text in texts if not text.startswith("see ")]
    return (told or texts)[0].replace("%", "%%")


def _first_sentence(text):
    first = re.split(r"\.(?:\s|$)", text.replace("`", ""), maxsplit=1)[0]
    return first.replace("None for ", "by default, ")  # no flag means None
