"""Files of this machine that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import pathlib
import re
import secrets
import shutil
import socket
import time
import urllib.parse
import urllib.request

from effdet_keras.errors import InvalidTypeError, InvalidValueError, require

# `pathlib` makes one slash of the two. A single letter is a drive of Windows.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def local_path(path, what):
    """The path on this machine that the user named; refuses any other address."""
    is_path = isinstance(path, (str, os.PathLike))
    require(is_path, f"{what} must be a string or a path", InvalidTypeError, path=path)
    text = os.fsdecode(path)
    scheme = _scheme(path, text)
    if scheme is None:
        path = pathlib.Path(text)
        return path.expanduser() if path.parts[:1] == ("~",) else path
    if scheme == "file":
        return _path_of_file_url(text, what)
    raise InvalidValueError(
        f"{what} must be on this machine. Received: '{shown_address(path)}'. Use a "
        "local folder and copy it with the storage's tool (`gsutil cp -r`, `aws s3 cp "
        "--recursive`), or mount the bucket as a folder."
    )


def is_remote(path):
    """Whether a path is an address with a scheme other than `file://`."""
    scheme = _scheme(path, os.fsdecode(path))
    if scheme in (None, "file"):
        return False
    check_address(address_of(path))
    return True


def check_address(address):
    """Raises ValueError if an address has a part that cannot be read, or no host."""
    try:
        parts = urllib.parse.urlsplit(address)
        if parts.scheme.lower() in ("http", "https"):
            if not parts.hostname:
                raise InvalidValueError("it names no host")
            parts.port, parts.hostname.encode("idna")  # raise
    except ValueError as error:
        raise InvalidValueError(
            f"'{shown_address(address)}' is not an address that can be opened: "
            f"{error}. It must be like https://example.org:8000/folder/file; [ and ] "
            "are for the numbers of a host alone, as in http://[::1]/file"
        ) from error


def _scheme(path, text):
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


def shown_address(path):
    """The address, without what may be secret: the login and what follows a `?`."""
    return re.sub("//[^/]*@", "//", address_of(path).partition("?")[0])


def _path_of_file_url(text, what):
    check_address(text)
    parts = urllib.parse.urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise InvalidValueError(
            f"{what} must be on this machine: file:///folder/name has three slashes. "
            f"Received: '{text}'"
        )
    return pathlib.Path(urllib.request.url2pathname(parts.path))


# --- Files and folders that are written whole or not at all.

_HIDDEN = re.compile(r"\..+\.(\d+)-[0-9a-f]{8}([0-9a-f]{4})?\.partial(\.[\w.]+)?")
_LONGEST = 50  # characters of the target's name in the hidden one: at most 200 bytes
_STALE = 3600.0  # seconds; also between two looks into one folder
# Of mounted drives that know no flushing: they are as safe as their service makes them.
_NO_FLUSHING = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_LITTLE = 2**20  # bytes that a disk has left where a library failed for lack of them
_live = set()  # absolute hidden paths of this process
_last_look = {}  # when this process last looked for leftovers, by folder


@contextlib.contextmanager
def replacing(path, ending=None, *, previous=None, exclusive=False):
    """Gives a path to write a file to, and puts that file in the place of `path`."""
    path = local_path(path, "The path of a file")
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "A folder has this name", os.fspath(path))
    with _hidden_beside(path, path.suffix if ending is None else ending) as partial:
        yield partial
        _flush_file(partial)
        if previous is not None and path.exists():
            _rename_behind(path, previous)
        if exclusive:
            os.link(partial, path)
        else:
            os.replace(partial, path)
    _flush_folder(path.parent)


@contextlib.contextmanager
def new_folder(path):
    """Gives a folder to write into, which gets the name `path` when it is complete."""
    path = local_path(path, "The path of a folder")
    _refuse_existing(path)
    with _hidden_beside(path) as partial:
        partial.mkdir()
        yield partial
        _refuse_existing(path)
        partial.rename(path)
    _flush_folder(path.parent)


@contextlib.contextmanager
def replacing_together(path):
    """Gives a folder to write several files into, which then take their places."""
    path = local_path(path, "The path of a file")
    with _hidden_beside(path) as hidden:
        new, old = hidden / "new", hidden / "old"
        new.mkdir(parents=True)
        old.mkdir()
        yield new
        _flush_tree(new)
        _put_in_place(new, old, path)
    _flush_folder(path.parent)


def is_hidden_name(name):
    """Whether a name is one under which a file is written until it is complete."""
    return _HIDDEN.fullmatch(name) is not None


def remove_leftovers(folder, ended=None):
    """Removes what killed processes of this machine, and `ended`, left in a folder."""
    here = _machine(socket.gethostname())
    dead = None if ended is None else (ended[0], _machine(ended[1]))
    for path in pathlib.Path(folder).absolute().iterdir():
        match = _HIDDEN.fullmatch(path.name)
        if match is None or path in _live or _holds_old_files(path):
            continue
        process = int(match[1])
        is_dead = process == os.getpid() or not process_runs(process)
        if (process, match[2]) == dead or (match[2] == here and is_dead):
            _remove(path)


def _machine(host):
    return hashlib.sha256(host.encode()).hexdigest()[:4]


@contextlib.contextmanager
def _hidden_beside(path, ending=""):
    """A name for a file or folder that is gone after the block."""
    stem = path.name.removesuffix(ending)[:_LONGEST]
    number = secrets.token_hex(4) + _machine(socket.gethostname())
    name = f".{stem}.{os.getpid()}-{number}.partial{ending}"
    hidden = path.with_name(name)
    _require_writable(path.parent, hidden)
    _remove_old_leftovers(path.parent)
    _live.add(hidden.absolute())
    try:
        yield hidden
    except Exception as error:
        # Each library has words of its own for it, some of them none at all.
        reason = os.strerror(errno.ENOSPC)
        is_told = reason in str(error)  # and the library has tidied up since
        has_number = getattr(error, "errno", None) is not None
        if has_number or not (is_told or _is_full(path.parent)):
            raise
        raise OSError(errno.ENOSPC, f"{reason}; nothing was changed", path) from error
    finally:
        if not _holds_old_files(hidden):  # it does if undoing the renames failed
            _remove(hidden)
        _live.discard(hidden.absolute())


def _require_writable(folder, probe):
    """Raises an OSError that names the folder, not a hidden file in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        # A class of its own error, such as PermissionError, follows from the number.
        raise OSError(
            error.errno, f"The folder cannot be written to: {error.strerror}", folder
        ) from error


