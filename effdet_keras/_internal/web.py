"""Requests to web servers, whose files are copied completely or not at all."""

import http.client
import urllib.error
import urllib.parse
import urllib.request

_TIMEOUT = 30.0  # seconds without an answer of the server
_CHUNK = 1 << 18  # bytes between two calls of `tell`
_HEAD = 512  # bytes that show what a file is
_ALLOWED = "%:/?#[]@!$&'()*+,;=~"  # characters in a URL besides letters and digits
_PAGE = (b"<!doctype html", b"<html", b"<head", b"<body")
# Errors of a server that cannot be reached, or that breaks off.
_BROKEN_OFF = (http.client.HTTPException, ConnectionError, TimeoutError)
BROKEN = (urllib.error.URLError, *_BROKEN_OFF)


class NotTheFileError(ConnectionError):
    """Raised if the server did not send the whole file."""


def answer(url, method="GET"):
    """Returns a server's response, which the caller has to close."""
    try:
        request = urllib.request.Request(
            urllib.parse.quote(url, safe=_ALLOWED),
            headers={"User-Agent": "effdet-keras"},
            method=method,
        )
        return urllib.request.urlopen(request, timeout=_TIMEOUT)
    except ValueError as error:  # for an address such as `http://[::1/a`
        raise urllib.error.URLError(str(error)) from None


def copy_body(response, file, tell=lambda received, length: None):
    """Copies the body of a response to a file, and checks that it is complete."""
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
    """Returns the length of the body in bytes; None if the server does not say."""
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdigit() else None


def is_page(head):
    """Returns whether the first bytes of a file are those of an HTML page."""
    head = head[:_HEAD].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return head.startswith(b"<") and any(sign in head for sign in _PAGE)
