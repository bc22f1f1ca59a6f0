"""The formats of exports, and their targets: tables that `export`, the command and
`Predictor` read.

A new format is one file, `export/<format>.py`, with its writer and its `Runtime`, and
one entry in `FORMATS`. A target is where a model will run: it picks format, precision,
postprocess and metadata, checks what its tools refuse, and writes what they need beside
the model; it has one entry in `TARGETS`. The options of both are the keyword arguments
of the writer, and nothing else names them: they are read from the writer's text, so
that `effdet-keras export --help` makes its flags of them without importing Keras,
TensorFlow or a writer.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from effdet_keras.errors import InvalidTypeError, InvalidValueError


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """One format of exports.

    `ending` is that of its files, "" for a folder. The function `writer`,
    `module:function`, takes the model, the path and the format's options, by keyword;
    `runtime` is `module:class`.
    """

    name: str
    title: str
    ending: str
    writer: str
    runtime: str

    def load_writer(self) -> Callable[..., None]:
        """The function that writes the format; this imports it."""
        return _load(self.writer)

    def write(self, model: Any, path: pathlib.Path, **options: Any) -> None:
        """Writes a model, once it is known that what runs the format is installed."""
        self.require_runtime()
        self.load_writer()(model, path, **options)

    def require_runtime(self) -> None:
        """Raises ImportError if what runs the format's files is not installed."""
        package = self.load_runtime().package  # type: ignore[attr-defined]
        package.require(f"The check of a {self.title} export")

    def load_runtime(self) -> type:
        """The `Runtime` of the format's files; this imports it."""
        return _load(self.runtime)


def _format(name, title, ending, writer, runtime):
    place = f"effdet_keras.export.{name}:"
    return ExportFormat(name, title, ending, place + writer, place + runtime)


FORMATS: dict[str, ExportFormat] = {
    item.name: item
    for item in (
        _format(
            "saved_model", "SavedModel", "", "write_saved_model", "SavedModelRuntime"
        ),
        _format(
            "litert", "LiteRT (TFLite)", ".tflite", "write_litert", "LiteRTRuntime"
        ),
        _format("onnx", "ONNX", ".onnx", "write_onnx", "ONNXRuntime"),
        _format("openvino", "OpenVINO", ".xml", "write_openvino", "OpenVINORuntime"),
    )
}


@functools.cache
def writer_options(format: str) -> tuple[WriterOption, ...]:
    """The options of a format, without importing what writes it."""
    return read_options(FORMATS[format].writer)


def check_options(format: str, options: Mapping[str, Any]) -> None:
    """Refuses options that a format has not, and values that are no choice of it."""
    known = {option.name: option for option in writer_options(format)}
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidTypeError(
            f"A {format} export has the options {', '.join(known)}. Received: "
            f"{', '.join(f'{name}={options[name]!r}' for name in unknown)}"
        )
    for name, value in options.items():
        check_choices(known[name], value)


def check_choices(option: WriterOption, value: Any) -> None:
    """Refuses a value that is none of an option's choices, where it has any."""
    if option.choices and value not in option.choices:
        raise InvalidValueError(
            f"`{option.name}` must be one of {', '.join(map(repr, option.choices))}. "
            f"Received: {option.name}={value!r}"
        )


def format_to_write(path: str | os.PathLike[str], name: str | None) -> ExportFormat:
    """The format of a file that is to be written."""
    path = pathlib.Path(path)
    by_ending = _by_ending(path.suffix)
    chosen = by_ending if name is None else FORMATS.get(name)
    if chosen is None:
        raise InvalidValueError(
            f"`format` must be one of {', '.join(FORMATS)}, or `path` end in "
            f"{_endings()}. Received: format={name!r}, path='{path}'"
        )
    # A folder may be called anything, but for the end of another format's files.
    if by_ending is not chosen and (by_ending or chosen.ending):
        ending = chosen.ending
        raise InvalidValueError(
            f"The path of a {chosen.name} export must "
            f"{f'end in {ending!r}' if ending else 'be a folder without an ending'}. "
            f"Received: path='{path}'"
        )
    return chosen


def format_of_file(path: str | os.PathLike[str]) -> ExportFormat:
    """The format of a file or folder that is there."""
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no exported model '{path}'")
    is_folder = path.is_dir()
    found = _by_ending("" if is_folder else path.suffix)
    if found is None or is_folder != (found.ending == ""):
        raise InvalidValueError(
            "An exported model is a folder (SavedModel), or a file that ends in "
            f"{_endings()}. Received: path='{path}'"
        )
    return found


def _by_ending(ending: str) -> ExportFormat | None:
    known = (item for item in FORMATS.values() if item.ending == ending.lower())
    return next(known, None)


def _endings() -> str:
    return ", ".join(item.ending for item in FORMATS.values() if item.ending)


def _load(address: str) -> Any:
    module, _, name = address.partition(":")
    return getattr(importlib.import_module(module), name)


# --- Targets: where exported models run.


@dataclasses.dataclass(frozen=True)
class Written:
    """What a target's writer wrote, and what users should know or copy."""

    path: pathlib.Path
    format: str
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ExportTarget:
    """One place where exported models run.

    The function `writer`, `module:function`, takes the model, the folder to write
    (hidden until it is complete), its later path, and the target's options, by keyword.
    It returns `Written`. With `takes_int8` a quantization-aware model becomes int8.
    """

    name: str
    writer: str
    takes_int8: bool = False

    def load_writer(self) -> Callable[..., Written]:
        """The function that writes for the target; this imports it."""
        return _load(self.writer)


