"""`RemotePath`: an address with the methods of `pathlib`, and its copy in the cache."""

import contextlib
import fnmatch
import hashlib
import os
import pathlib
import posixpath
import re

from effdet_keras._internal.remote_path import cache_folder, path_of
from effdet_keras._internal.whole_files import is_remote
from effdet_keras.extras.remote import files as remote_files


class RemotePath(os.PathLike):
    """An address, with the methods of `pathlib.Path` that this package uses."""

    def __init__(self, address, listings=None):
        self._base, _, rest = address.partition("://")
        # The part after a `?` belongs to the address of a file, not to its name.
        rest, mark, query = rest.partition("?")
        self._query = mark + query
        # Two slashes are kept: they may be part of a key, or of an inner address.
        self._path = _without_dots(rest.rstrip("/")) if rest.strip("/") else rest
        self._listings = {} if listings is None else listings

    def __fspath__(self):
        return f"{self._base}://{self._path}{self._query}"

    __str__ = __fspath__

    def __repr__(self):
        return f"RemotePath({str(self)!r})"

    def __eq__(self, other):
        return isinstance(other, RemotePath) and str(self) == str(other)

    def __lt__(self, other):
        return self.parts < other.parts

    def __hash__(self):
        return hash(str(self))

    def __truediv__(self, name):
        name = os.fspath(name).replace(os.sep, "/")
        if is_remote(name):
            return path_of(name)
        name = re.sub("/+", "/", name).strip("/")
        return self._made(f"{self._path.rstrip('/')}/{name}" if self._path else name)

    def _made(self, path):
        return RemotePath(f"{self._base}://{path}", self._listings)

    @property
    def parts(self):
        return (f"{self._base}://", *self._path.split("/"))

    @property
    def name(self):
        return posixpath.basename(self._path)

    stem = property(lambda self: pathlib.PurePosixPath(self.name).stem)
    suffix = property(lambda self: pathlib.PurePosixPath(self.name).suffix)

    @property
    def parent(self):
        return self._made(posixpath.dirname(self._path) or self._path)

    def with_name(self, name):
        return self.parent / name

    def with_suffix(self, suffix):
        return self.parent / (self.stem + suffix)

    def with_parts(self, parts):
        """Returns the path of `parts`, the first of which is the scheme."""
        return self._made("/".join(parts[1:]))

    def exists(self):
        return self._entry() is not None

    def is_file(self):
        entry = self._entry()
        return entry is not None and not entry.is_folder

    @property
    def is_listed(self):
        """Whether one listing shows all that is in a folder."""
        return remote_files.can_list(str(self))

    def is_dir(self):
        entry = self._entry() if self.is_listed else None
        return entry is not None and entry.is_folder

    def version(self):
        """Returns text that changes when the file is replaced; "" if there is none."""
        entry = self._entry()
        return "" if entry is None else entry.version

    def iterdir(self):
        return iter([self / name for name in self._entries()])

    def glob(self, pattern):
        first, _, rest = pattern.partition("/")
        for name, entry in self._entries().items():
            is_right_kind = entry.is_folder or "/" not in pattern
            if is_right_kind and fnmatch.fnmatchcase(name, first):
                inner = self / name
                yield from inner.glob(rest) if rest else [inner]

    def rglob(self, pattern):
        yield from self.glob(pattern)
        for name, entry in self._entries().items():
            if entry.is_folder:
                yield from (self / name).rglob(pattern)

    def read_bytes(self):
        return remote_files.read_bytes(str(self))

    def read_text(self, encoding="utf-8", errors="strict"):
        return self.read_bytes().decode(encoding, errors)

    def unlink(self, missing_ok=True):
        remote_files.remove(str(self))

    def fetched(self):
        """Returns the path of a local copy of the file; see `local_copy`."""
        entry = remote_files.find_entry(str(self))
        if entry is None or entry.is_folder:
            raise FileNotFoundError(f"There is no file '{self}'")
        kept = remote_files.kept_copy(str(self))
        if kept is not None:
            return kept
        folder, owner = cache_folder() / "remote", _digest(str(self))
        name = re.sub(r"[^\w.-]", "_", self.name, flags=re.ASCII)[-100:]
        target = folder / f"{owner}-{_digest(entry.version)}-{name}"
        if not target.is_file():
            remote_files.fetch(str(self), target)
            for path in folder.glob(f"{owner}-*"):
                if path != target:
                    with contextlib.suppress(OSError):  # on Windows, if it is open
                        path.unlink()
        return target

    def _entry(self):
        key = str(self)
        if not self.is_listed:
            if key not in self._listings:
                self._listings[key] = remote_files.find_entry(key)
            return self._listings[key]
        is_bucket = self.parent == self or self.parent.parent == self.parent
        # Buckets may not be listable, and no listing has a folder with an empty name.
        if is_bucket or remote_files.is_repository(key) or "//" in self._path:
            return remote_files.find_entry(key)
        return self.parent._entries().get(self.name)

    def _entries(self):
        key = f"{self}/"
        if key not in self._listings:
            found = remote_files.list_folder(str(self))
            self._listings[key] = {name: found[name] for name in sorted(found)}
        return self._listings[key]


def _without_dots(path):
    """Removes the parts "." and ".." of a path; its first part always stays."""
    parts = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1] or parts
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:10]
