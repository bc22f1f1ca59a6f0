"""A command is a function `run`, whose signature and docstring are its flags and help.

Arguments before the `*` are positional, the others flags: `num_shards: int | None` is
`--num-shards`. A bool is a switch (`--no-...` where it is True by default), a list
takes one value or more, and a `Flag` in `Annotated` says what else `argparse` is to
know. The fields of a class behind `**` are flags that are handed on only where they
are given. The docstring begins with a line for the list of commands, and has a line
`name (METAVAR): help` for each argument that is not one of `SHARED`, below "Args:"
or the title of a group. Defaults are added to the help.
"""

from __future__ import annotations

import argparse
import inspect
import re
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal

# The names that `effdet_keras.data.load` and `convert` take, which import too much.
DatasetFormat = Literal["coco", "voc", "yolo", "csv", "tfrecord", "tfds"]
Runtime = Literal["auto", "keras", "openvino", "onnx", "litert"]
Precision = Literal["float32", "bfloat16"]


class Flag:
    """What `argparse` is to know of an argument beside its type: names, options.

    `aliases` are other names, which the help does not show.
    """

    def __init__(
        self, *names: str, aliases: tuple[str, ...] = (), **options: Any
    ) -> None:
        self.names, self.aliases, self.options = names, aliases, options


Repeated = Annotated[list[str], Flag(action="append", nargs=None)]
Settings = Annotated[list[str], Flag("--set", action="append", nargs=None)]
# What arguments mean that several commands have: metavar and help.
SHARED = {
    "model": (
        "MODEL",
        "a .keras file, a folder of CheckpointArchive, the folder of a run of `train`, "
        "the name of a published model such as efficientdet-d0, or an exported file or "
        "folder",
    ),
    "data": (
        "DATA",
        "file or folder of the dataset, or a pattern of TFRecord files such as "
        "'data/val-*.tfrecord'",
    ),
    "format": (None, "the format of DATA, if it has several; detected by default"),
    "batch_size": ("N", "images to process at once"),
    "threads": ("N", "threads that an exported model may use"),
    "runtime": (
        None,
        "convert a live model, in memory, for this runtime, which may be faster; auto "
        "takes the fastest that is installed",
    ),
    "precision": (
        None,
        "what OpenVINO computes in: bfloat16 is faster on a processor that has it",
    ),
    "raw": (None, "read the raw weights even if the file has moving averages of them"),
    "overwrite": (
        None,
        "replace existing files; without it they are kept, and the command ends "
        "with an error before any work",
    ),
}


def size_or_auto(text: str) -> int | str:
    """The number that a flag has, or the word "auto"."""
    return text if text == "auto" else int(text)


class _OneOrTwo(argparse.Action):
    """One size, or height and width."""

    def __call__(self, parser, namespace, values, option_string=None):
        if len(values) > 2 or (len(values) == 2 and "auto" in values):
            auto = ", or auto" if self.type is size_or_auto else ""
            parser.error(f"{option_string} takes one number, or two{auto}")
        setattr(namespace, self.dest, values[0] if len(values) == 1 else tuple(values))


_ONE_OR_TWO = {"nargs": "+", "action": _OneOrTwo, "metavar": "PIXELS"}
ImageSize = Annotated[int | tuple[int, int], Flag(type=int, **_ONE_OR_TWO)]
ImageSizeOrAuto = Annotated[
    int | tuple[int, int] | str, Flag(type=size_or_auto, **_ONE_OR_TWO)
]


def add_command(
    commands: argparse._SubParsersAction, name: str, run: Callable[..., Any]
) -> argparse.ArgumentParser:
    """Adds the parser of a command."""
    summary, text, sections = _read_docstring(run)
    parser = commands.add_parser(name, help=summary, description=text)
    places = {}
    for title, arguments in sections.items():
        is_main = title == "args"
        group = parser if is_main else parser.add_argument_group(title)
        places |= {name: (group, *words) for name, words in arguments.items()}
    for name, kind, default, is_flag in _arguments_of(run):
        group, metavar, help = places.get(name) or (parser, *SHARED.get(name, ("", "")))
        _add(group, name, kind, default, is_flag, metavar, help)
    return parser


