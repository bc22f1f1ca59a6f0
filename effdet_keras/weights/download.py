"""Files behind a URL: fetched once, whole or not at all, kept in a cache folder."""

import hashlib
import math
import re
import urllib.error
import urllib.parse

import keras

from effdet_keras._internal import web
from effdet_keras._internal.remote_path import cache_folder
from effdet_keras._internal.whole_files import replacing, shown_address
from effdet_keras.errors import require

_HEAD = 512  # bytes that tell what a file is
_MB = 1e6


def download(url, *, sha256=None, md5=None, verbose=1):
    """Fetches the file behind an http(s) URL, or finds it in the cache folder."""
    path = cache_path(url)
    if not path.is_file():
        with replacing(path) as partial:
            _fetch(url, partial, verbose)
            check_digest(partial, sha256=sha256, md5=md5)
    return path


def cache_path(url):
    """Where `download` keeps the file of a URL."""
    parts = urllib.parse.urlsplit(url)
    name = urllib.parse.unquote(parts.path).rpartition("/")[2]
    name = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)[-100:] or "weights"
    digest = hashlib.sha256(url.encode()).hexdigest()
    return cache_folder() / f"{digest[:10]}-{name}"


def check_digest(path, *, sha256=None, md5=None):
    for name, expected in (("sha256", sha256), ("md5", md5)):
        if expected is None:
            continue
        with open(path, "rb") as file:
            actual = hashlib.file_digest(file, name).hexdigest()
        rule = f"The file '{path}' has another {name} digest than expected: {actual}"
        require(actual == expected.lower(), rule, **{name: expected})


def _fetch(url, path, verbose):
    if verbose:
        print(f"Downloading {shown_address(url)}", flush=True)
    try:
        with web.answer(url) as response, open(path, "wb") as file:
            web.copy_body(response, file, _progress(verbose))
    except web.BROKEN as error:
        # Not chained, and of the others only the reason: they may quote the URL, with
        # its secrets.
        is_answer = isinstance(error, urllib.error.HTTPError)
        is_ours = is_answer or isinstance(error, web.NotTheFileError)
        reason = error if is_ours else getattr(error, "reason", type(error).__name__)
        raise (OSError if is_answer else ConnectionError)(
            f"No file from {shown_address(url)}: {reason}. Check the address, try "
            "again, or fetch the file by other means and give its path."
        ) from None
    with open(path, "rb") as file:
        if web.is_page(file.read(_HEAD)):
            raise OSError(
                f"{shown_address(url)} gave a page for a browser, not a file of "
                "weights. Open the address in one: it may need a login."
            )


def _progress(verbose):
    bar = keras.utils.Progbar(None, verbose=int(verbose), interval=0.2, unit_name="MB")

    def tell(received, length):
        bar.target = None if length is None else math.ceil(length / _MB)
        is_end = received == length
        bar.update(math.ceil(received / _MB), finalize=is_end)

    return tell
