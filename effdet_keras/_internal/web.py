"""Files of web servers: asked for in one way, and taken whole or not at all."""

import http.client
import urllib.error
import urllib.parse
import urllib.request

_TIMEOUT = 30.0  # seconds without a sign of the server
_CHUNK = 1 << 18  # bytes between two calls of `tell`
_HEAD = 512  # bytes that tell what a file is
_ALLOWED = "%:/?#[]@!$&'()*+,;=~"  # in a URL, beside letters and digits
_PAGE = (b"<!doctype html", b"<html", b"<head", b"<body")
# What a server that cannot be reached, or that breaks off, raises.
_BROKEN_OFF = (http.client.HTTPException, ConnectionError, TimeoutError)
BROKEN = (urllib.error.URLError, *_BROKEN_OFF)


class NotTheFileError(ConnectionError):
    """What a server sent is not the whole file."""


def answer(url, method="GET"):
    """The answer of a server, to be closed."""
    try:
        request = urllib.request.Request(
            urllib.parse.quote(url, safe=_ALLOWED),
            headers={"User-Agent": "effdet-keras"},
            method=method,
        )
        return urllib.request.urlopen(request, timeout=_TIMEOUT)
    except ValueError as error:  # of an address such as `http://[::1/a`
        raise urllib.error.URLError(str(error)) from None


def copy_body(response, file, tell=lambda received, length: None):
    """Copies the body of an answer to a file, and checks that it is complete."""
    coding = response.headers.get("Content-Encoding", "identity")
    if response.status != 200 or coding != "identity":
        raise NotTheFileError(
            f"it answered with status {response.status} and the encoding '{coding}'; a "
            "whole file is status 200 without one"
        )
    length, received = length_of(response), 0
    while chunk := response.read(_CHUNK):
        file.write(chunk)
        received += len(chunk)
        if received != length:
            tell(received, length)
    tell(received, received)
    if length is not None and received != length:
        raise NotTheFileError(f"the server sent {received} of {length} bytes")


def length_of(response):
    """The bytes of the body, or None where the server does not tell."""
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdigit() else None


def is_page(head):
    """Whether the first bytes of a file are those of a page for a browser."""
    head = head[:_HEAD].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return head.startswith(b"<") and any(sign in head for sign in _PAGE)
