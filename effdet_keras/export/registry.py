"""The formats of exports: one table that `export`, the command and `Predictor` read.

A new format is one folder, `export/<format>/` with `write.py` and `run.py`, and one
entry in `FORMATS`. Its options are the keyword arguments of its writer, and nothing
else names them: `writer_options` reads them from the writer's text (`options.py` says
how), so that `effdet-keras export --help` can make its flags of them without importing
Keras, TensorFlow or a writer. Neither does this file.
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

    Attributes:
        name: string, such as "onnx".
        title: string, what people call it.
        ending: string, of its files, such as ".onnx"; "" for a folder.
        extra: string, what `pip install` takes for writing and running it.
        writer: string, `module:function`. The function takes the model, the path
            (`pathlib.Path`) and the format's options, by keyword.
        runtime: string, `module:class`, of its `Runtime`.
    """

    name: str
    title: str
    ending: str
    extra: str
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


FORMATS: dict[str, ExportFormat] = {
    item.name: item
    for item in (
        ExportFormat(
            name="saved_model",
            title="SavedModel",
            ending="",
            extra="tensorflow",
            writer="effdet_keras.export.saved_model.write:write_saved_model",
            runtime="effdet_keras.export.saved_model.run:SavedModelRuntime",
        ),
        ExportFormat(
            name="litert",
            title="LiteRT (TFLite)",
            ending=".tflite",
            extra="effdet-keras[litert]",
            writer="effdet_keras.export.litert.write:write_litert",
            runtime="effdet_keras.export.litert.run:LiteRTRuntime",
        ),
        ExportFormat(
            name="onnx",
            title="ONNX",
            ending=".onnx",
            extra="effdet-keras[onnx]",
            writer="effdet_keras.export.onnx.write:write_onnx",
            runtime="effdet_keras.export.onnx.run:ONNXRuntime",
        ),
        ExportFormat(
            name="openvino",
            title="OpenVINO",
            ending=".xml",
            extra="effdet-keras[openvino]",
            writer="effdet_keras.export.openvino.write:write_openvino",
            runtime="effdet_keras.export.openvino.run:OpenVINORuntime",
        ),
    )
}


@functools.cache
def writer_options(format: str) -> tuple[WriterOption, ...]:
    """The options of a format, without importing what writes it.

    Example:
        >>> [option.name for option in writer_options("saved_model")]
        ['names', 'input_type', 'frozen_graph']
        >>> names, _, frozen_graph = writer_options("saved_model")
        >>> names.choices, names.default, frozen_graph.type
        (('effdet', 'tfod'), 'effdet', <class 'bool'>)
    """
    return read_options(FORMATS[format].writer)


def check_options(format: str, options: Mapping[str, Any]) -> None:
    """Refuses options that a format has not, and values that are no choice of it.

    Example:
        >>> check_options("saved_model", {"names": "tfod"})
        >>> check_options("saved_model", {"names": "coco"})
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `names` must be one of 'effdet', \
'tfod'. Received: names='coco'
    """
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
    """Refuses a value that is none of an option's choices, where it has any.

    Example:
        >>> names, *_ = writer_options("saved_model")
        >>> check_choices(names, "tfod")
    """
    if option.choices and value not in option.choices:
        raise InvalidValueError(
            f"`{option.name}` must be one of {', '.join(map(repr, option.choices))}. "
            f"Received: {option.name}={value!r}"
        )


def format_to_write(path: str | os.PathLike[str], name: str | None) -> ExportFormat:
    """The format of a file that is to be written.

    Example:
        >>> format_to_write("pets.tflite", None).name
        'litert'
    """
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


# --- The options of a writer, read from its source text instead of by importing it.

_PLAIN_TYPES: dict[str, type] = {t.__name__: t for t in (int, float, bool, str)}


@dataclasses.dataclass(frozen=True)
class WriterOption:
    """One option of a format, as its writer's signature has it.

    Attributes:
        name: string, of the keyword argument.
        type: `int`, `float`, `bool` or `str`; None for an object that a command line
            cannot give as it is, such as a dataset.
        choices: tuple of the values allowed; empty for any.
        default: the default value.
        help: string, the text of the docstring, in one line.
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
    """The keyword-only arguments of a function, without importing its module.

    Example:
        >>> options = read_options("effdet_keras.export.onnx.write:write_onnx")
        >>> options[0].name, options[0].choices
        ('outputs', ('detections', 'raw'))
    """
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
