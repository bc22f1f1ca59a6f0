"""A lock that lets only one training at a time write to a folder.

A locked folder has two files:

- `.in_use.lock` is locked by the kernel for the process that uses the folder (with the
  package `filelock`). The kernel releases the lock when the process ends for whatever
  reason, and sees all processes of the machine, including those in other containers.
- `.in_use.json` says who uses the folder, for error messages. Its owner changes it
  every few seconds, as a heartbeat. The heartbeat shows that the process is alive where
  the kernel cannot tell: at addresses, on file systems without locks, and on network
  drives whose locks do not reach other machines.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pathlib
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import filelock

from effdet_keras._internal.remote_path import atomic_write_at, path_of
from effdet_keras._internal.whole_files import (
    TEMPORARY_NAME,
    address_of,
    is_remote,
    local_path,
    shown_address,
)
from effdet_keras.errors import InvalidStateError

LOCK_FILE = ".in_use.json"
KERNEL_FILE = ".in_use.lock"
_EVERY = 20.0  # seconds between two heartbeats
_SILENT = 90.0  # seconds without a heartbeat, after which the owner counts as dead
_LOOK = 1.0  # seconds between two checks for a heartbeat
_ABANDONED = 86_400.0  # seconds after which a temporary file counts as abandoned


def open_folder(
    path: Any, what: str, is_ours: Callable[[str], bool], *, fetches: bool = True
) -> Any:
    """Returns a folder to write to: a `FolderLock`, or a `RemoteFolder` at an address.

    Files at an address are fetched first, unless `fetches` is False.
    """
    if isinstance(path, (str, os.PathLike)) and is_remote(path):
        from effdet_keras.extras.remote.folder import RemoteFolder

        return RemoteFolder(address_of(path), is_ours, fetches=fetches)
    return FolderLock(local_path(path, what))


class FolderLock:
    """A lock on a folder, here or at an address, that keeps other trainings out of it.

    It keeps out trainings of other processes and of this process. A lock that is no
    longer referenced is free.
    """

    others: tuple[str, ...] = ()

    def __init__(self, path):
        self.path = path_of(path)
        self.name = shown_address(path)
        self._file = self.path / LOCK_FILE
        self._kernel_lock = _KernelLock(self.path)
        self._owner = {}  # content of the file while this lock holds the folder
        self._is_lost = False
        self._last_sign = 0.0  # wall-clock time, which goes on while the machine sleeps
        self._stopped = threading.Event()
        self._thread = None

    def update(self):
        """Does nothing: a local folder is always up to date. See `RemoteFolder`."""

    def acquire(self, purpose):
        """Acquires the lock, or raises `InvalidStateError` if another one holds it."""
        if self._owner:
            self.release()
        has_kernel_lock = self._kernel_lock.acquire()
        if has_kernel_lock is False:
            raise self._in_use(purpose, self._read())
        try:
            text = self._read()
            is_free = text is None or _has_ended(text, has_kernel_lock)
            if not (is_free or self._falls_silent(text)):
                raise self._in_use(purpose, text)
            self._begin(has_kernel_lock)
        except BaseException:
            self._kernel_lock.release(keeps_file=True)
            raise
        if not is_remote(self.path):
            self._remove_abandoned(was_killed=text is not None)

    def _remove_abandoned(self, *, was_killed):
        """Removes temporary files that killed processes have left behind.

        Other processes may write to the folder without its lock, for example an export
        or a download, and their temporary files may still grow. So only files older
        than a day are removed. A temporary checkpoint belongs to the process that held
        the lock: it is also removed if that process `was_killed`.
        """
        for path in self.path.iterdir():
            if not TEMPORARY_NAME.fullmatch(path.name) or path.is_dir():
                continue
            with contextlib.suppress(OSError):
                is_old = time.time() - path.stat().st_mtime > _ABANDONED
                if is_old or (was_killed and path.suffix == ".keras"):
                    path.unlink(missing_ok=True)

    def check(self):
        """Raises RuntimeError if another process has taken the folder meanwhile."""
        if self._is_lost:
            raise InvalidStateError(
                f"Another process has taken over '{self.name}' while this one did not "
                "respond: this process writes nothing more to it."
            )

    def release(self):
        """Releases the folder; does nothing if another process holds it."""
        self._stop()
        is_ours = False
        with contextlib.suppress(OSError):  # if unreachable, the lock expires later
            is_ours = bool(self._owner) and self._says() == self._owner["token"]
            if is_ours:
                self._file.unlink(missing_ok=True)
        self._kernel_lock.release(keeps_file=not is_ours)
        self._owner = {}

    def is_held_by_another(self):
        """Returns whether another training, which may still run, uses the folder."""
        if self._owner:
            return False
        has_kernel_lock = self._kernel_lock.acquire(only_if_there=True)
        if has_kernel_lock is False:
            return True
        try:
            text = self._read()
        finally:
            self._kernel_lock.release(keeps_file=True)
        return text is not None and not _has_ended(text, has_kernel_lock)

    def _in_use(self, purpose, text):
        return InvalidStateError(
            f"{purpose} needs a folder of its own: two would replace each other's "
            f"files. '{self.name}' is in use by {_name_of(text)}. Name another folder, "
            "or wait until that training has ended."
        )

    def _begin(self, has_kernel_lock):
        """Writes who uses the folder, and starts the heartbeat."""
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        owner = {
            "process": os.getpid(),
            "host": socket.gethostname(),
            "boot": _boot(),
            "namespace": _namespace(),
            "kernel_lock": has_kernel_lock is True,
            "since": now,
            "token": secrets.token_hex(8),
            "signs": 0,
        }
        self._write(owner)
        self._owner, self._is_lost, self._last_sign = owner, False, time.time()
        _HELD[owner["token"]] = self
        self._stopped = threading.Event()
        arguments = weakref.ref(self), self._stopped
        self._thread = threading.Thread(target=_beat_on, args=arguments, daemon=True)
        self._thread.start()

    def _stop(self):
        if self._thread is not None:
            self._stopped.set()
            self._thread.join()
            self._thread = None

    def _beat(self):
        """Updates the file, which shows others that this process is alive."""
        token = self._says()
        # If the file was removed, it is written again. The exception is a process that
        # was silent for so long that another one may have used the folder and left it.
        is_silent = time.time() - self._last_sign > _SILENT
        if token is None and (self._kernel_lock.is_held or not is_silent):
            token = self._owner["token"]
        self._is_lost = token != self._owner["token"]
        if not self._is_lost:
            self._owner["signs"] += 1
            self._write(self._owner)
            self._last_sign = time.time()

    def _says(self):
        """Returns the token in the file; None if there is no file."""
        text = self._read()
        return None if text is None else _owner(text).get("token", "")

    def _falls_silent(self, text):
        """Waits for a heartbeat; returns whether the owner is gone."""
        print(
            f"'{self.name}' is in use by {_name_of(text)}. Checking whether that "
            "process still runs ...",
            flush=True,
        )
        end = time.monotonic() + _SILENT
        while time.monotonic() < end:
            time.sleep(_LOOK)
            now = self._read()
            if now != text:
                return now is None
        return True

    def _read(self):
        try:
            return self._file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def _write(self, owner):
        with atomic_write_at(self._file) as partial:
            partial.write_text(json.dumps(owner), encoding="utf-8")


def _beat_on(lock_ref, stopped):
    """Sends heartbeats until a lock is released, lost or no longer referenced."""
    while not stopped.wait(_EVERY):
        lock = lock_ref()
        if lock is None or lock._is_lost:
            return
        with contextlib.suppress(OSError):  # an outage of the storage may pass
            lock._beat()
        del lock  # the waiting thread must not keep the lock alive


# --- The kernel's lock: it ends with its process, and all containers see it.


class _KernelLock:
    """A kernel lock on a file in a folder of this machine."""

    def __init__(self, folder):
        self._file = folder / KERNEL_FILE
        self._is_possible = not is_remote(folder)
        self._lock = None

    @property
    def is_held(self):
        return self._lock is not None

    def acquire(self, only_if_there=False):
        """Returns True if acquired, False if another process holds it, None if neither.

        It is None if the folder cannot be locked. With `only_if_there`, no lock file is
        created, and the result is also None if there is none.
        """
        if not self._is_possible or (only_if_there and not self._file.exists()):
            return None
        # `fallback_to_soft` would replace the kernel's lock by one that trusts process
        # ids, and processes in other containers may have the same ids.
        lock = filelock.FileLock(self._file, thread_local=False, fallback_to_soft=False)
        try:
            lock.acquire(timeout=_PATIENCE, poll_interval=_PATIENCE / 10)
        except filelock.Timeout:
            return False
        except (OSError, NotImplementedError):  # the file system has no locks
            return None
        self._lock = lock
        return True

    def release(self, *, keeps_file):
        """Releases the lock, if it is held, and removes its file unless it is kept."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        if not keeps_file:  # still locked: a waiting process then locks a new file
            with contextlib.suppress(OSError):  # Windows cannot remove an open file
                self._file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            lock.release()
        if not keeps_file and os.name == "nt":
            with contextlib.suppress(OSError):  # another process has locked it already
                self._file.unlink(missing_ok=True)


