"""One process at a time writes to a folder: a file in it says who that is."""

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
from collections.abc import Callable
from typing import Any

from effdet_keras._internal.extras import extra
from effdet_keras._internal.remote_path import path_of, replacing_at
from effdet_keras._internal.whole_files import (
    HALF_WRITTEN,
    address_of,
    is_remote,
    local_path,
    shown_address,
)
from effdet_keras.errors import InvalidStateError

# Why this is not the package `filelock`: on a file system that cannot swap two names in
# one step, as over NFS and SMB, it never takes over what a killed process left.

LOCK_FILE = ".in_use.json"
_EVERY = 20.0  # seconds between two signs of life
_SILENT = 90.0  # seconds without one, after which nobody is there
_LOOK = 1.0  # seconds between two looks


def open_folder(path: Any, what: str, is_ours: Callable[[str], bool]) -> Any:
    """The folder that the user named, to write into: `FolderLock`, or one like it."""
    if isinstance(path, (str, os.PathLike)) and is_remote(path):
        return extra("remote.folder:RemoteFolder")(address_of(path), is_ours)
    return FolderLock(local_path(path, what))


class FolderLock:
    """Keeps other processes out of a folder, here or at an address, while it is taken.

    The file changes every few seconds. Where it does not, its process has ended.
    """

    others: tuple[str, ...] = ()

    def __init__(self, path):
        self.path = path_of(path)
        self.name = shown_address(path)
        self._file = self.path / LOCK_FILE
        self._owner = {}  # what the file says while this process has the folder
        self._is_lost = False
        self._stopped = threading.Event()
        self._thread = None

    def acquire(self, purpose):
        """Takes the folder."""
        self._stop()
        text = self._read()
        if not (text is None or _has_ended(text) or self._falls_silent(text)):
            raise InvalidStateError(
                f"{purpose} needs a folder of its own: two would replace each other's "
                f"files. '{self.name}' is in use by {_name_of(text)}. Name another "
                "folder, or wait until that process has ended."
            )
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        self._owner = {
            "process": os.getpid(),
            "host": socket.gethostname(),
            "since": now,
            "token": secrets.token_hex(8),
            "signs": 0,
        }
        self._write()
        self._is_lost = False
        self._stopped.clear()
        self._thread = threading.Thread(target=self._beat_on, daemon=True)
        self._thread.start()
        if not is_remote(self.path):
            for path in filter(pathlib.Path.is_file, self.path.glob(HALF_WRITTEN)):
                path.unlink(missing_ok=True)  # of a process that was killed

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
        with contextlib.suppress(OSError):  # what is away is seen as ended later
            if self._owner and self._has_file():
                self._file.unlink(missing_ok=True)
        self._owner = {}

    def is_held_by_another(self):
        """Whether another process, which may still run, has the folder."""
        text = self._read()
        return text is not None and not _has_ended(text)

    def _stop(self):
        if self._thread is not None:
            self._stopped.set()
            self._thread.join()
            self._thread = None

    def _beat_on(self):
        while not (self._is_lost or self._stopped.wait(_EVERY)):
            with contextlib.suppress(OSError):  # what is away for a moment comes back
                self._beat()

    def _beat(self):
        """Changes the file, by which others see that this process runs."""
        self._is_lost = not self._has_file()
        if not self._is_lost:
            self._owner["signs"] += 1
            self._write()

    def _has_file(self):
        text = self._read()
        return text is not None and _owner(text).get("token") == self._owner["token"]

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

    def _write(self):
        with replacing_at(self._file) as partial:
            partial.write_text(json.dumps(self._owner), encoding="utf-8")


def _owner(text):
    try:
        return json.loads(text)
    except ValueError:  # half written
        return {}


def _name_of(text):
    known = {"process": "?", "host": "?", "since": "?"} | _owner(text)
    return "process {process} on {host} since {since}".format_map(known)


def _has_ended(text):
    """Whether it is known that a process does not run, or is this one."""
    owner = _owner(text)
    process = owner.get("process")
    if owner.get("host") != socket.gethostname() or not isinstance(process, int):
        return False
    if process == os.getpid():
        return True
    if os.name == "nt":  # there is no asking that does no harm
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # of another user
        pass
    return False
