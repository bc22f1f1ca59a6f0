"""Paths that may be addresses; `extras/remote` opens those that are.

Readers take `path_of(path)`: a `pathlib.Path`, or a `RemotePath` of that extra, which
reads in the same words.
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

_THREADS = 16  # that read small files at once


def path_of(path: Any) -> Any:
    """The path that the user named, of this machine or an address."""
    if not is_remote(path):
        return pathlib.Path(path)
    from effdet_keras.extras.remote.path import RemotePath as remote_path

    return path if isinstance(path, remote_path) else remote_path(address_of(path))


def is_file(path: Any) -> bool:
    """Whether a path, or string, of either kind is a file."""
    return path_of(path).is_file() if is_remote(path) else os.path.isfile(path)


def exists(path: Any) -> bool:
    """Whether there is a file or folder at a path, or string, of either kind."""
    return path_of(path).exists() if is_remote(path) else os.path.exists(path)


def fetch(address: str, path: str | os.PathLike) -> None:
    """Copies a file to this machine, whole or not at all: `path` is replaced then."""
    from effdet_keras.extras.remote.files import fetch

    fetch(address, path)


def for_each(function: Callable, paths: list, *others: list) -> list:
    """`map` in a list, by many threads where there are addresses, which wait."""
    if not any(map(is_remote, paths)):
        return list(map(function, paths, *others))
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(function, paths, *others))


@contextlib.contextmanager
def atomic_write_at(path: Any) -> Iterator[pathlib.Path]:
    """Gives a path to write a file to, and puts that file at `path` or its address."""
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
    """`$EFFDET_KERAS_CACHE`, or else `effdet_keras` in Keras' own folder."""
    keras_home = os.environ.get("KERAS_HOME") or "~/.keras"
    folder = os.environ.get("EFFDET_KERAS_CACHE") or f"{keras_home}/effdet_keras"
    return pathlib.Path(folder).expanduser().absolute()


def local_copy(path: Any) -> pathlib.Path:
    """The file of a path on this machine; one at an address is fetched first."""
    path = path_of(path)
    return path.fetched() if is_remote(path) else path


class WholeFileError(InvalidValueError):
    """A file is whole: an argument is wrong, or the file is of something else.

    Nothing is gained where such a file is fetched again.
    """


@contextlib.contextmanager
def dropping_unreadable_copy(path: pathlib.Path) -> Iterator[None]:
    """Removes a file of the cache folder where the block finds that it is damaged.

    A cut or changed transfer, or what a server sent by mistake, would else be found in
    the cache folder for ever. Files elsewhere are the user's, and stay.
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
