"""Writes local files so that they appear completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import re
import secrets
import shutil
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable

from effdet_keras.errors import EffDetError, InvalidTypeError, InvalidValueError

# `pathlib` turns the two slashes into one. A single letter is a drive of Windows.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def local_path(path, what):
    """Returns a user's path on this machine; raises an error for other addresses."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise InvalidTypeError(
            f"{what} must be text or a path. Received: {type(path).__name__}"
        )
    if is_remote(path):
        raise InvalidValueError(
            f"{what} must be on this machine. Received: '{shown_address(path)}'. Use a "
            "local folder and copy it with the storage's tool (`gsutil cp -r`, `aws s3 "
            "cp --recursive`), or mount the bucket as a folder."
        )
    text = os.fsdecode(path)
    if not text:
        raise InvalidValueError(f"{what} must not be empty. Received: ''")
    if _scheme(path) == "file":
        return pathlib.Path(urllib.request.url2pathname(_PATH.match(text)[1]))
    path = pathlib.Path(text)
    return path.expanduser() if path.parts[:1] == ("~",) else path


def check_may_be_folder(path: os.PathLike) -> None:
    """Raises `NotADirectoryError` if a folder cannot be made because a file is there.

    The file has the name of the folder itself, or of a folder above it.
    """
    path = pathlib.Path(path)
    there = next((x for x in (path, *path.parents) if os.path.lexists(x)), None)
    if there is not None and not there.is_dir():
        is_above = "" if there == path else f", which would have to be in '{there}'"
        raise NotADirectoryError(
            f"A folder is needed at '{path}'{is_above}, but '{there}' is a file or a "
            "link to nowhere. Give another path."
        )


def check_may_be_written(path: os.PathLike) -> None:
    """Raises OSError if nothing can be written at a path; call it before any work.

    A file is written in the nearest folder that exists, and is gone afterwards. A path
    below a file raises NotADirectoryError.
    """
    path = pathlib.Path(path)
    check_may_be_folder(path.parent)
    folder = next(x for x in (path, *path.absolute().parents) if x.is_dir())
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(b"1")  # a full disk has space for the name of a file
    except OSError as error:
        why = f"{os.strerror(error.errno)}: nothing can be written there"
        raise OSError(error.errno, why, os.fspath(path)) from error


def is_remote(path):
    """Returns whether a path is an address with a scheme other than `file://`."""
    return _scheme(path) not in (None, "file")


def _scheme(path):
    text = os.fsdecode(path)
    match = _ADDRESS.match(text)
    if match is None:
        return None
    # A string has both slashes; a `pathlib.Path` has lost one of them.
    is_address = text[match.end() :].startswith("/") or not isinstance(path, str)
    return match[1].lower() if is_address else None


def address_of(path):
    """Returns an address as text, with both slashes even if `pathlib` lost one."""
    text = os.fsdecode(path)
    return text if "://" in text else text.replace(":/", "://", 1)


def path_in_address(address):
    """Returns the path in an address, even in an invalid one like `http://[::1/a`."""
    return urllib.parse.unquote(_PATH.match(address)[1])


_PATH = re.compile(r"(?:[A-Za-z][\w+.-]*:)?(?://[^/?#]*)?([^?#]*)")


def shown_address(path):
    """Returns a path as text, without login and query, which may be secret."""
    if not is_remote(path):
        return os.fsdecode(path)
    return re.sub("//[^/]*@", "//", address_of(path).partition("?")[0])


# --- Files and folders that have a hidden name until they are complete.

# File names need not be valid UTF-8. Invalid bytes are escaped as Python shows them,
# such as `\udce9`. So a text with such a name can be written, and hours of work are not
# lost. JSON reads the name back.
UNENCODABLE = "backslashreplace"
TEMPORARY_NAME = re.compile(r"\.[0-9a-f]{8}\.partial(\..*)?")
# Errors of mounted drives without flushing. Such drives are as safe as their service.
_NO_FLUSHING = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)  # a disk is full, or a quota used up
_LITTLE = 2**20  # with fewer bytes free, an error without a reason means a full disk
# The whole message of C++'s streams, most likely because of a full disk.
_IOSTREAM_ERROR = "iostream error"


@contextlib.contextmanager
def atomic_write(path, ending=None):
    """Yields a temporary path to write to, and then renames it to `path`."""
    path = local_path(path, "The path of a file")
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "A folder has this name", os.fspath(path))
    with _hidden_beside(path, path.suffix if ending is None else ending) as partial:
        yield partial
        _flush(partial)
        put_in_place(partial, path)


def write_text(path, text):
    """Writes a text file completely or not at all."""
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8", errors=UNENCODABLE)


@contextlib.contextmanager
def atomic_folder(path):
    """Yields a temporary folder to write to, and renames it to `path` at the end."""
    path = local_path(path, "The path of a folder")
    _refuse_existing(path)
    with _hidden_beside(path) as partial:
        partial.mkdir()
        yield partial
        put_in_place(partial, path, check=lambda: _refuse_existing(path))


