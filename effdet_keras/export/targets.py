"""The targets of exports: one table that `export` and the command read.

A target is where a model will run: it picks format, precision, postprocess and
metadata, checks what its tools refuse, and writes what they need beside the model. A
new target is one file in this folder and one entry in `TARGETS`. Its options are the
keyword arguments of its writer, as those of a format are (`export/registry.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from effdet_keras.errors import InvalidTypeError, InvalidValueError
from effdet_keras.export.registry import (
    FORMATS,
    WriterOption,
    check_choices,
    read_options,
    writer_options,
)


@dataclasses.dataclass(frozen=True)
class Written:
    """What a target's writer wrote.

    Attributes:
        path: `pathlib.Path` of the exported model inside the folder.
        format: string, its format, a name of `FORMATS`.
        notes: tuple of strings, what the user should know or copy.
    """

    path: pathlib.Path
    format: str
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ExportTarget:
    """One place where exported models run.

    Attributes:
        name: string, such as "coral".
        title: string, what people call it.
        writer: string, `module:function`. The function takes the model, the folder to
            write (`pathlib.Path`, hidden until it is complete), its later name, and the
            target's options, by keyword. It returns `Written`.
        takes_int8: bool, whether a quantization-aware model becomes an int8 file.
    """

    name: str
    title: str
    writer: str
    takes_int8: bool = False

    def load_writer(self) -> Callable[..., Written]:
        """The function that writes for the target; this imports it."""
        module, _, name = self.writer.partition(":")
        return getattr(importlib.import_module(module), name)


_HERE = "effdet_keras.extras.targets"


def _target(name, title, writer, **fields):
    return ExportTarget(name, title, f"{_HERE}.{writer}", **fields)


TARGETS: dict[str, ExportTarget] = {
    item.name: item
    for item in (
        _target("mediapipe", "MediaPipe", "mediapipe:write_mediapipe", takes_int8=True),
        _target("coral", "Coral Edge TPU", "coral:write_coral", takes_int8=True),
        _target("frigate", "Frigate", "frigate:write_frigate", takes_int8=True),
        _target("litert-gpu", "LiteRT on GPUs", "gpu:write_gpu"),
        _target("tf-serving", "TF Serving", "serving:write_tf_serving"),
        _target("triton", "Triton", "triton:write_triton"),
        _target("browser", "Browsers", "browser:write_browser"),
    )
}


@functools.cache
def target_options(target: str) -> tuple[WriterOption, ...]:
    """The options of a target, without importing what writes it.

    Example:
        >>> [option.name for option in target_options("triton")]
        ['backend', 'max_batch_size']
    """
    return read_options(TARGETS[target].writer)


def target_to_write(
    path: pathlib.Path, name: str, format: str | None, options: Mapping[str, Any]
) -> ExportTarget:
    """The target of this name, once its path and options can be.

    Example:
        >>> options = {"precision": "float16"}
        >>> target_to_write(pathlib.Path("out"), "coral", None, options)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `target='coral'` chooses `precision` \
itself. Received: precision='float16'. Leave it out, or give `format` in the place of \
`target`.
    """
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
