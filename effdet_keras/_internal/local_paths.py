"""Paths on this machine, told apart from addresses such as `gs://bucket/folder`."""

import os
import pathlib
import re
import urllib.parse
import urllib.request

from effdet_keras.errors import InvalidTypeError, InvalidValueError

# `pathlib` makes one slash of the two. A single letter is a drive of Windows.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_COPY_COMMANDS = {
    "gs": "gsutil cp -r",
    "s3": "aws s3 cp --recursive",
    "hdfs": "hdfs dfs -cp",
}


def local_path(path, what):
    """The path on this machine that the user named; refuses any other address.

    Python would take `gs://bucket/folder` for a relative path, and make a folder
    `gs:` in the working directory.

    Args:
        path: string or path, or a `file://` URL. `~` is the home folder.
        what: string, the subject of the error's sentence, such as "`path`" or
            "The path of an archive".

    Returns:
        `pathlib.Path`.

    Raises:
        ValueError: If `path` is an address with another scheme, such as `gs://`,
            or a `file://` URL of another machine.
        TypeError: If `path` is not a path.

    Example:
        >>> local_path("file:///tmp/cats.keras", "`path`")
        PosixPath('/tmp/cats.keras')
        >>> local_path("gs://bucket/cats.keras", "`path`")
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: `path` must be on this machine. \
Received: 'gs://bucket/cats.keras'. Use a local folder and copy it \
(`gsutil cp -r SOURCE TARGET`), or mount the bucket as a folder.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidTypeError(
            f"{what} must be a string or a path. "
            f"Received: {path!r} of type {type(path).__name__}"
        )
    text = os.fsdecode(path)
    scheme = _scheme(path, text)
    if scheme is None:
        path = pathlib.Path(text)
        return path.expanduser() if path.parts[:1] == ("~",) else path
    if scheme == "file":
        return _path_of_file_url(text, what)
    copy = _COPY_COMMANDS.get(scheme, "with the tool of that storage")
    if scheme in _COPY_COMMANDS:
        copy = f"`{copy} SOURCE TARGET`"
    raise InvalidValueError(
        f"{what} must be on this machine. Received: '{shown_address(path)}'. Use a "
        f"local folder and copy it ({copy}), or mount the bucket as a folder."
    )


def is_remote(path):
    """Whether a path is an address with a scheme other than `file://`.

    Raises:
        ValueError: If it is one that nothing could open.

    Example:
        >>> is_remote("gs://bucket/cats"), is_remote("file:///cats"), is_remote("cats")
        (True, False, False)
    """
    scheme = _scheme(path, os.fsdecode(path))
    if scheme in (None, "file"):
        return False
    check_address(address_of(path))
    return True


def check_address(address):
    """Raises ValueError if an address has a part that cannot be read, or no host.

    Example:
        >>> check_address("http://[::1")
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: 'http://[::1' is not an address that \
can be opened: Invalid IPv6 URL. It must be like https://example.org:8000/folder/file; \
[ and ] are for the numbers of a host alone, as in http://[::1]/file
    """
    try:
        parts = urllib.parse.urlsplit(address)
        if parts.scheme.lower() in ("http", "https"):
            if not parts.hostname:
                raise InvalidValueError("it names no host")
            parts.port, parts.hostname.encode("idna")  # raise
    except ValueError as error:
        raise InvalidValueError(
            f"'{shown_address(address)}' is not an address that can be opened: "
            f"{error}. It must be like https://example.org:8000/folder/file; [ and ] "
            "are for the numbers of a host alone, as in http://[::1]/file"
        ) from error


def _scheme(path, text):
    match = _ADDRESS.match(text)
    if match is None:
        return None
    # A string has both slashes; of a `pathlib.Path` one is gone.
    is_address = text[match.end() :].startswith("/") or not isinstance(path, str)
    return match[1].lower() if is_address else None


def address_of(path):
    """The text of an address; `pathlib` makes one slash of its two.

    Example:
        >>> address_of(pathlib.PurePosixPath("s3://bucket/cats"))
        's3://bucket/cats'
    """
    text = os.fsdecode(path)
    return text if "://" in text else text.replace(":/", "://", 1)


def shown_address(path):
    """The address, without what may be secret: the login and what follows a `?`.

    Example:
        >>> shown_address("https://me:word@example.org/a.jpg?key=1")
        'https://example.org/a.jpg'
    """
    return re.sub("//[^/]*@", "//", address_of(path).partition("?")[0])


def _path_of_file_url(text, what):
    check_address(text)
    parts = urllib.parse.urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise InvalidValueError(
            f"{what} must be on this machine: file:///folder/name has three slashes. "
            f"Received: '{text}'"
        )
    return pathlib.Path(urllib.request.url2pathname(parts.path))
