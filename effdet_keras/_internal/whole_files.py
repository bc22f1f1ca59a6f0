"""Files of this machine that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import re
import secrets
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import Callable

from effdet_keras.errors import InvalidTypeError, InvalidValueError

# `pathlib` makes one slash of the two. A single letter is a drive of Windows.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def local_path(path, what):
    """The path on this machine that the user named; refuses any other address."""
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
    if _scheme(path) == "file":
        return pathlib.Path(urllib.request.url2pathname(_PATH.match(text)[1]))
    path = pathlib.Path(text)
    return path.expanduser() if path.parts[:1] == ("~",) else path


def is_remote(path):
    """Whether a path is an address with a scheme other than `file://`."""
    return _scheme(path) not in (None, "file")


def _scheme(path):
    text = os.fsdecode(path)
    match = _ADDRESS.match(text)
    if match is None:
        return None
    # A string has both slashes; of a `pathlib.Path` one is gone.
    is_address = text[match.end() :].startswith("/") or not isinstance(path, str)
    return match[1].lower() if is_address else None


def address_of(path):
    """The text of an address; `pathlib` makes one slash of its two."""
    text = os.fsdecode(path)
    return text if "://" in text else text.replace(":/", "://", 1)


def path_in_address(address):
    """The path of an address, also of one that is wrong elsewhere: `http://[::1/a`."""
    return urllib.parse.unquote(_PATH.match(address)[1])


_PATH = re.compile(r"(?:[A-Za-z][\w+.-]*:)?(?://[^/?#]*)?([^?#]*)")


def shown_address(path):
    """A path; of an address, without the login and the query, which may be secret."""
    if not is_remote(path):
        return os.fsdecode(path)
    return re.sub("//[^/]*@", "//", address_of(path).partition("?")[0])


# --- Files and folders that are written under a hidden name until they are complete.

# Names of files need not be UTF-8. What is not is written as Python shows it, such as
# `\udce9`: the text that has it, of hours of work, is not lost, and JSON reads it back.
UNENCODABLE = "backslashreplace"
TEMPORARY_NAME = re.compile(r"\.[0-9a-f]{8}\.partial(\..*)?")
# Of mounted drives that know no flushing: they are as safe as their service makes them.
_NO_FLUSHING = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)  # a disk is full, or a quota used up
_LITTLE = 2**20  # bytes that a disk has left where a library failed for lack of them
_IOSTREAM_ERROR = "iostream error"  # of C++, all it says; most likely of a full disk


@contextlib.contextmanager
def atomic_write(path, ending=None):
    """Gives a path to write a file to, and puts that file in the place of `path`."""
    path = local_path(path, "The path of a file")
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "A folder has this name", os.fspath(path))
    with _hidden_beside(path, path.suffix if ending is None else ending) as partial:
        yield partial
        _flush(partial)
        put_in_place(partial, path)


def write_text(path, text):
    """Writes a text file, whole or not at all."""
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8", errors=UNENCODABLE)


@contextlib.contextmanager
def atomic_folder(path):
    """Gives a folder to write into, which gets the name `path` when it is complete."""
    path = local_path(path, "The path of a folder")
    _refuse_existing(path)
    with _hidden_beside(path) as partial:
        partial.mkdir()
        yield partial
        put_in_place(partial, path, check=lambda: _refuse_existing(path))


@contextlib.contextmanager
def atomic_write_all(path, kept=()):
    """Gives a folder to write files and folders into, which then take their places.

    Of a folder `path` that is replaced, the files `kept` (relative paths) go into the
    new one, unless it has files of these names.
    """
    path = local_path(path, "The path of a file")
    with _hidden_beside(path) as partial:
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
    # The new one is in place. An error leaves the old folder, with what is not moved.
    for name in kept:
        if not os.path.lexists(target / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            put_in_place(old / name, target / name)
    shutil.rmtree(old, ignore_errors=True)


def files_in(folder):
    """The files and links of a folder, at any depth, as sorted relative paths."""
    found = []
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        relative = pathlib.Path(place).relative_to(folder)
        found += [(relative / name).as_posix() for name in (*names, *links)]
    return sorted(found)


# --- Another try where a file is held for a moment. On Windows a virus scanner or a
# search index opens each new file, and a cloud drive those that it copies.

_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.5, 3.0)  # seconds before another try


def put_in_place(
    source: os.PathLike, target: os.PathLike, check: Callable[[], None] | None = None
) -> None:
    """Renames a file or folder; a file that has the name is replaced.

    A refusal that may be of a moment is tried again for some seconds. `check` is called
    before each try, and raises where something has taken the place meanwhile.
    """

    def rename():
        if check is not None:
            check()
        os.replace(source, target)

    _tried(rename, target)


def remove_file(path: os.PathLike) -> None:
    """Removes a file, if it is there; tried again as `put_in_place` is."""
    with contextlib.suppress(FileNotFoundError):
        _tried(lambda: os.unlink(path), path)


def copy_file(source: os.PathLike, target: os.PathLike) -> None:
    """Copies the content of a file; tried again as `put_in_place` is."""
    _tried(lambda: shutil.copyfile(source, target), target)


def _tried(operation, target):
    """What `operation()` returns, at the latest after some tries."""
    for pause in _PAUSES:
        try:
            return operation()
        except OSError as error:
            if not _may_pass(error, target):
                raise
        time.sleep(pause)
    return operation()


def _may_pass(error, target):
    """Whether what was refused may be allowed a moment later."""
    if not isinstance(error, PermissionError) and error.errno != errno.EBUSY:
        return False
    # A folder that this user may not write to stays so.
    return os.access(os.path.dirname(os.path.abspath(target)), os.W_OK)


@contextlib.contextmanager
def _hidden_beside(path, ending=""):
    """A name for a file or folder that is gone after the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{secrets.token_hex(4)}.partial{ending}")
    try:
        yield hidden
    except Exception as error:
        # Libraries have words of their own for a full disk, some of them none at all.
        full = os.strerror(errno.ENOSPC)
        is_full = shutil.disk_usage(path.parent).free < _LITTLE
        is_full = is_full or any(
            words in str(error) for words in (full, _IOSTREAM_ERROR)
        )
        if getattr(error, "errno", None) in _NO_SPACE:
            error.filename = os.fspath(path)  # not of the hidden file, or of none
            raise
        if not is_full or getattr(error, "errno", None) is not None:
            raise
        raise OSError(errno.ENOSPC, full, path) from error
    finally:
        if hidden.is_dir():
            shutil.rmtree(hidden, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):  # the error of the block counts
                hidden.unlink(missing_ok=True)


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
