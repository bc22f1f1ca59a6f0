"""Locates the weights file that a user's path, URL, folder or archive refers to."""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import math
import os
import pathlib
import re
import tarfile
import tempfile
import urllib.error
import zlib

import keras

from effdet_keras._internal import web
from effdet_keras._internal.remote_path import (
    WholeFileError,
    cache_folder,
    dropping_unreadable_copy,
    fetch,
    local_copy,
    path_of,
)
from effdet_keras._internal.unpacking import is_tar, unpack_tar
from effdet_keras._internal.whole_files import (
    atomic_write,
    is_remote,
    local_path,
    path_in_address,
    shown_address,
)
from effdet_keras.errors import InvalidValueError, hint, require
from effdet_keras.weights.checkpoint_files import checkpoint_in
from effdet_keras.weights.kinds.automl import STATE_FILE

CONFIG_NAME = "pipeline.config"  # next to checkpoints of the Object Detection API
_SUFFIXES = (".h5", ".hdf5", ".keras", ".pth", ".pt", ".pth.tar", ".safetensors")
_HUB_PICKLE = "pytorch_model.bin"  # in a repository of the Hugging Face Hub
_STATE = re.compile(r'^model_checkpoint_path:\s*"(?:.*[/\\])?(.*)"', re.MULTILINE)
_INDEX = ".index"
# Folders with the checkpoint in an export of the Object Detection API.
_EXPORTED = (STATE_FILE, "saved_model", "variables")
_DOWNLOAD = re.compile(r"https?://", re.IGNORECASE)
# The endings that TensorFlow adds to the prefix of a checkpoint.
_PIECE = re.compile(r"\.(?:index|meta|data-\d{5}-of-\d{5})$")


def read_located(source, read, *, sha256=None, md5=None, verbose=1):
    """Locates the weights file of a source, and returns `read(path)` of it.

    A faulty server may send other content than the file with a status of success. So a
    download that cannot be read is not kept in the cache. A file in the cache that
    cannot be read, or whose digest is wrong, is downloaded again.
    """
    source = os.fspath(source)
    digests = {"sha256": sha256, "md5": md5}
    was_kept = bool(_DOWNLOAD.match(source)) and cache_path(source).is_file()
    try:
        with located(source, **digests, verbose=verbose) as path:
            return read(path)
    except InvalidValueError as error:
        if not was_kept or isinstance(error, WholeFileError):
            raise
        _fetch_again(source, error, digests, verbose)
    with located(source, **digests, verbose=verbose) as path:
        return read(path)


def _fetch_again(url, error, digests, verbose):
    """Downloads an unusable file again; raises `error` if that gives the same file."""
    path = cache_path(url)
    before = _digest_of(path, "sha256") if path.is_file() else None
    try:
        with atomic_write(path) as partial:
            _fetch(url, partial, verbose)
            check_digest(partial, **digests)
    except (OSError, InvalidValueError) as failure:
        raise InvalidValueError(
            f"{error} This is the copy in the cache folder, and downloading the file "
            f"again failed: {failure}"
        ) from error
    if _digest_of(path, "sha256") == before:  # the server has nothing better
        raise error


@contextlib.contextmanager
def located(source, *, sha256=None, md5=None, verbose=1):
    """Yields the path of a weights file, or the prefix of a TensorFlow checkpoint.

    Temporary files are deleted after the block. The local copy of a remote file is
    deleted if the block cannot read it.
    """
    source = os.fspath(source)
    with contextlib.ExitStack() as stack:
        was_kept = False
        if _DOWNLOAD.match(source):
            # A file from the cache is only replaced by a better download.
            was_kept = cache_path(source).is_file()
            path = download(source, sha256=sha256, md5=md5, verbose=verbose)
        elif is_remote(source):
            path = _copied(_weights_at(path_of(source)), stack)
        else:
            path = _weights_at(local_path(source, "A path of weights"))
        if not was_kept:
            stack.enter_context(dropping_unreadable_copy(path))
        check_digest(path, sha256=sha256, md5=md5)
        if path.is_file() and is_tar(path):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            _unpack(path, pathlib.Path(folder))
            path = _weights_in(pathlib.Path(folder), f"The archive '{path}'")
        yield path


def is_there(path):
    """Whether a path is a file, a folder or the prefix of a TensorFlow checkpoint."""
    return path.exists() or _index_of(path).is_file()


def _copied(path, stack):
    """Copies remote weights, a file or the files of a prefix, to this machine."""
    if path.is_file():
        return local_copy(path)
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
    for piece in path.parent.glob(f"{path.name}.*"):
        fetch(str(piece), folder / piece.name)
    return folder / path.name


def _weights_at(path):
    if path.name == STATE_FILE and path.is_file():
        path = path.parent
    if path.is_dir():
        return _weights_in(path, f"The folder '{path}'")
    prefix = path.with_name(_PIECE.sub("", path.name))
    if _index_of(prefix).is_file() and (prefix != path or not path.exists()):
        return prefix
    if not path.exists():
        has_folder = path.parent.is_dir()
        names = [p.name for p in path.parent.iterdir()] if has_folder else []
        raise FileNotFoundError(
            f"There is no file or folder '{path}'.{hint(path.name, names)}"
        )
    return path


