"""Finds out in which format a file or folder holds annotated images."""

from __future__ import annotations

import dataclasses
import functools
import glob
import os
import pathlib
from collections.abc import Callable, Mapping

from effdet_keras._internal.cache_folder import kept_if_readable
from effdet_keras._internal.local_paths import local_path
from effdet_keras._internal.remote_path import (
    RemotePath,
    exists,
    local_copy,
    path_of,
)
from effdet_keras.data.formats.registry import FORMATS
from effdet_keras.data.formats.split_names import ONE_SPLIT
from effdet_keras.data.formats.tfrecord import from_tfrecord
from effdet_keras.errors import InvalidValueError

_SHOWN = 8  # entries of a folder, in a message


@dataclasses.dataclass(frozen=True)
class Found:
    """A dataset that was found.

    Attributes:
        format: str, key of `FORMATS`.
        path: path of the file or folder.
        readers: dict from split name to the function that reads it.
    """

    format: str
    path: pathlib.Path
    readers: Mapping[str, Callable]

    @property
    def title(self) -> str:
        """What messages call the format."""
        return FORMATS[self.format].title

    def __str__(self):
        return f"{str(self.path)!r} is {self.title}: splits {', '.join(self.readers)}"


def find(path: str | os.PathLike[str], format: str | None = None) -> Found:
    """Finds the one dataset that a path stands for.

    A folder around the folder of the dataset, as archives unpack to, is looked into.

    Args:
        path: file or folder, or a glob pattern of TFRecord files.
        format: key of `FORMATS`, to look for this format alone; None looks for all.

    Returns:
        `Found`.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If `format` is unknown, or there is no dataset or more than one.
    """
    if format is not None and format not in FORMATS:
        raise InvalidValueError(
            f"`format` must be one of {list(FORMATS)}, or None to find it out. "
            f"Received: format={format!r}"
        )
    name = os.fspath(path)
    path = path_of(path)
    if isinstance(path, RemotePath):
        _check_address(path, format)
    formats = list(FORMATS) if format is None else [format]
    if isinstance(path, RemotePath):
        formats = [name for name in formats if FORMATS[name].reads_addresses]
    if not exists(path):
        if "tfrecord" in formats and glob.has_magic(name) and glob.glob(name):
            reader = functools.partial(from_tfrecord, name)
            return Found("tfrecord", path, {ONE_SPLIT: reader})
        raise FileNotFoundError(
            f"A dataset must be a file or a folder. Received: {name!r}, which is "
            "not there"
        )
    found, notes = _find_all(path, formats)
    inner = path
    while not found and inner.is_dir() and (inner := _only_folder(inner)) is not None:
        found, _ = _find_all(inner, formats)
    if not found:
        with kept_if_readable(local_copy(path) if path.is_file() else path):
            raise InvalidValueError(_describe_unknown(path, formats, notes))
    if len(found) > 1:
        raise InvalidValueError(_describe_choice(name, found))
    return found[0]


def _check_address(path, format):
    """Refuses at once what could not be found: a format, or a folder, there."""
    if format is not None and not FORMATS[format].reads_addresses:
        local_path(path, f"A dataset of the format {FORMATS[format].title}")
    if not path.is_listed and (not path.suffix or path.parent == path):
        path.iterdir()  # raises, and says what to do


def _find_all(path, formats):
    """The datasets of a path, one per format, and why others were not found."""
    found, notes = [], []
    for format in formats:
        try:
            readers = FORMATS[format].readers(path)
        except (ValueError, OSError) as error:
            # Of a folder, FileNotFoundError only means that it holds another format.
            if path.is_file() or not isinstance(error, FileNotFoundError):
                notes.append(f"{FORMATS[format].title}: {error}")
            continue
        if readers:
            found.append(Found(format, path, readers))
    if any(f.format == "tfds" for f in found):  # TFRecord files and a description
        found = [f for f in found if f.format != "tfrecord"]
    if len(found) > 1 and path.is_dir():
        # A csv in a folder of its own may be anything, such as results.
        found = [f for f in found if f.format != "csv" or any(path.glob("*.csv"))]
    return found, notes


def _only_folder(path):
    folders = [p for p in _entries(path) if p.is_dir() and p.name != "__MACOSX"]
    return folders[0] if len(folders) == 1 else None


def _entries(path):
    return sorted(p for p in path.iterdir() if not p.name.startswith("."))


def _describe_choice(name, found):
    choices = "; ".join(
        f"{f.title} (splits {', '.join(f.readers)}): load({name!r}, "
        f'format="{f.format}"), or --format {f.format} of a command'
        for f in found
    )
    return (
        f"{name!r} holds annotations in {len(found)} formats. Say which one to read. "
        f"{choices}"
    )


def _describe_unknown(path, formats, notes):
    looked = "; ".join(f"{FORMATS[f].title}: {FORMATS[f].looks_for}" for f in formats)
    if path.is_dir():
        names = [p.name + "/" * p.is_dir() for p in _entries(path)]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        holds = f"which holds {', '.join(names[:_SHOWN]) or 'nothing'}{more}"
    else:
        holds = "which is a file"
    what = "annotations of a known format"
    if len(formats) == 1:
        what = f"annotations of the format {formats[0]!r}"
    troubles = f". Not readable: {'; '.join(notes)}" if notes else ""
    return (
        f"No {what} were found in {str(path)!r}, {holds}. Looked for {looked}{troubles}"
    )
