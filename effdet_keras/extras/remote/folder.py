"""`RemoteFolder`: a local folder to write to, which is copied to an address.

Files are written to a folder of this machine, as always. A thread copies each complete
file to the address. It copies the oldest files first, so that no file there refers to a
file that is not there yet. In the other direction, files at the address are fetched to
this machine when the folder is opened.
"""

import contextlib
import hashlib
import json
import re
import sys
import threading

from effdet_keras._internal.folder_lock import FolderLock
from effdet_keras._internal.remote_path import cache_folder
from effdet_keras._internal.whole_files import atomic_write, shown_address
from effdet_keras.errors import InvalidStateError, first_line
from effdet_keras.extras.remote import files as remote_files

_LOOK = 10.0  # seconds between two checks for files to copy


class RemoteFolder:
    """A folder at an address, with a copy in the cache folder, at `path`."""

    def __init__(self, address, is_ours, *, fetches=True):
        self.address = address = address.rstrip("/")
        self.name = shown_address(address)
        digest = hashlib.sha256(address.encode()).hexdigest()[:10]
        last = re.sub(r"[^\w.-]", "_", self.name.rpartition("/")[2], flags=re.ASCII)
        home = cache_folder() / "remote_folders" / f"{digest}-{last}"
        self.path = home / "files"
        self.others = ()  # names of files there that are not ours
        self._notes = home / "copied.json"
        self._is_ours = is_ours
        self._lock = FolderLock(self.path)
        self._remote_lock = FolderLock(address)
        self._stopped = threading.Event()
        self._thread = None
        self._copied = {}  # for each file, its state here and its version there
        if fetches:
            self.update()

    def update(self):
        """Fetches new files from the address, and removes files that are gone there."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self._lock.is_held_by_another():  # that process is copying files there
            return
        self._copied = self._read_notes()
        there = self._files_there()
        for name, entry in there.items():
            path, known = self.path / name, self._copied.get(name)
            if known is None or known["there"] != entry.version or not path.is_file():
                remote_files.fetch(self._address_of(name), path)
                self._note(name, _state(path), entry)
        for name in set(self._copied) - set(there):  # removed there
            (self.path / name).unlink(missing_ok=True)
            self._note(name)

    def acquire(self, purpose):
        """Locks the folder, here and at the address, and starts to copy."""
        self._stop()
        self._lock.acquire(purpose)
        try:
            self._remote_lock.acquire(purpose)
            self.update()
        except BaseException:
            self._remote_lock.release()
            self._lock.release()
            raise
        print(
            f"Files for '{self.name}' are first written to '{self.path}': each file "
            "is copied to the address when it is complete.",
            flush=True,
        )
        self._stopped.clear()
        self._thread = threading.Thread(target=self._copy_on, daemon=True)
        self._thread.start()

    def check(self):
        """Raises RuntimeError if another process has taken over the folder."""
        self._lock.check()
        self._remote_lock.check()

    def release(self):
        """Copies the remaining files, and releases the locks."""
        if self._thread is None:
            return
        is_failing = sys.exc_info()[0] is not None
        self._stop()
        try:
            self._copy_all()
        except InvalidStateError:
            if not is_failing:
                raise
        except Exception as error:  # each storage has its own
            text = (
                f"Not all files could be copied to '{self.name}': "
                f"{first_line(error)}. They are complete in '{self.path}', and are "
                "copied when the run is resumed on this machine; or copy them by "
                "hand."
            )
            if not is_failing:
                raise OSError(text) from error
            print(f"\n{text}", file=sys.stderr, flush=True)
        finally:
            self._remote_lock.release()
            self._lock.release()

    def _stop(self):
        if self._thread is not None:
            self._stopped.set()
            self._thread.join()
            self._thread = None

    def _copy_on(self):
        """Copies changes every `_LOOK` seconds until stopped; prints one error."""
        is_told = False
        while not self._stopped.wait(_LOOK):
            try:
                self._copy_all()
            except InvalidStateError:  # `check` will raise it again
                return
            except Exception as error:  # each storage has its own
                if not is_told:
                    print(
                        "\n"
                        f"The files of '{self.name}' cannot be copied: "
                        f"{first_line(error)}. They are complete in '{self.path}', "
                        "and copying is tried again.",
                        file=sys.stderr,
                        flush=True,
                    )
                is_told = True

    def _copy_all(self):
        """Copies changed files, the oldest first; removes there what is gone here."""
        self.check()
        here = self._files_here()
        for name in sorted(here, key=lambda name: here[name]["time"]):
            known = self._copied.get(name)
            path = self.path / name
            is_new = known is None or known["here"] != here[name]
            if is_new and path.exists():
                entry = remote_files.put(path, self._address_of(name))
                self._note(name, here[name], entry)
        for name in set(self._copied) - set(here):
            remote_files.remove(self._address_of(name))
            self._note(name)

    def _address_of(self, name):
        return f"{self.address}/{name}"

    def _files_here(self):
        found = {}
        for path in self.path.rglob("*"):
            name = path.relative_to(self.path)
            is_hidden = any(part.startswith(".") for part in name.parts)
            if is_hidden or not self._is_ours(name.parts[0]):
                continue
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    found[name.as_posix()] = _state(path)
        return found

    def _files_there(self):
        entries = remote_files.list_folder(self.address)
        entries = {n: entry for n, entry in entries.items() if not n.startswith(".")}
        self.others = tuple(name for name in entries if not self._is_ours(name))
        found = {}
        for name in set(entries).difference(self.others):
            found |= _files_below(self.address, name, entries[name])
        return found

    def _note(self, name, here=None, entry=None):
        """Records the state of a file here and there, or that it is gone."""
        self._copied.pop(name, None)
        if entry is not None:
            self._copied[name] = {"here": here, "there": entry.version}
        with atomic_write(self._notes) as partial:
            partial.write_text(json.dumps(self._copied), encoding="utf-8")

    def _read_notes(self):
        try:
            return json.loads(self._notes.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}


def _files_below(address, name, entry):
    if not entry.is_folder:
        return {name: entry}
    inner_address, found = f"{address}/{name}", {}
    for inner, inner_entry in remote_files.list_folder(inner_address).items():
        if not inner.startswith("."):
            below = _files_below(inner_address, inner, inner_entry)
            found |= {f"{name}/{path}": value for path, value in below.items()}
    return found


def _state(path):
    """Returns the state of a file, which changes when the file does."""
    status = path.stat()
    return {"time": status.st_mtime_ns, "size": status.st_size}
