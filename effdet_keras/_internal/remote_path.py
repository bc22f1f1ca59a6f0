"""Paths that may be addresses, which `extras/remote` opens.

Readers call `path_of(path)`. It returns a `pathlib.Path`, or a `RemotePath` of that
extra, which has the same methods for reading.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from effdet_keras._internal.whole_files import address_of, atomic_write, is_remote
from effdet_keras.errors import InvalidValueError

_THREADS = 16  # number of small files that are read at once


def path_of(path: Any) -> Any:
    """Returns the path that a user gave: on this machine, or at an address."""
    if not is_remote(path):
        return pathlib.Path(path)
    from effdet_keras.extras.remote.path import RemotePath as remote_path

    return path if isinstance(path, remote_path) else remote_path(address_of(path))


def is_file(path: Any) -> bool:
    """Returns whether a local path or an address is a file."""
    return path_of(path).is_file() if is_remote(path) else os.path.isfile(path)


def exists(path: Any) -> bool:
    """Returns whether a file or folder exists at a local path or an address."""
    return path_of(path).exists() if is_remote(path) else os.path.exists(path)


def fetch(address: str, path: str | os.PathLike) -> None:
    """Copies a file to this machine; `path` is only replaced by a complete file."""
    from effdet_keras.extras.remote.files import fetch

    fetch(address, path)


def for_each(function: Callable, paths: list, *others: list) -> list:
    """Returns `map` as a list; uses threads if paths are addresses, which wait."""
    if not any(map(is_remote, paths)):
        return list(map(function, paths, *others))
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(function, paths, *others))


@contextlib.contextmanager
def atomic_write_at(path: Any) -> Iterator[pathlib.Path]:
    """Yields a local path to write to, and then moves the file to `path`."""
    if not is_remote(path):
        with atomic_write(path) as partial:
            yield partial
        return
    with tempfile.TemporaryDirectory(prefix="effdet-") as folder:
        partial = pathlib.Path(folder, path_of(path).name)
        yield partial
        from effdet_keras.extras.remote.files import put

        put(partial, address_of(path))


# --- Copies of files at addresses.


def cache_folder() -> pathlib.Path:
    """Returns `$EFFDET_KERAS_CACHE`, or else `effdet_keras` in the folder of Keras."""
    keras_home = os.environ.get("KERAS_HOME") or "~/.keras"
    folder = os.environ.get("EFFDET_KERAS_CACHE") or f"{keras_home}/effdet_keras"
    return pathlib.Path(folder).expanduser().absolute()


def local_copy(path: Any) -> pathlib.Path:
    """Returns a local path of a file; a file at an address is fetched first."""
    path = path_of(path)
    return path.fetched() if is_remote(path) else path


class WholeFileError(InvalidValueError):
    """Raised for a complete file, if an argument is wrong or the content is not ours.

    It would not help to fetch such a file again.
    """


@contextlib.contextmanager
def dropping_unreadable_copy(path: pathlib.Path) -> Iterator[None]:
    """Removes a file of the cache folder if the block finds that it is damaged.

    Otherwise an incomplete or changed transfer, or a wrong answer of a server, would
    stay in the cache folder for ever. Files in other folders belong to the user and are
    kept.
    """
    try:
        yield
    except WholeFileError:
        raise
    except InvalidValueError as error:
        if path.is_file() and cache_folder() in path.absolute().parents:
            path.unlink()
            cure = "The copy in the cache folder was removed: try again to fetch it."
            error.args = (f"{str(error).rstrip('.')}. {cure}",)
        raise
