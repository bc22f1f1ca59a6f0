"""Files behind a URL: fetched once, whole or not at all, kept in a cache folder."""

import contextlib
import hashlib
import math
import re
import urllib.error
import urllib.parse

import keras

from effdet_keras._internal import web
from effdet_keras._internal.remote_path import cache_folder, keras_home
from effdet_keras._internal.web import shown_url
from effdet_keras._internal.whole_files import local_path, replacing
from effdet_keras.errors import InvalidValueError, check_argument, require
from effdet_keras.weights.presets import KERAS_APPLICATIONS

_HEAD = 512  # bytes that tell what a file is
_MB = 1e6
_HEX = "[0-9a-fA-F]"


def download(url, *, sha256=None, md5=None, verbose=1):
    """Fetches the file behind a URL, or finds it in the cache folder."""
    for name, digest, length in (("sha256", sha256, 64), ("md5", md5, 32)):
        is_digest = digest is None or re.fullmatch(_HEX * length, str(digest))
        check_argument(is_digest, name, digest, f"{length} hexadecimal digits")
    scheme = urllib.parse.urlsplit(url).scheme.lower()
    if scheme == "file":
        path = local_path(url, "The file behind a URL")
        if not path.exists():
            raise FileNotFoundError(f"There is no '{path}'. Received: url='{url}'")
        check_digest(path, sha256=sha256, md5=md5)
        return path
    if scheme not in ("http", "https"):
        raise InvalidValueError(
            "Expected a URL that begins with http://, https:// or file://."
            f"{_cure_of_bucket(url)} Received: url='{shown_url(url)}'"
        )
    path = cache_path(url)
    if _is_cached(path, sha256, md5):
        return path
    with contextlib.ExitStack() as stack:
        try:
            partial = stack.enter_context(replacing(path))
        except OSError as error:
            raise OSError(
                f"The cache folder '{path.parent}' cannot be written to "
                f"({error.strerror}). Set `EFFDET_KERAS_CACHE`, or `KERAS_HOME`, to a "
                "folder that can be."
            ) from error
        _fetch(url, partial, verbose)
        try:
            check_digest(partial, sha256=sha256, md5=md5)
        except ValueError as error:
            raise InvalidValueError(
                f"{error}. It was fetched from {shown_url(url)} and is removed: the "
                "file there has changed, or the digest is one of another file."
            ) from None
    return path


def cache_path(url):
    """Where `download` keeps the file of an http(s) URL."""
    parts = urllib.parse.urlsplit(url)
    name = urllib.parse.unquote(parts.path).rpartition("/")[2]
    name = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)[-100:] or "weights"
    if url == KERAS_APPLICATIONS + name:  # where Keras keeps it, by its own name
        return keras_home() / "models" / name
    digest = hashlib.sha256(url.encode()).hexdigest()
    return cache_folder() / f"{digest[:10]}-{name}"


def check_digest(path, *, sha256=None, md5=None):
    """Raises a ValueError if a file has another digest than the one given."""
    for name, expected in (("sha256", sha256), ("md5", md5)):
        if expected is None:
            continue
        with open(path, "rb") as file:
            actual = hashlib.file_digest(file, name).hexdigest()
        rule = f"The file '{path}' has another {name} digest than expected: {actual}"
        require(actual == expected.lower(), rule, **{name: expected})


def _is_cached(path, sha256, md5):
    """Whether the file is there, and what it should be: else it is fetched again."""
    try:
        check_digest(path, sha256=sha256, md5=md5)
    except (FileNotFoundError, ValueError):
        return False
    return path.is_file() and _what_it_is_instead(path) is None


def _what_it_is_instead(path):
    """What a file is that no weights can be, or None: servers send pages, too."""
    with open(path, "rb") as file:
        head = file.read(_HEAD).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not head:
        return "an empty file"
    if web.is_page(head) or head.startswith((b"<!doctype", b"<?xml")):
        return "a page for a browser"
    if head.startswith((b"{", b"[")):
        return "a message in JSON"
    return None


def _fetch(url, path, verbose):
    if verbose:
        print(f"Downloading {shown_url(url)}", flush=True)
    try:
        with web.answer(url) as response, open(path, "wb") as file:
            web.copy_body(response, file, _progress(verbose))
    except urllib.error.HTTPError as error:
        raise OSError(
            f"The server has no file for us at {shown_url(url)}: it answered with "
            f"status {error.code} ({error.reason}). Check the address."
        ) from None
    except web.NotTheFileError as error:
        raise ConnectionError(
            f"{shown_url(url)} did not give the whole file: {error}. Nothing was kept: "
            "try again, or fetch the file by other means and give its path."
        ) from None
    except web.BROKEN as error:
        # Not chained: the reason may quote the URL, with its secrets.
        own = str(error) if type(error) is ConnectionError else type(error).__name__
        reason = getattr(error, "reason", None) or own
        raise ConnectionError(
            f"No connection to {shown_url(url)}, or it broke off ({reason}). Try "
            "again, or fetch the file by other means and give its path."
        ) from None
    instead = _what_it_is_instead(path)
    if instead is not None:
        raise OSError(
            f"{shown_url(url)} gave {instead}, not a file of weights, and nothing was "
            "kept. Open the address in a browser: it may need a login, or be that of "
            "a page about the file."
        )


def _progress(verbose):
    """A function that shows how many bytes there are, of how many."""
    bars = []

    def tell(received, length):
        if not bars:
            target = None if length is None else math.ceil(length / _MB)
            options = {"interval": 0.2, "unit_name": "MB"}
            bars.append(keras.utils.Progbar(target, verbose=int(verbose), **options))
        if received == length:
            bars[0].update(math.ceil(received / _MB), finalize=True)
        else:
            bars[0].update(int(received / _MB), finalize=False)

    return tell


def _cure_of_bucket(url):
    """How to get at an object of Google Storage, which is not read from here."""
    if not url.startswith("gs://"):
        return ""
    return (
        " Copy what is in the bucket to this machine (`gsutil cp -r`); a public file "
        f"is also at https://storage.googleapis.com/{url.removeprefix('gs://')}."
    )
