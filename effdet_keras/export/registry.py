"""The formats of exports: one table that `export`, the command and `Predictor` read.

A new format is one folder, `export/<format>/` with `write.py` and `run.py`, and one
entry in `FORMATS`. Its options are the keyword arguments of its writer, and nothing
else names them: `writer_options` reads them from the writer's text (`options.py` says
how), so that `effdet-keras export --help` can make its flags of them without importing
Keras, TensorFlow or a writer. Neither does this file.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from effdet_keras.errors import InvalidTypeError, InvalidValueError
from effdet_keras.export.options import WriterOption, read_options


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

    Args:
        format: string, a name of `FORMATS`.

    Returns:
        Tuple of `WriterOption`, in the order of the writer's signature.

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

    Args:
        format: string, a name of `FORMATS`.
        options: dict of name to value.

    Raises:
        TypeError: If the format has no option of this name.
        ValueError: If an option has choices, and its value is none of them.

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

    Args:
        option: `WriterOption`.
        value: what was given for it.

    Raises:
        ValueError: If the value is no choice.

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

    Args:
        path: what to write.
        name: string, a name of `FORMATS`, or None to go by the end of `path`.

    Returns:
        `ExportFormat`.

    Raises:
        ValueError: If there is no such format, or `path` does not end as its files do.

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
    """The format of a file or folder that is there.

    Args:
        path: folder of a SavedModel, or file.

    Returns:
        `ExportFormat`.

    Raises:
        FileNotFoundError: If there is nothing at `path`.
        ValueError: If it is of no known format.
    """
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