@contextlib.contextmanager
def atomic_write_all(path, kept=()):
    """Yields a temporary folder; what is written to it moves beside `path` at the end.

    An item named like `path` takes the place of `path`. If that replaces a folder, the
    files `kept` (relative paths) move from the old folder to the new one, unless the
    new one has files of these names.
    """
    path = local_path(path, "The path of a file")
    with _hidden_beside(path, stands_for=path.parent) as partial:
        partial.mkdir()
        yield partial
        new = sorted(partial.iterdir(), key=lambda item: item.name == path.name)
        for item in new:
            is_path = item.name == path.name
            _put_item_in_place(item, path.with_name(item.name), kept if is_path else ())


def _put_item_in_place(new, target, kept):
    if not target.is_dir():
        put_in_place(new, target)
        return
    old = target.with_name(f".{secrets.token_hex(4)}.replaced")
    put_in_place(target, old)
    try:
        put_in_place(new, target)
    except OSError:
        put_in_place(old, target)
        raise
    # The new folder is in place. After an error, files not yet moved stay in the old.
    for name in kept:
        if not os.path.lexists(target / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            put_in_place(old / name, target / name)
    shutil.rmtree(old, ignore_errors=True)


def files_in(folder):
    """Returns all files and links below a folder, as sorted relative paths."""
    found = []
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        relative = pathlib.Path(place).relative_to(folder)
        found += [(relative / name).as_posix() for name in (*names, *links)]
    return sorted(found)


# --- Retries for files that another program uses for a moment. On Windows, virus
# scanners and search indexes open each new file, and cloud drives open files to copy.

_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.5, 3.0)  # seconds before each retry


def put_in_place(
    source: os.PathLike, target: os.PathLike, check: Callable[[], None] | None = None
) -> None:
    """Renames a file or folder; replaces a file that already has the name.

    A refusal that may be temporary is tried again for some seconds. `check` is called
    before each attempt. It raises if something has taken the target name meanwhile.
    """

    def rename():
        if check is not None:
            check()
        os.replace(source, target)

    _tried(rename, target)


def remove_file(path: os.PathLike) -> None:
    """Removes a file, if it exists, with the same retries as `put_in_place`."""
    with contextlib.suppress(FileNotFoundError):
        _tried(lambda: os.unlink(path), path)


def copy_file(source: os.PathLike, target: os.PathLike) -> None:
    """Copies the content of a file, with the same retries as `put_in_place`."""
    _tried(lambda: shutil.copyfile(source, target), target)


def _tried(operation, target):
    """Returns what `operation()` returns, after retries if necessary."""
    for pause in _PAUSES:
        try:
            return operation()
        except OSError as error:
            if not _may_pass(error, target):
                raise
        time.sleep(pause)
    return operation()


def _may_pass(error, target):
    """Returns whether a refused operation may be allowed a moment later."""
    if not isinstance(error, PermissionError) and error.errno != errno.EBUSY:
        return False
    # A folder that this user may not write to stays read-only.
    return os.access(os.path.dirname(os.path.abspath(target)), os.W_OK)


@contextlib.contextmanager
def _hidden_beside(path, ending="", stands_for=None):
    """Yields a hidden path beside `path`; removes what is there after the block.

    An OSError of the hidden path names `path` instead, or what the hidden path
    `stands_for`.
    """
    check_may_be_folder(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{secrets.token_hex(4)}.partial{ending}")
    try:
        yield hidden
    except Exception as error:
        _raise_with_path_of_user(error, hidden, path, stands_for or path)
        raise
    finally:
        if hidden.is_dir():
            shutil.rmtree(hidden, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):  # do not hide the error of the block
                hidden.unlink(missing_ok=True)


def _raise_with_path_of_user(error, hidden, path, stands_for):
    """Raises an OSError in place of an error that names a hidden path, or no path.

    Other errors raise nothing. For a full disk or a read-only folder, libraries raise
    errors of their own, some without a reason.
    """
    number, name = getattr(error, "errno", None), os.fspath(path)
    if number is None:
        full = os.strerror(errno.ENOSPC)
        is_full = shutil.disk_usage(path.parent).free < _LITTLE
        if is_full or any(words in str(error) for words in (full, _IOSTREAM_ERROR)):
            raise OSError(errno.ENOSPC, full, name) from error
        if not isinstance(error, EffDetError):
            check_may_be_written(path)
    elif number in _NO_SPACE:
        raise OSError(number, os.strerror(number), name) from error
    elif hidden.name in str(error):
        name = os.fspath(error.filename or hidden)
        name = name.replace(os.fspath(hidden), os.fspath(stands_for))
        is_in_reason = hidden.name in str(error.strerror)  # as in errors of h5py
        reason = os.strerror(number) if is_in_reason else error.strerror
        raise OSError(number, reason, name) from error


def _refuse_existing(path):
    if os.path.lexists(path):
        raise FileExistsError(
            errno.EEXIST,
            "This already exists, and is not overwritten: give another path, or "
            "remove it",
            os.fspath(path),
        )


def _flush(path):
    with _tried(lambda: open(path, "rb+"), path) as file:
        try:
            os.fsync(file.fileno())
        except OSError as error:
            if error.errno not in _NO_FLUSHING:
                raise
