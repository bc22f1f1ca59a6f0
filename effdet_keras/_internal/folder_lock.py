"""One training at a time writes to a folder: a lock of the kernel, and signs of life.

Two files are in a folder that is taken:

- `.in_use.lock`, which the kernel locks for the process that has it (the package
  `filelock`). The kernel frees it when the process ends, however it ends, and knows all
  processes, those in other containers of the machine as well.
- `.in_use.json`, which says who has the folder, for messages. It changes every few
  seconds. By that a process is known to run where the kernel cannot tell: at addresses,
  on file systems without locks, and on network drives whose locks do not reach other
  machines.
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
_EVERY = 20.0  # seconds between two signs of life
_SILENT = 90.0  # seconds without one, after which nobody is there
_LOOK = 1.0  # seconds between two looks
_ABANDONED = 86_400.0  # seconds after which nobody writes to a file any more


def open_folder(
    path: Any, what: str, is_ours: Callable[[str], bool], *, fetches: bool = True
) -> Any:
    """The folder that the user named, to write into: `FolderLock`, or one like it.

    Of an address, it fetches what is there, unless `fetches` is False.
    """
    if isinstance(path, (str, os.PathLike)) and is_remote(path):
        from effdet_keras.extras.remote.folder import RemoteFolder

        return RemoteFolder(address_of(path), is_ours, fetches=fetches)
    return FolderLock(local_path(path, what))


class FolderLock:
    """Keeps other trainings out of a folder, here or at an address, while it is taken.

    Those of other processes and of this one. A lock that nobody refers to any more is
    free.
    """

    others: tuple[str, ...] = ()

    def __init__(self, path):
        self.path = path_of(path)
        self.name = shown_address(path)
        self._file = self.path / LOCK_FILE
        self._kernel_lock = _KernelLock(self.path)
        self._owner = {}  # what the file says while this lock has the folder
        self._is_lost = False
        self._last_sign = 0.0  # by the clock, which goes on while the machine sleeps
        self._stopped = threading.Event()
        self._thread = None

    def update(self):
        """Does nothing: what others write is seen. See `RemoteFolder`."""

    def acquire(self, purpose):
        """Takes the folder."""
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
        """Removes what killed processes left half written.

        Other processes may just write to the folder, without its lock: an export, a
        download. Of their files those are left alone that may still grow. Checkpoints
        are of the process that has the lock; if that one `was_killed`, half written.
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
        """Gives the folder back; nothing happens where another process has it."""
        self._stop()
        is_ours = False
        with contextlib.suppress(OSError):  # what is away is seen as ended later
            is_ours = bool(self._owner) and self._says() == self._owner["token"]
            if is_ours:
                self._file.unlink(missing_ok=True)
        self._kernel_lock.release(keeps_file=not is_ours)
        self._owner = {}

    def is_held_by_another(self):
        """Whether another training, which may still run, has the folder."""
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
        """Says who has the folder, and begins to give signs of life."""
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
        """Changes the file, by which others see that this process runs."""
        token = self._says()
        # A file that somebody removed is made again, unless this process was silent for
        # so long that another one may have had the folder meanwhile, and left it.
        is_silent = time.time() - self._last_sign > _SILENT
        if token is None and (self._kernel_lock.is_held or not is_silent):
            token = self._owner["token"]
        self._is_lost = token != self._owner["token"]
        if not self._is_lost:
            self._owner["signs"] += 1
            self._write(self._owner)
            self._last_sign = time.time()

    def _says(self):
        """The token in the file; None without a file."""
        text = self._read()
        return None if text is None else _owner(text).get("token", "")

    def _falls_silent(self, text):
        """Watches for a sign of life; returns as soon as there is one."""
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
    """Gives signs of life until a lock is released, lost or forgotten."""
    while not stopped.wait(_EVERY):
        lock = lock_ref()
        if lock is None or lock._is_lost:
            return
        with contextlib.suppress(OSError):  # what is away for a moment comes back
            lock._beat()
        del lock  # the thread does not keep it while it waits


# --- The lock of the kernel: free when its process ends, and seen from all containers.


class _KernelLock:
    """A lock of the kernel on a file in a folder of this machine."""

    def __init__(self, folder):
        self._file = folder / KERNEL_FILE
        self._is_possible = not is_remote(folder)
        self._lock = None

    @property
    def is_held(self):
        return self._lock is not None

    def acquire(self, only_if_there=False):
        """True if it is ours now, False if another has it, None if there is none.

        `only_if_there` makes no file.
        """
        if not self._is_possible or (only_if_there and not self._file.exists()):
            return None
        # In the place of a lock of the kernel `fallback_to_soft` would trust process
        # numbers, which other containers have as well.
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
        """Frees it, if it is ours, and removes the file."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        if not keeps_file:  # while it is locked: who waits for it takes another file
            with contextlib.suppress(OSError):  # Windows removes no open file
                self._file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            lock.release()
        if not keeps_file and os.name == "nt":
            with contextlib.suppress(OSError):  # another has it already
                self._file.unlink(missing_ok=True)


_PATIENCE = 0.2  # seconds: another process may just look whether it is locked


# --- What is known of the process that a file names.

# The locks of this process, by the token in their file.
_HELD: weakref.WeakValueDictionary[str, FolderLock] = weakref.WeakValueDictionary()


def _boot():
    """What tells a running kernel from all others; None where it does not say."""
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _namespace():
    """What tells whose process numbers these are, among the containers of a machine."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _owner(text):
    try:
        owner = json.loads(text)
    except (ValueError, TypeError):  # half written, or none
        return {}
    return owner if isinstance(owner, dict) else {}


def _name_of(text):
    known = {"process": "?", "host": "?", "since": "?"} | _owner(text)
    name = "process {process} on {host} since {since}".format_map(known)
    return f"{name} (this process)" if known.get("token") in _HELD else name


def _has_ended(text, has_kernel_lock):
    """Whether it is known that the training in a file does not run any more."""
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
        return True  # or the lock would not be ours
    return owner.get("namespace") == _namespace() and _is_gone(owner)


def _is_gone(owner):
    """Whether a process of this namespace has ended, or has forgotten its lock."""
    process = owner.get("process")
    if not isinstance(process, int):
        return False
    if process == os.getpid():
        return owner.get("token") not in _HELD
    if os.name == "nt":  # there is no asking that does no harm
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # of another user
        pass
    return False
