"""One writer at a time in a folder: a file in it says who that is."""

import contextlib
import datetime
import json
import os
import pathlib
import secrets
import socket

from effdet_keras.errors import InvalidStateError

LOCK_FILE = ".in_use.json"
_ATTEMPTS = 3  # after one, the lock of a process that has ended is gone


class FolderLock:
    """Keeps other processes out of a folder, from `acquire` to `release`.

    A process that has ended holds nothing any more: its lock is taken over, if it ran
    on this machine. Of another machine nobody knows, so that its lock stays until
    somebody removes the file. A process never locks itself out: who is stopped by an
    error in a notebook begins again.

    Args:
        folder: path of a folder that is there.

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

    def acquire(self, purpose):
        """Takes the folder.

        Args:
            purpose: string, what the folder is taken for, to begin a message with.

        Raises:
            RuntimeError: If a process has it that runs, or may run; says which, and
                how to break its lock.
            OSError: If the folder cannot be written to.
        """
        for _ in range(_ATTEMPTS):
            if self._create():
                return
            owner = _owner(self.path)
            if owner is not None and _is_this_process(owner):
                return
            if owner is not None and _has_ended(owner):
                self._break(owner)
            elif self.path.exists():
                break
        raise InvalidStateError(self._refusal(purpose, _owner(self.path)))

    def release(self):
        """Gives the folder back; nothing happens where another process has it."""
        owner = _owner(self.path)
        if owner is not None and _is_this_process(owner):
            self.path.unlink(missing_ok=True)

    def _create(self):
        """Writes the file, with all that is in it, unless there is one."""
        text = json.dumps(_this_process() | {"since": _now()})
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
        who = "a process that is not known"
        if owner is not None:
            who = "process {process} on {host} since {since}".format_map(
                {"process": "?", "host": "?", "since": "?", **owner}
            )
        return (
            f"{purpose} must have its folder for itself: two would replace each "
            f"other's files. '{self.path.parent}' is in use by {who}. Name another "
            f"folder; or, if that process has ended, remove the file '{self.path}'."
        )


def _owner(path):
    """Who has a folder; None if nobody has, or the file cannot be read."""
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return owner if isinstance(owner, dict) else None


def _this_process():
    process = os.getpid()
    return {
        "process": process,
        "host": socket.gethostname(),
        "started": _start_of(process),
    }


def _is_this_process(owner):
    return all(owner.get(name) == value for name, value in _this_process().items())


def _has_ended(owner):
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


def _now():
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")
