"""`RemoteFolder`: a folder of this machine to write into, copied to an address.

What is written goes to a folder of this machine, as always. A thread copies each file
to the address when it is complete, the oldest first, so that no file there names one
that is not there yet. In the other direction, what is at the address comes to this
machine when the folder is opened.
"""

import contextlib
import hashlib
import json
import math
import re
import secrets
import sys
import threading
import time

from effdet_keras._internal.folder_lock import (
    LOCK_FILE,
    FolderLock,
    Lock,
    has_ended,
    is_this_process,
    now_as_text,
    this_process,
)
from effdet_keras._internal.remote_path import cache_folder
from effdet_keras._internal.whole_files import replacing, shown_address
from effdet_keras.errors import InvalidStateError, first_line
from effdet_keras.extras.remote import files as remote_files

_LOOK = 1.0  # seconds between two looks for files to copy
_GROWING = 30.0  # seconds between two copies of a file that is written on and on
_AGAIN = 20.0  # seconds until another try, after one has failed
_LAST_TRIES = 5  # at the end, before files stay here alone
_SETTLE = 1.0  # seconds in which two that take a folder at once see each other
_active = {}  # `RemoteFolder` that copies, by its folder of this machine


class RemoteFolder:
    """A folder at an address, and `path` in the cache folder, which stands for it."""

    def __init__(self, address, is_ours):
        self.address = address = address.rstrip("/")
        self.name = shown_address(address)
        digest = hashlib.sha256(address.encode()).hexdigest()[:10]
        last = re.sub(r"[^\w.-]", "_", self.name.rpartition("/")[2], flags=re.ASCII)
        home = cache_folder() / "remote_folders" / f"{digest}-{last}"
        self.path = home / "files"
        self.others = ()
        self._notes = home / "copied.json"
        self._is_ours = is_ours
        self._lock = FolderLock(self.path)
        self._remote_lock = _RemoteLock(address)
        self._stopped = threading.Event()
        self._thread = None
        self._copied = {}  # of each file, what it was here and there
        self._copied_at = {}  # of each file, when this process copied it
        self._failure = None  # of the last try
        self.update()

    def update(self):
        """Fetches what is at the address and not here."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self._lock.is_held_by_another():  # which copies to there just now
            return
        self._copied = self._read_notes()
        there = self._files_there()
        for name, entry in there.items():
            path, known = self.path / name, self._copied.get(name)
            if known is None or known["there"] != entry.version or not path.is_file():
                remote_files.fetch(remote_files.joined(self.address, name), path)
                self._note(name, _state(path), entry)
        for name in set(self._copied) - set(there):  # removed there
            (self.path / name).unlink(missing_ok=True)
            del self._copied[name]
        self._write_notes()

    def acquire(self, purpose):
        """Takes the folder, here and at the address, and begins to copy."""
        previous = _active.pop(self.path, None)
        if previous is not None:  # of a cell that an error stopped
            previous._stop()
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock.acquire(purpose)
        try:
            self._remote_lock.acquire(purpose)
            self.update()
        except BaseException:
            self._lock.release()
            raise
        print(
            f"'{self.name}' is kept in '{self.path}' meanwhile: each file is copied to "
            "there when it is complete.",
            flush=True,
        )
        _active[self.path] = self
        self._failure = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._copy_on, daemon=True)
        self._thread.start()

    def check(self):
        """Raises RuntimeError if another process has taken the folder meanwhile."""
        self._lock.check()
        self._remote_lock.check()

    def release(self):
        """Copies what is left, and gives the folder back."""
        if self._thread is None:
            return
        is_failing = sys.exc_info()[0] is not None
        _active.pop(self.path, None)
        self._stop()
        try:
            self.check()
            self._copy_the_rest()
        except (OSError, InvalidStateError) as error:
            if not is_failing:
                raise
            print(f"\n{error}", file=sys.stderr, flush=True)
        finally:
            self._remote_lock.release()
            self._lock.release()

    def _stop(self):
        self._stopped.set()
        self._thread.join()
        self._thread = None

    def _copy_on(self):
        pause = _LOOK
        while not self._stopped.wait(pause):
            if self._remote_lock.is_lost:
                return  # `check` tells of it
            try:
                self._copy_all()
            except Exception as error:  # of each storage its own
                self._tell_failure(error)
                pause = _AGAIN
            else:
                self._tell_success()
                pause = _LOOK

    def _tell_failure(self, error):
        if self._failure is None:
            print(
                f"\nThe files of '{self.name}' cannot be copied: {first_line(error)}. "
                f"They are whole in '{self.path}'; it is tried again.",
                file=sys.stderr,
                flush=True,
            )
        self._failure = error

    def _tell_success(self):
        if self._failure is not None:
            print(f"\nThe files of '{self.name}' are copied again.", flush=True)
        self._failure = None

    def _copy_the_rest(self):
        for attempt in range(_LAST_TRIES):
            if attempt:
                time.sleep(_AGAIN * attempt / _LAST_TRIES)
            try:
                self._copy_all(is_last=True)
                return
            except Exception as error:
                failure = error
        raise OSError(
            f"Not all files could be copied to '{self.name}': {first_line(failure)}. "
            f"They are whole in '{self.path}', and are copied when the run goes on "
            "from this machine; or copy them by hand."
        ) from failure

    def _copy_all(self, is_last=False):
        """Copies what changed, the oldest first; removes there what is gone here."""
        here = self._files_here()
        for name in sorted(here, key=lambda name: here[name]["time"]):
            known, now = self._copied.get(name), here[name]
            if known is not None and known["here"] == now:
                continue
            is_growing = known is not None and known["here"]["file"] == now["file"]
            since = time.monotonic() - self._copied_at.get(name, -math.inf)
            if is_growing and not is_last and since < _GROWING:
                continue
            self._copy(name, now)
        for name in set(self._copied) - set(here):
            remote_files.remove(remote_files.joined(self.address, name))
            del self._copied[name]
            self._write_notes()

    def _copy(self, name, now):
        path = self.path / name
        try:
            entry = remote_files.put(path, remote_files.joined(self.address, name))
        except FileNotFoundError:
            if path.exists():
                raise
            return  # removed meanwhile
        self._note(name, now, entry)
        self._write_notes()

    def _files_here(self):
        names = [p.relative_to(self.path) for p in self.path.rglob("*")]
        found = {}
        for name in names:
            is_hidden = any(part.startswith(".") for part in name.parts)
            if is_hidden or not self._is_ours(name.parts[0]):
                continue
            with contextlib.suppress(FileNotFoundError):
                if (self.path / name).is_file():
                    found[name.as_posix()] = _state(self.path / name)
        return found

    def _files_there(self):
        found, others = {}, []
        for name, entry in remote_files.list_folder(self.address).items():
            if name.startswith("."):
                continue
            if self._is_ours(name):
                found |= _files_below(self.address, name, entry)
            else:
                others.append(name)
        self.others = tuple(others)
        return found

    def _note(self, name, here, entry):
        self._copied[name] = {"here": here, "there": entry.version}
        self._copied_at[name] = time.monotonic()

    def _read_notes(self):
        try:
            return json.loads(self._notes.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def _write_notes(self):
        with replacing(self._notes) as partial:
            partial.write_text(json.dumps(self._copied), encoding="utf-8")


def _files_below(address, name, entry):
    if not entry.is_folder:
        return {name: entry}
    found = {}
    inner_address = remote_files.joined(address, name)
    for inner, inner_entry in remote_files.list_folder(inner_address).items():
        if not inner.startswith("."):
            below = _files_below(inner_address, inner, inner_entry)
            found |= {f"{name}/{path}": value for path, value in below.items()}
    return found


def _state(path):
    """What tells that a file is the same: one that is replaced is another file."""
    status = path.stat()
    return {
        "time": status.st_mtime_ns,
        "size": status.st_size,
        "file": status.st_ino,
    }


class _RemoteLock(Lock):
    """Keeps other processes from an address: a file there, which keeps changing."""

    def __init__(self, address):
        cure = ", or wait until that process has ended."
        super().__init__(shown_address(address), cure)
        self._file = remote_files.joined(address, LOCK_FILE)
        self._token = None

    def acquire(self, purpose):
        owner = self._read()
        is_free = owner is None or is_this_process(owner) or has_ended(owner)
        if not (is_free or self._is_silent(owner) or self._read() is None):
            self._refuse(purpose)
        self._token = secrets.token_hex(8)
        own = {"since": now_as_text(), "token": self._token, "signs": 0}
        self._write(this_process() | own)
        time.sleep(_SETTLE)
        if self._is_taken(self._read()):
            self._refuse(purpose)
        self._begin_to_beat()

    def release(self):
        if self._thread is None:
            return
        self._stop_beating()
        with contextlib.suppress(OSError):
            if not self.is_lost and not self._is_taken(self._read()):
                remote_files.remove(self._file)

    def _is_taken(self, owner):
        return owner is None or owner.get("token") != self._token

    def _read(self):
        try:
            owner = json.loads(remote_files.read_bytes(self._file))
        except FileNotFoundError:
            return None
        except ValueError:
            return {}
        return owner if isinstance(owner, dict) else {}

    def _write(self, owner):
        path = cache_folder() / f"lock-{self._token}.json"
        try:
            with replacing(path) as partial:
                partial.write_text(json.dumps(owner), encoding="utf-8")
            remote_files.put(path, self._file)
        finally:
            path.unlink(missing_ok=True)
