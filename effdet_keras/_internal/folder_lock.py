"""One writer per folder: a lock, and a sign of life where locks do nothing."""

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

from effdet_keras._internal.whole_files import remove_leftovers
from effdet_keras.errors import InvalidStateError

_EVERY = 20.0  # seconds between two signs
_SILENT = 90.0  # seconds without one, after which nobody is there
_LOOK = 2.0  # seconds between two looks


class Heartbeat:
    """Calls a function every few seconds in a thread of its own, until it says no.

    Args:
        beat: function without arguments; False ends it. An OSError, such as of a drive
            that is away for a moment, does not.

    Example:
        >>> heartbeat = Heartbeat(lambda: False)
        >>> heartbeat.start()
        >>> heartbeat.stop()
    """

    def __init__(self, beat):
        self._beat = beat
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()

    def stop(self):
        self._stopped.set()
        self._thread.join()

    def _run(self):
        while not self._stopped.wait(_EVERY):
            try:
                if self._beat() is False:
                    return
            except OSError:
                pass


def falls_silent(read, first):
    """Watches for a sign of life; returns as soon as there is one.

    No clock but this machine's own counts: those of two machines differ.
    """
    end = time.monotonic() + _SILENT
    while time.monotonic() < end:
        time.sleep(_LOOK)
        if read() != first:
            return False
    return True


# --- One writer at a time in a folder: a file in it says who that is.

LOCK_FILE = ".in_use.json"
_ATTEMPTS = 3  # after one, the lock of a process that has ended is gone


class FolderLock:
    """Keeps other processes out of a folder, from `acquire` to `release`.

    A process that has ended holds nothing any more: its lock is taken over, at once
    if it ran on this machine. One that runs changes its file every 20 seconds: where
    another machine's stays as it is for 90 seconds, as on a drive that two machines
    mount one after the other, it is taken over as well. A process never locks itself
    out: who is stopped by an error in a notebook begins again.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> lock = FolderLock(folder)
        >>> lock.acquire("A training")
        >>> os.listdir(folder)
        ['.in_use.json']
        >>> lock.release()
        >>> os.listdir(folder)
        []
    """

    def __init__(self, folder):
        self.path = pathlib.Path(folder, LOCK_FILE)
        self._heartbeat = None
        self._signs = 0
        self._is_lost = False  # another process has taken it

    def acquire(self, purpose):
        """Takes the folder."""
        ended = None
        for _ in range(_ATTEMPTS):
            is_new = self._create()
            owner = _owner(self.path)
            if is_new or (owner is not None and is_this_process(owner)):
                self._begin_to_beat()
                remove_leftovers(self.path.parent, ended)
                return
            if owner is not None and (has_ended(owner) or self._is_silent(owner)):
                self._break(owner)
                ended = owner.get("process"), str(owner.get("host"))
            elif self.path.exists():
                break
        raise InvalidStateError(self._refusal(purpose, _owner(self.path)))

    def release(self):
        """Gives the folder back; nothing happens where another process has it."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None
        owner = _owner(self.path)
        if owner is not None and is_this_process(owner):
            self.path.unlink(missing_ok=True)

    def check(self):
        """Raises RuntimeError if another process has taken the folder meanwhile."""
        if self._is_lost:
            raise InvalidStateError(
                f"Another process has taken '{self.path.parent}' while this one was "
                "not heard of: nothing more is written to it."
            )

    def is_held_by_another(self):
        """Whether a process of this machine that runs has the folder; not this one."""
        owner = _owner(self.path)
        if owner is None or owner.get("host") != socket.gethostname():
            return False
        return not (is_this_process(owner) or has_ended(owner))

    def _begin_to_beat(self):
        if self._heartbeat is None:
            self._is_lost = False
            self._heartbeat = Heartbeat(self._beat)
            self._heartbeat.start()

    def _beat(self):
        """Changes the file, by which another machine sees that this process runs."""
        owner = _owner(self.path)
        if owner is None:  # removed, by hand or by a lock of this process; or away
            return True
        if not is_this_process(owner):
            self._is_lost = True
            return False
        self._signs += 1
        hidden = self.path.with_name(f"{LOCK_FILE}.{secrets.token_hex(4)}")
        try:
            hidden.write_text(json.dumps(owner | {"signs": self._signs}), "utf-8")
            os.replace(hidden, self.path)
        finally:
            with contextlib.suppress(OSError):
                hidden.unlink(missing_ok=True)
        return True

    def _is_silent(self, owner):
        """Whether a process of another machine, which gave signs, gives none now."""
        if owner.get("host") == socket.gethostname() or "signs" not in owner:
            return False
        print(
            f"'{self.path.parent}' is in use by {name_of_owner(owner)}. Looking "
            "whether that still runs ...",
            flush=True,
        )
        return falls_silent(lambda: _owner(self.path), owner)

    def _create(self):
        """Writes the file, with all that is in it, unless there is one."""
        text = json.dumps(this_process() | {"since": now_as_text(), "signs": 0})
        hidden = self.path.with_name(f"{LOCK_FILE}.{secrets.token_hex(4)}")
        try:
            hidden.write_text(text, encoding="utf-8")
            os.link(hidden, self.path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            return self._create_in_place(text)
        finally:
            hidden.unlink(missing_ok=True)
        return True

    def _create_in_place(self, text):
        try:
            with open(self.path, "x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            return False
        return True

    def _break(self, owner):
        """Removes the lock of a process that has ended, and no other."""
        aside = self.path.with_name(f"{LOCK_FILE}.{secrets.token_hex(4)}")
        with contextlib.suppress(FileNotFoundError):  # another broke it just now
            os.replace(self.path, aside)
            if _owner(aside) != owner:  # another did, and has the folder now
                os.replace(aside, self.path)
            aside.unlink(missing_ok=True)

    def _refusal(self, purpose, owner):
        return (
            f"{purpose} must have its folder for itself: two would replace each "
            f"other's files. '{self.path.parent}' is in use by {name_of_owner(owner)}. "
            "Name another folder; or, if that process has ended, remove the file "
            f"'{self.path}'."
        )


def name_of_owner(owner):
    """What messages call the process that has a folder; `owner` is of its file."""
    if not owner:
        return "a process that is not known"
    return "process {process} on {host} since {since}".format_map(
        {"process": "?", "host": "?", "since": "?", **owner}
    )


def _owner(path):
    """Who has a folder; None if nobody has, or the file cannot be read."""
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
    if os.name == "nt":
        return False  # there is no asking that does no harm
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    # The number may be another process' by now.
    return owner.get("started") != _start_of(process)


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
