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

from effdet_keras._internal.whole_files import process_runs, remove_leftovers
from effdet_keras.errors import InvalidStateError

# Why this is not the package `filelock`: on a file system that cannot swap two names in
# one step, as over NFS and SMB, its 4.2 never takes over what a killed process left;
# and it removes a file that it cannot read, such as one of our earlier versions,
# after two seconds, though that process runs.

LOCK_FILE = ".in_use.json"
_ATTEMPTS = 3  # after one, the lock of a process that has ended is gone
_EVERY = 20.0  # seconds between two signs of life
_SILENT = 90.0  # seconds without one, after which nobody is there
_LOOK = 2.0  # seconds between two looks


class Lock:
    """What a lock is whose file changes every few seconds, wherever that file is."""

    def __init__(self, name, cure):
        self.name = name
        self._cure = cure
        self._thread = None
        self._stopped = threading.Event()
        self.is_lost = False

    def check(self):
        """Raises RuntimeError if another process has taken the folder meanwhile."""
        if self.is_lost:
            raise InvalidStateError(
                f"Another process has taken '{self.name}' while this one was not "
                "heard of: nothing more is written to it."
            )

    def _begin_to_beat(self):
        self._stop_beating()
        self.is_lost = False
        self._stopped.clear()
        self._thread = threading.Thread(target=self._beat_on, daemon=True)
        self._thread.start()

    def _stop_beating(self):
        if self._thread is not None:
            self._stopped.set()
            self._thread.join()
            self._thread = None

    def _beat_on(self):
        while not (self._stopped.wait(_EVERY) or self.is_lost):
            with contextlib.suppress(OSError):  # what is away for a moment comes back
                self._beat()

    def _beat(self):
        """Changes the file, by which others see that this process runs."""
        owner = self._read()
        self.is_lost = self._is_taken(owner)
        if owner is not None and not self.is_lost:
            self._write(owner | {"signs": owner["signs"] + 1})
        return not self.is_lost

    def _is_silent(self, owner):
        """Whether a process, which gave signs, gives none now."""
        print(
            f"'{self.name}' is in use by {_name_of(owner)}. Looking whether that "
            "still runs ...",
            flush=True,
        )
        return falls_silent(self._read, owner)

    def _refuse(self, purpose):
        raise InvalidStateError(
            f"{purpose} must have its folder for itself: two would replace each "
            f"other's files. '{self.name}' is in use by "
            f"{_name_of(self._read())}. Name another folder{self._cure}"
        )


def falls_silent(read, first):
    """Watches for a sign of life; returns as soon as there is one."""
    end = time.monotonic() + _SILENT
    while time.monotonic() < end:
        time.sleep(_LOOK)
        if read() != first:
            return False
    return True


class FolderLock(Lock):
    """Keeps other processes out of a folder, from `acquire` to `release`."""

    others: tuple[str, ...] = ()

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.file = self.path / LOCK_FILE
        cure = f"; or, if that process has ended, remove the file '{self.file}'."
        super().__init__(str(self.path), cure)

    def acquire(self, purpose):
        """Takes the folder."""
        ended = None
        for _ in range(_ATTEMPTS):
            is_new = self._create()
            owner = self._read()
            if is_new or (owner is not None and is_this_process(owner)):
                self._begin_to_beat()
                remove_leftovers(self.path, ended)
                return
            if owner is not None and (has_ended(owner) or self._is_silent(owner)):
                self._break(owner)
                ended = owner.get("process"), str(owner.get("host"))
            elif self.file.exists():
                break
        self._refuse(purpose)

    def release(self):
        """Gives the folder back; nothing happens where another process has it."""
        self._stop_beating()
        owner = self._read()
        if owner is not None and is_this_process(owner):
            self.file.unlink(missing_ok=True)

    def is_held_by_another(self):
        """Whether a process of this machine that runs has the folder; not this one."""
        owner = self._read()
        if owner is None or owner.get("host") != socket.gethostname():
            return False
        return not (is_this_process(owner) or has_ended(owner))

    def _read(self):
        """Who has the folder; None if nobody has, or the file cannot be read."""
        return _owner(self.file)

    def _is_taken(self, owner):
        # Without one it was removed, by hand or by a lock of this process; or is away.
        return owner is not None and not is_this_process(owner)

    def _write(self, owner):
        self._put(owner, os.replace)

    def _is_silent(self, owner):
        is_of_here = owner.get("host") == socket.gethostname()
        return not is_of_here and "signs" in owner and super()._is_silent(owner)

    def _create(self):
        """Writes the file, with all that is in it, unless there is one."""
        owner = this_process() | {"since": now_as_text(), "signs": 0}
        try:
            self._put(owner, os.link)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            return self._create_in_place(owner)
        return True

    def _create_in_place(self, owner):
        try:
            with open(self.file, "x", encoding="utf-8") as file:
                json.dump(owner, file)
        except FileExistsError:
            return False
        return True

    def _put(self, owner, link_or_rename):
        hidden = self._beside()
        try:
            hidden.write_text(json.dumps(owner), encoding="utf-8")
            link_or_rename(hidden, self.file)
        finally:
            with contextlib.suppress(OSError):
                hidden.unlink(missing_ok=True)

    def _beside(self):
        return self.file.with_name(f"{LOCK_FILE}.{secrets.token_hex(4)}")

    def _break(self, owner):
        """Removes the lock of a process that has ended, and no other."""
        aside = self._beside()
        with contextlib.suppress(FileNotFoundError):  # another broke it just now
            os.replace(self.file, aside)
            if _owner(aside) != owner:  # another did, and has the folder now
                os.replace(aside, self.file)
            aside.unlink(missing_ok=True)


def _name_of(owner):
    """What messages call the process that has a folder; `owner` is of its file."""
    if not owner:
        return "a process that is not known"
    return "process {process} on {host} since {since}".format_map(
        {"process": "?", "host": "?", "since": "?", **owner}
    )


def _owner(path):
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return owner if isinstance(owner, dict) else None


def this_process():
    """What a file says of this process."""
    process = os.getpid()
    return {
        "process": process,
        "host": socket.gethostname(),
        "started": _start_of(process),
    }


def is_this_process(owner):
    """Whether a file is of this process."""
    return all(owner.get(name) == value for name, value in this_process().items())


def has_ended(owner):
    """Whether it is known that a process does not run any more."""
    process = owner.get("process")
    if owner.get("host") != socket.gethostname() or not isinstance(process, int):
        return False
    if not process_runs(process):
        return True
    # The number may be another process' by now.
    return _start_of(process) not in (None, owner.get("started"))


def _start_of(process):
    """When a process began, in ticks since the start of the machine; Linux alone."""
    try:
        text = pathlib.Path(f"/proc/{process}/stat").read_text()
    except (OSError, ValueError):
        return None
    return text.rpartition(")")[2].split()[19]


def now_as_text():
    """The time, for people."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")