def _weights_in(folder, label):
    """Returns the path of the weights in a folder, which messages call `label`."""
    found = checkpoint_in(folder) or _noted_prefix(folder)
    if found is not None:
        return found
    names = sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
    files = [name for name in names if name.lower().endswith(_SUFFIXES)]
    prefixes = [name.removesuffix(_INDEX) for name in names if name.endswith(_INDEX)]
    candidates = [*prefixes, *files] or [name for name in names if name == _HUB_PICKLE]
    if len(candidates) > 1:
        raise WholeFileError(
            f"{label} contains several checkpoints: {', '.join(candidates)}. Give the "
            "path of one of them (unpack an archive first)."
        )
    if candidates:
        return folder / candidates[0]
    folders = [name for name in names if (folder / name).is_dir()]
    inner = [name for name in _EXPORTED if name in folders] or folders
    if len(inner) == 1 or inner[:1] == [STATE_FILE]:
        return _weights_in(folder / inner[0], label)
    raise InvalidValueError(
        f"{label} contains no weights: neither a TensorFlow checkpoint (.index) nor a "
        f"file that ends in {', '.join(_SUFFIXES)}. It contains: "
        f"{', '.join(names[:8]) or 'nothing'}"
    )


def _noted_prefix(folder):
    """Returns the checkpoint that the file `checkpoint` names, if it is in `folder`."""
    name = name_in_state_file(folder / STATE_FILE)
    if name is None or not _index_of(folder / name).is_file():
        return None
    return folder / name


def name_in_state_file(path):
    """Returns the name of the checkpoint that a file `checkpoint` names, or None."""
    if not path.is_file():
        return None
    # The path in it may be from another machine, so only its last part is used.
    match = _STATE.search(path.read_text(encoding="utf-8", errors="replace"))
    return None if match is None else match[1]


def _index_of(prefix):
    return prefix.with_name(prefix.name + _INDEX)


def _unpack(path, folder):
    try:
        unpack_tar(path, folder)
    except (tarfile.TarError, OSError, zlib.error, lzma.LZMAError, EOFError) as error:
        if getattr(error, "errno", None) is not None:
            raise  # an error of the disk, not of the archive
        raise InvalidValueError(
            f"The archive '{path}' cannot be unpacked ({error}). Download or copy it "
            "again."
        ) from error


# --- Files behind a URL: downloaded once, atomically, and kept in a cache folder.

_HEAD = 512  # bytes, enough to recognize a web page
_MB = 1e6


def download(url, *, sha256=None, md5=None, verbose=1):
    """Downloads the file behind an http(s) URL, unless it is in the cache folder."""
    path = cache_path(url)
    if not path.is_file():
        with atomic_write(path) as partial:
            _fetch(url, partial, verbose)
            check_digest(partial, sha256=sha256, md5=md5)
    return path


def cache_path(url):
    """Returns the path where `download` stores the file of a URL."""
    name = path_in_address(url).rpartition("/")[2]
    name = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)[-100:] or "weights"
    digest = hashlib.sha256(url.encode()).hexdigest()
    return cache_folder() / f"{digest[:10]}-{name}"


def check_digest(path, *, sha256=None, md5=None):
    for name, expected in (("sha256", sha256), ("md5", md5)):
        if expected is None:
            continue
        actual = _digest_of(path, name)
        rule = (
            f"The {name} digest of the file '{path}' is not the expected one: it is "
            f"{actual}"
        )
        require(actual == expected.lower(), rule, **{name: expected})


def _digest_of(path, name):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, name).hexdigest()


def _fetch(url, path, verbose):
    """Downloads a URL to a file; raises `OSError` if that fails or it is a web page."""
    if verbose:
        print(f"Downloading {shown_address(url)}", flush=True)
    try:
        with web.answer(url) as response, open(path, "wb") as file:
            web.copy_body(response, file, _progress(verbose))
    except web.BROKEN as error:
        # The error is not chained, and of urllib's errors only the reason is shown,
        # because they may quote the URL with its secrets.
        is_answer = isinstance(error, urllib.error.HTTPError)
        is_ours = is_answer or isinstance(error, web.NotTheFileError)
        reason = error if is_ours else getattr(error, "reason", type(error).__name__)
        raise (OSError if is_answer else ConnectionError)(
            f"No file could be downloaded from {shown_address(url)}: {reason}. Check "
            "the address, try again, or download the file in another way and give its "
            "path."
        ) from None
    with open(path, "rb") as file:
        if web.is_page(file.read(_HEAD)):
            raise OSError(
                f"{shown_address(url)} returned a web page, not a file of weights. "
                "Open the address in a browser: it may need a login."
            )


def _progress(verbose):
    bar = keras.utils.Progbar(None, verbose=int(verbose), interval=0.2, unit_name="MB")

    def tell(received, length):
        bar.target = None if length is None else math.ceil(length / _MB)
        is_end = received == length
        bar.update(math.ceil(received / _MB), finalize=is_end)

    return tell