def _is_full(folder):
    return shutil.disk_usage(folder).free < _LITTLE


def _refuse_existing(path):
    if os.path.lexists(path):
        raise FileExistsError(
            errno.EEXIST,
            "It exists already, and nothing is written over it. Name another folder, "
            "or remove it",
            os.fspath(path),
        )


def _rename_behind(path, previous):
    """Gives a file a second name, in the place of what has it."""
    with _hidden_beside(path, path.suffix) as hidden:
        try:
            os.link(path, hidden)  # there is a file at `path` at every moment
        except OSError:  # a file system without links
            os.replace(path, previous)
        else:
            os.replace(hidden, previous)


def _put_in_place(new, old, path):
    """Renames all that is in `new` into the folder of `path`, or nothing."""
    begun = []
    try:
        names = sorted(item.name for item in new.iterdir())
        for name in sorted(names, key=lambda name: name == path.name):
            _keep(path.with_name(name), old / name)
            begun.append(name)
            os.replace(new / name, path.with_name(name))
        old.rename(old.with_name("replaced"))  # to be removed: all is in place
    except BaseException:
        for name in begun:
            if not os.path.lexists(old / name) or (old / name).is_dir():
                _remove(path.with_name(name))
        for item in old.iterdir():
            os.replace(item, path.with_name(item.name))
            item.unlink(missing_ok=True)  # one file of two names: not renamed
        raise


def _keep(target, aside):
    """Keeps what is to be replaced; a file stays in its place until then."""
    if target.is_dir() and not target.is_symlink():
        os.replace(target, aside)
    elif os.path.lexists(target):
        try:
            os.link(target, aside, follow_symlinks=False)
        except OSError:  # a file system without links
            os.replace(target, aside)


def _remove_old_leftovers(folder):
    """Removes what killed processes left in a folder."""
    folder, now = folder.absolute(), time.monotonic()
    if now - _last_look.get(folder, -math.inf) < _STALE:
        return  # many files into one folder: list it once
    _last_look[folder] = now
    for path in folder.iterdir():
        match = _HIDDEN.fullmatch(path.name)
        if match and _is_leftover(path, int(match[1])):
            _remove(path)


def _is_leftover(path, process):
    if path in _live or (process != os.getpid() and process_runs(process)):
        return False
    try:
        newest = max(p.lstat().st_mtime for p in (path, *path.rglob("*")))
    except OSError:  # another process removes it just now
        return False
    return time.time() - newest > _STALE and not _holds_old_files(path)


def _holds_old_files(hidden):
    """Whether `replacing_together` was stopped between its renames."""
    try:
        return any((hidden / "old").iterdir())
    except OSError:
        return False


def process_runs(process):
    """Whether a process of this machine has this number; on Windows always True."""
    if os.name == "nt":
        return True  # there is no asking that does no harm
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # of another user
        pass
    return True


def _remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _flush_tree(folder):
    for path in folder.rglob("*"):
        if path.is_file():
            _flush_file(path)
        else:
            _flush_folder(path)


def _flush_file(path):
    try:
        _flush(path, os.O_RDWR)
    except OSError as error:
        if error.errno not in _NO_FLUSHING:
            raise


def _flush_folder(folder):
    # Some systems and network drives refuse: it is only for a loss of power, not
    # for a kill.
    with contextlib.suppress(OSError):
        _flush(folder, os.O_RDONLY)


def _flush(path, flags):
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
