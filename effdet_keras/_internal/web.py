"""Files of web servers: asked for in one way, and taken whole or not at all."""

import base64
import hashlib
import http.client
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request

_CONNECT_TIMEOUT = 8.0  # seconds: without a network, say so soon
_TIMEOUT = 60.0  # seconds without a sign of a server that is connected
_CHUNK = 1 << 18  # bytes between two calls of `tell`
_HEAD = 512  # bytes that tell what a file is
_ALLOWED = "%:/?#[]@!$&'()*+,;=~"  # in a URL, beside letters and digits
_PAGE = (b"<!doctype html", b"<html", b"<head", b"<body")
_MD5 = re.compile(r'"([0-9a-f]{32})"')
# What a server that cannot be reached, or that breaks off, raises.
BROKEN = (
    *(urllib.error.URLError, http.client.HTTPException),
    *(ConnectionError, TimeoutError, ssl.SSLError),
)


class NotTheFileError(ConnectionError):
    """What a server sent is not the whole file."""


def answer(url, method="GET"):
    """The answer of a server, to be closed."""
    parts = urllib.parse.urlsplit(url)
    bare = without_login(parts)._replace(fragment="").geturl()
    request = urllib.request.Request(
        urllib.parse.quote(bare, safe=_ALLOWED),
        headers={"User-Agent": "effdet-keras"},
        method=method,
    )
    if parts.username is not None:
        login = f"{parts.username}:{parts.password or ''}"
        token = base64.b64encode(urllib.parse.unquote(login).encode()).decode()
        # Not passed on to where a redirect leads.
        request.add_unredirected_header("Authorization", f"Basic {token}")
    opener = urllib.request.build_opener(_HTTPHandler, _HTTPSHandler)
    return opener.open(request, timeout=_CONNECT_TIMEOUT)


def copy_body(url, response, file, tell=lambda received, length: None):
    """Copies the body of an answer to a file, and checks that it is complete."""
    coding = response.headers.get("Content-Encoding", "identity")
    if response.status != 200 or coding != "identity":
        raise NotTheFileError(
            f"it answered with status {response.status} and the encoding '{coding}'; a "
            "whole file is status 200 without one"
        )
    length, expected = length_of(response), _md5_of(response.headers)
    received, md5 = 0, hashlib.md5(usedforsecurity=False)
    while chunk := response.read(_CHUNK):
        file.write(chunk)
        received += len(chunk)
        if expected is not None:
            md5.update(chunk)
        if received != length:
            tell(received, length)
    tell(received, received)
    if length is None and not response.chunked:  # nothing tells where such a body ends
        length = _length_alone(url)
    if length is not None and received != length:
        raise NotTheFileError(f"the server sent {received} of {length} bytes")
    if expected is not None and md5.digest() != expected:
        raise NotTheFileError(
            f"what arrived has the MD5 digest {md5.hexdigest()}, and the file there "
            f"{expected.hex()}"
        )


def length_of(response):
    """The bytes of the body, or None where the server does not tell."""
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdigit() else None


def is_page(head):
    """Whether the first bytes of a file are those of a page for a browser."""
    head = head[:_HEAD].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return head.startswith(b"<") and any(sign in head for sign in _PAGE)


def without_login(parts):
    """The parts of `urlsplit` without a user name and password."""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2])


def _length_alone(url):
    try:
        with answer(url, "HEAD") as response:
            return length_of(response) or None  # of pages made on demand some say 0
    except BROKEN:
        return None


def _md5_of(headers):
    """The MD5 digest that a storage tells of its file, or None."""
    if headers.get("X-Goog-Stored-Content-Encoding", "identity") != "identity":
        return None  # the digest is of the packed file
    hashes = ",".join(headers.get_all("X-Goog-Hash", []))
    match = re.search(r"md5=([\w+/]{22}==)", hashes)
    if match is None:
        match = re.fullmatch(r"([\w+/]{22}==)", headers.get("Content-MD5", ""))
    if match is not None:
        return base64.b64decode(match[1])
    # Amazon's is the digest, unless the file came in parts or has a key of its own.
    encryption = headers.get("X-Amz-Server-Side-Encryption", "AES256")
    own_key = "X-Amz-Server-Side-Encryption-Customer-Algorithm" in headers
    match = _MD5.fullmatch(headers.get("ETag", ""))
    if "X-Amz-Request-Id" in headers and match and encryption == "AES256":
        return None if own_key else bytes.fromhex(match[1])
    return None


class _PatientOnceConnected:
    """Waits less for a connection than for what comes through it."""

    def connect(self):
        super().connect()
        self.sock.settimeout(_TIMEOUT)


class _HTTPConnection(_PatientOnceConnected, http.client.HTTPConnection):
    pass


class _HTTPSConnection(_PatientOnceConnected, http.client.HTTPSConnection):
    pass


class _HTTPHandler(urllib.request.HTTPHandler):
    def http_open(self, request):
        return self.do_open(_HTTPConnection, request)


class _HTTPSHandler(urllib.request.HTTPSHandler):
    def https_open(self, request):
        return self.do_open(_HTTPSConnection, request)
