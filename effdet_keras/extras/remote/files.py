"""Reads, lists, fetches and writes files at addresses, with retries after failures."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import shutil
import time
import urllib.error
from typing import NamedTuple

from effdet_keras._internal import web
from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras._internal.whole_files import atomic_write, shown_address
from effdet_keras.errors import (
    EffDetError,
    InvalidValueError,
    MissingPackageError,
    first_line,
)
from effdet_keras.extras.remote.hugging_face import (
    hub_file,
    hub_files,
    parse_hub_address,
)

fsspec = OptionalModule("fsspec", install="effdet-keras[remote]")
_PAUSES = (0.5, 1.0, 2.0)  # seconds before each retry
_HEAD = 512  # bytes that show what a file is
_BROKEN = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses that may pass
# The names under which fsspec's storages give the version of a file.
_VERSION_KEYS = """
    size etag md5hash crc32c generation version_id created mtime lastmodified
    last_modified updated
""".split()
# These stores have no folders. They would create a bucket if its name is misspelled.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci", "oss", "r2"}
_FINAL = (EffDetError, FileNotFoundError, PermissionError, ValueError, TypeError)


class Entry(NamedTuple):
    """An entry of a remote folder; `version` changes when the file is replaced."""

    is_folder: bool
    version: str


def read_bytes(address):
    return _tried(address, "read", lambda store, path: store.read(path))


def find_entry(address):
    """Returns the `Entry` of a file or folder; None if there is nothing."""
    return _tried(address, "looked at", lambda store, path: store.entry(path))


def list_folder(address):
    """Returns a dict from name to `Entry` of a folder; empty if there is none."""
    return _tried(address, "listed", lambda store, path: store.entries(path))


def is_repository(address):
    """Returns whether an address is a whole dataset of the hub, which has no parent."""
    if _scheme(address) != "hf" or "/datasets/" not in address:
        return False
    where = parse_hub_address(address)
    return where.repo_type == "dataset" and not where.path


def can_list(address):
    """Returns whether folders at an address can be listed; web servers do not."""
    return _scheme(address) not in ("http", "https")


def fetch(address, path):
    """Copies a file to this machine; `path` is only replaced by a complete file."""
    with atomic_write(path) as partial:
        _tried(address, "fetched", lambda store, there: store.fetch(there, partial))


def kept_copy(address):
    """Returns the file in the cache of the hub's library; None for other addresses."""
    return hub_file(address) if _scheme(address) == "hf" else None


def put(path, address):
    """Copies a local file to an address; returns its new `Entry`."""

    def put_once(store, there):
        store.put(path, there)
        folder, _, name = there.rpartition("/")
        return store.entries(folder)[name]  # the same version text as in listings

    return _tried(address, "written", put_once)


def remove(address):
    """Removes a file; does nothing if there is none."""
    _tried(address, "removed", lambda store, path: store.remove(path))


def _tried(address, done, operation):
    """Returns what `operation(store, path)` returns, after retries if necessary."""
    store, path = _store(address)
    for pause in (*_PAUSES, None):
        try:
            return operation(store, path)
        except FileNotFoundError as error:
            if isinstance(store, _Hub):
                raise
            raise FileNotFoundError(
                f"There is no file or folder '{shown_address(address)}'"
            ) from error
        except _FINAL:
            raise
        except Exception as error:  # each storage has its own, not always an OSError
            if pause is None or isinstance(store, _Hub):  # the hub's library retries
                raise OSError(
                    f"'{shown_address(address)}' cannot be {done}: {first_line(error)}"
                ) from error
        time.sleep(pause)
    raise AssertionError("the last try returns or raises")


def _store(address):
    """Returns the storage that holds an address, and the path to use there."""
    if _scheme(address) == "hf":
        return _Hub(), address
    if not can_list(address):
        return _Web(), address
    module = fsspec.require(f"'{shown_address(address)}'")
    try:
        # fsspec itself configures logins, including anonymous ones for public buckets.
        files, path = module.core.url_to_fs(address)
    except ImportError as error:
        raise MissingPackageError(
            f"'{shown_address(address)}' needs a package that is not installed: "
            f'pip install "effdet-keras[remote]" ({first_line(error)})'
        ) from error
    except ValueError as error:  # an unknown scheme
        raise InvalidValueError(
            f"'{shown_address(address)}' is neither a path of this machine nor an "
            f"address that can be opened: {first_line(error)}"
        ) from error
    return _Storage(files), path


def _scheme(address):
    return address.partition("://")[0].lower()