def _target(name, writer, **fields):
    writer = f"effdet_keras.extras.targets.{writer}"
    return ExportTarget(name, writer, **fields)


TARGETS: dict[str, ExportTarget] = {
    item.name: item
    for item in (
        _target("mediapipe", "tflite:write_mediapipe", takes_int8=True),
        _target("coral", "tflite:write_coral", takes_int8=True),
        _target("frigate", "tflite:write_frigate", takes_int8=True),
        _target("litert-gpu", "tflite:write_gpu"),
        _target("tf-serving", "servers:write_tf_serving"),
        _target("triton", "servers:write_triton"),
        _target("browser", "servers:write_browser"),
    )
}


@functools.cache
def target_options(target: str) -> tuple[WriterOption, ...]:
    """The options of a target, without importing what writes it."""
    return read_options(TARGETS[target].writer)


def target_to_write(
    path: pathlib.Path, name: str, format: str | None, options: Mapping[str, Any]
) -> ExportTarget:
    """The target of this name, once its path and options can be."""
    if name not in TARGETS:
        raise InvalidValueError(
            f"`target` must be one of {', '.join(TARGETS)}. Received: target={name!r}"
        )
    if format is not None:
        raise InvalidValueError(
            f"`target={name!r}` chooses the format itself. Received: "
            f"format={format!r}. Leave one of both out."
        )
    endings = [item.ending for item in FORMATS.values() if item.ending]
    if path.suffix.lower() in endings:
        raise InvalidValueError(
            f"`target={name!r}` writes a folder. Received: path='{path}'. Give a path "
            f"without the ending {path.suffix!r}."
        )
    known = {option.name: option for option in target_options(name)}
    of_formats = {o.name for format in FORMATS for o in writer_options(format)}
    for option, value in options.items():
        if option not in known and option in of_formats:
            raise InvalidValueError(
                f"`target={name!r}` chooses `{option}` itself. Received: "
                f"{option}={value!r}. Leave it out, or give `format` in the place of "
                "`target`."
            )
        if option not in known:
            raise InvalidTypeError(
                f"`target={name!r}` has the options {', '.join(known) or 'of none'}. "
                f"Received: {option}={value!r}"
            )
        check_choices(known[option], value)
    return TARGETS[name]


# --- The options of a writer, read from its source text instead of by importing it.

_PLAIN_TYPES: dict[str, type] = {t.__name__: t for t in (int, float, bool, str)}


@dataclasses.dataclass(frozen=True)
class WriterOption:
    """One option, as a writer's signature and docstring have it.

    `type` is None for an object that a command line cannot give, such as a dataset;
    `choices` are empty for any value.
    """

    name: str
    type: type | None
    choices: tuple[Any, ...]
    default: Any
    help: str

    @property
    def summary(self) -> str:
        """The first sentence of `help`, without its full stop."""
        return re.split(r"\.(?:\s|$)|;\s", self.help, maxsplit=1)[0]


def read_options(address: str) -> tuple[WriterOption, ...]:
    """The keyword-only arguments of a function, without importing its module."""
    module, _, name = address.partition(":")
    function = next(
        node
        for node in ast.parse(_source_of(module)).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    texts = _argument_texts(ast.get_docstring(function) or "")
    arguments = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return tuple(
        _option(argument, default, texts.get(argument.arg, ""))
        for argument, default in arguments
    )


def _source_of(module: str) -> str:
    """The text of a module, found but not imported; its packages are empty."""
    loader: Any = importlib.util.find_spec(module).loader  # type: ignore[union-attr]
    return loader.get_source(module)


def _option(argument: ast.arg, default: ast.expr | None, text: str) -> WriterOption:
    kind, choices = _type_of(argument.annotation)
    return WriterOption(
        name=argument.arg,
        type=kind,
        choices=choices,
        default=None if default is None else ast.literal_eval(default),
        help=text,
    )


def _type_of(annotation: ast.expr | None) -> tuple[type | None, tuple[Any, ...]]:
    """The plain type and the choices that an annotation names."""
    if isinstance(annotation, ast.BinOp):  # `X | None`
        return _type_of(annotation.left)
    if isinstance(annotation, ast.Name):
        return _PLAIN_TYPES.get(annotation.id), ()
    if (
        isinstance(annotation, ast.Subscript)
        and isinstance(annotation.value, ast.Name)
        and annotation.value.id == "Literal"
    ):
        value = ast.literal_eval(annotation.slice)
        choices = value if isinstance(value, tuple) else (value,)
        return type(choices[0]), choices
    return None, ()


def _argument_texts(docstring: str) -> dict[str, str]:
    """What the section `Args` of a docstring says of each name, in one line each."""
    section = re.search(r"^Args:\n((?:[ ]+.*\n|\n)+)", docstring + "\n", re.MULTILINE)
    body = inspect.cleandoc(section[1]) if section else ""
    texts = {}
    for entry in re.split(r"\n(?=\S)", body):
        names, _, text = entry.partition(": ")
        for name in names.split(", "):
            texts[name] = " ".join(text.split())
    return texts