def _arguments_of(run):
    """Name, type, default and whether it is a flag, of each argument."""
    hints = typing.get_type_hints(run, include_extras=True)
    for name, parameter in inspect.signature(run).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            is_flag = parameter.kind is parameter.KEYWORD_ONLY
            yield name, hints[name], parameter.default, is_flag
        elif typing.get_origin(hints.get(name)) is typing.Unpack:
            (fields,) = typing.get_args(hints[name])
            kinds = typing.get_type_hints(fields, include_extras=True)
            for field, kind in kinds.items():
                yield field, kind, argparse.SUPPRESS, True


def _add(group, name, kind, default, is_flag, metavar, help):
    has_default = default is not inspect.Parameter.empty
    default = list(default) if isinstance(default, tuple) else default
    options: dict[str, Any] = {"default": default if has_default else None}
    kind, more = _type_and_flag(kind)
    flag = name.replace("_", "-")
    choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else None
    if kind is bool:
        options["action"] = "store_false" if default is True else "store_true"
        flag = f"no-{flag}" if default is True else flag
    elif choices is not None:
        options["choices"] = choices
    else:
        if typing.get_origin(kind) is list:
            options["nargs"], (kind,) = "+", typing.get_args(kind)
        options["metavar"] = metavar or (None if is_flag else name.upper())
        options["type"] = kind if kind in (int, float) else str
    options |= more.options
    names = more.names or [f"--{flag}"]
    if is_flag:
        options |= {"dest": name, "required": not has_default}
    elif has_default:
        options.setdefault("nargs", "?")
    shown = isinstance(default, (str, int, float)) and default is not argparse.SUPPRESS
    if shown and kind is not bool and default != "":
        help += f" ({default})"
    if options.get("choices") and options.get("metavar"):  # which are not shown then
        help += f" ({', '.join(options['choices'])})"
    options["help"] = help.replace("%", "%%")
    options = {name: value for name, value in options.items() if value is not None}
    group.add_argument(*(names if is_flag else [name]), **options)
    if more.aliases:
        hidden = {"help": argparse.SUPPRESS, "default": argparse.SUPPRESS}
        group.add_argument(*more.aliases, **{**options, **hidden, "required": False})


def _type_and_flag(kind):
    """A type without `None`, and the `Flag` of `Annotated` beside it."""
    more = Flag()
    kinds = [kind]
    while len(kinds) == 1 and typing.get_origin(kinds[0]) is not Literal:
        origin, parts = typing.get_origin(kinds[0]), typing.get_args(kinds[0])
        if origin is Annotated:
            kinds, more = [parts[0]], parts[1]
        elif type(None) in parts:
            kinds = [part for part in parts if part is not type(None)]
        else:
            break
    return (kinds[0] if len(kinds) == 1 else str), more


_ARGUMENT = re.compile(r"(\w+)(?: \(([^)]*)\))?: (.*)")


def _read_docstring(run):
    """Summary, description, and the arguments' words by section, of a command."""
    text = inspect.getdoc(run) or ""  # none with `python -OO`
    head, *sections = re.split(r"^(\w[\w ]*):\n(?= )", text, flags=re.MULTILINE)
    summary, _, description = head.partition("\n")
    found: dict[str, dict] = {}
    for title, body in zip(sections[::2], sections[1::2]):
        lines = re.sub(r"\n {8,}", " ", body).split("\n")
        words = (_ARGUMENT.match(line.strip()) for line in lines)
        found[title.lower()] = {w[1]: (w[2], w[3]) for w in words if w}
    return summary, " ".join(description.split()), found