class _Storage(NamedTuple):
    """A storage that fsspec supports."""

    files: object

    def read(self, path):
        return self.files.cat_file(path)

    def entry(self, path):
        self.files.invalidate_cache()  # another process may have replaced it
        try:
            return _entry_of(self.files.info(path))
        except FileNotFoundError:
            return None

    def entries(self, path):
        self.files.invalidate_cache()
        try:
            found = self.files.ls(path, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        # Some storages keep an empty object with the name of the folder.
        inner = [x for x in found if x["name"].strip("/") != path.strip("/")]
        return {x["name"].rstrip("/").rpartition("/")[2]: _entry_of(x) for x in inner}

    def fetch(self, path, target):
        self.files.get_file(path, os.fspath(target))
        size = os.path.getsize(target)
        _check_size(size, size, self.files.info(path))

    def put(self, path, target):
        names = self.files.protocol
        if _OBJECT_STORES.isdisjoint([names] if isinstance(names, str) else names):
            self.files.makedirs(target.rpartition("/")[0], exist_ok=True)
        before = os.path.getsize(path)
        self.files.put_file(os.fspath(path), target)
        self.files.invalidate_cache()
        # A log may have grown, or a checkpoint been replaced, while it was copied.
        least, most = before, max(before, os.path.getsize(path))
        _check_size(least, most, self.files.info(target))

    def remove(self, path):
        with contextlib.suppress(FileNotFoundError):
            self.files.rm_file(path)


def _check_size(least, most, info):
    """Raises if a storage reports a size that the copied file did not have."""
    if isinstance(info.get("size"), int) and not least <= info["size"] <= most:
        raise ConnectionError(
            f"the file has {info['size']:,} bytes in its storage, but {least:,} were "
            "copied"
        )


def _entry_of(info):
    known = {key.lower(): str(value) for key, value in info.items()}
    version = {key: known[key] for key in _VERSION_KEYS if key in known}
    return Entry(info.get("type") == "directory", json.dumps(version))


class _Web:
    """Files of web servers, which can be read but not listed."""

    def read(self, url):
        file = io.BytesIO()
        self._copy(url, file)
        return file.getvalue()

    def entry(self, url):
        try:
            with _headers_alone(url) as response:
                headers = response.headers
        except FileNotFoundError:
            return None
        names = ("ETag", "Last-Modified")
        version = [headers[name] for name in names if headers[name] is not None]
        # If a server gives no version, each response may be another file.
        version = version or [secrets.token_hex()]
        return Entry(False, json.dumps([web.length_of(response), *version]))

    def fetch(self, url, target):
        with open(target, "w+b") as file:
            self._copy(url, file)

    def entries(self, url):
        raise InvalidValueError(
            "Folders on web servers cannot be read, because web servers do not list "
            f"their files. Received: '{shown_address(url)}'. Name the annotation file "
            "and the folder of its images, as in "
            'from_coco("https://.../instances.json", "https://.../images"); datasets '
            "in formats other than COCO json and CSV must be copied to this machine."
        )

    def put(self, path, url):
        raise InvalidValueError(
            "Files on web servers can be read, but not written. Received: "
            f"'{shown_address(url)}'"
        )

    def _copy(self, url, file):
        with _answer(url) as response:
            web.copy_body(response, file)
        file.seek(0)
        if web.is_page(file.read(_HEAD)):
            raise PermissionError(
                f"'{shown_address(url)}': the server sent a web page instead of the "
                "file: it may need a login"
            )


def _headers_alone(url):
    """Returns a response to a HEAD request, or to GET if the server rejects HEAD.

    The signature in an address may only be valid for GET, and small servers do not
    support HEAD.
    """
    try:
        return _answer(url, method="HEAD")
    except PermissionError:
        return _answer(url)


def _answer(url, method="GET"):
    try:
        return web.answer(url, method)
    except urllib.error.HTTPError as error:
        reason = f"{error.code} {error.reason}"
        if error.code in (404, 410):
            raise FileNotFoundError(reason) from error
        if error.code in _BROKEN:
            raise ConnectionError(reason) from error
        raise PermissionError(
            f"'{shown_address(url)}' cannot be opened: {reason}"
        ) from error


class _Hub:
    """Repositories of the Hugging Face Hub, which can only be read."""

    def read(self, address):
        return hub_file(address).read_bytes()

    def entry(self, address):
        inner = parse_hub_address(address).path
        names, commit = hub_files(address)
        if inner in names:
            return Entry(False, commit)
        is_folder = not inner or any(name.startswith(f"{inner}/") for name in names)
        return Entry(True, commit) if is_folder else None

    def entries(self, address):
        inner = parse_hub_address(address).path
        names, commit = hub_files(address)
        start = f"{inner}/" if inner else ""
        below = [name.removeprefix(start) for name in names if name.startswith(start)]
        return {name.partition("/")[0]: Entry("/" in name, commit) for name in below}

    def fetch(self, address, target):
        shutil.copyfile(hub_file(address), target)

    def put(self, path, address):
        raise InvalidValueError(
            "Single files cannot be written to a repository of the Hugging Face Hub: "
            "`model.push_to_hub` and `effdet-keras share` push a whole model in one "
            f"commit. Received: '{address}'"
        )