_PATIENCE = 0.2  # seconds: another process may only be testing the lock


# --- Facts about the process that is named in the file.

# The locks of this process, by the token in their file.
_HELD: weakref.WeakValueDictionary[str, FolderLock] = weakref.WeakValueDictionary()


def _boot():
    """Returns an id of the running kernel; None if the system has none."""
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _namespace():
    """Returns an id of the container's process ids; None if the system has none."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _owner(text):
    try:
        owner = json.loads(text)
    except (ValueError, TypeError):  # half written, or not JSON
        return {}
    return owner if isinstance(owner, dict) else {}


def _name_of(text):
    known = {"process": "?", "host": "?", "since": "?"} | _owner(text)
    name = "process {process} on {host} since {since}".format_map(known)
    return f"{name} (this process)" if known.get("token") in _HELD else name


def _has_ended(text, has_kernel_lock):
    """Returns whether the training named in a file is known to have ended."""
    owner = _owner(text)
    boot = _boot()
    of_this_kernel = (
        owner.get("host") == socket.gethostname()
        if boot is None
        else owner.get("boot") == boot
    )
    if not of_this_kernel:
        return False
    if has_kernel_lock and owner.get("kernel_lock"):
        return True  # a running owner would still hold the kernel's lock
    return owner.get("namespace") == _namespace() and _is_gone(owner)


def _is_gone(owner):
    """Returns whether a process here has ended, or no longer references its lock."""
    process = owner.get("process")
    if not isinstance(process, int):
        return False
    if process == os.getpid():
        return owner.get("token") not in _HELD
    if os.name == "nt":  # on Windows, `os.kill` cannot ask without harm
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # the process runs, and belongs to another user
        pass
    return False
