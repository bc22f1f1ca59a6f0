"""Downloads: whole or not at all, from a server on this machine."""

import hashlib
import http.server
import pathlib
import threading

import pytest
from support.remote import Quiet, served

from effdet_keras._internal import web
from effdet_keras.weights.locate import cache_path, download

BODY = bytes(range(256)) * 5000
SHA256 = hashlib.sha256(BODY).hexdigest()
MD5 = hashlib.md5(BODY).hexdigest()
PATIENCE = 20.0  # seconds until a test gives up


class Handler(Quiet, http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append((self.path, dict(self.headers)))
        path = self.path.partition("?")[0]
        status, headers, body = 200, {"Content-Length": str(len(BODY))}, BODY
        if path.startswith("/moved"):
            status, body = 302, b""
            headers = {"Location": f"{self.server.address}/d0.h5"}
        elif path.startswith("/missing"):
            status, headers, body = 404, {}, b""
        elif path.startswith("/page"):
            headers, body = {}, b"\n<!DOCTYPE html><html>Please log in</html>"
        elif "unknown-length" in path:
            headers = {}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:1000])
        self.wfile.flush()
        if "hangs" in path:
            self.server.released.wait(PATIENCE)
        elif "short" not in path:
            self.wfile.write(body[1000:])


@pytest.fixture
def server():
    with served(Handler, requests=[], released=threading.Event()) as server:
        yield server
        server.released.set()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "a cache"
    monkeypatch.setenv("EFFDET_KERAS_CACHE", str(folder))
    # What this machine has set must not stand between test and server.
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return folder


def files_in(folder):
    """Names of the files in a folder that may not be there yet."""
    return sorted(path.name for path in folder.glob("*"))


@pytest.mark.parametrize("path", ["/d0.h5", "/unknown-length.h5", "/moved/d0.h5"])
def test_a_file_comes_whole(server, cache, path, capsys):
    file = download(server.address + path, verbose=0)
    assert capsys.readouterr().out == ""
    assert file.read_bytes() == BODY
    assert file.parent == cache
    assert files_in(cache) == [file.name]


def test_what_was_fetched_is_taken_from_the_cache(server):
    url = f"{server.address}/d0.h5"
    first = download(url, verbose=0)
    assert download(url, sha256=SHA256, md5=MD5, verbose=0) == first
    assert len(server.requests) == 1
    files = [download(f"{server.address}/{f}/d0.h5", verbose=0) for f in "ab"]
    assert files[0] != files[1]
    assert all(file.name.endswith("-d0.h5") for file in files)


# What else servers send in the place of a file: tests/_internal/test_web.py.
@pytest.mark.parametrize(
    "path, error, message",
    [
        ("/page.h5", OSError, "returned a web page"),
        ("/missing.h5", OSError, "404"),
        ("/short.h5", ConnectionError, f"sent 1000 of {len(BODY)} bytes"),
        ("/hangs.h5", ConnectionError, "TimeoutError.*try again"),
    ],
)
def test_what_is_no_whole_file_is_told_and_not_kept(
    server, cache, monkeypatch, path, error, message
):
    if path == "/hangs.h5":
        monkeypatch.setattr(web, "_TIMEOUT", 0.1)
    with pytest.raises(error, match=rf"127.0.0.1:\d+{path}.*({message})"):
        download(server.address + path, verbose=0)
    assert files_in(cache) == []


def test_an_address_that_is_none_is_told(cache):
    with pytest.raises(
        ConnectionError, match=r"No file could be downloaded from http://\[::1/a.h5"
    ):
        download("http://[::1/a.h5", verbose=0)
    assert files_in(cache) == []


@pytest.mark.parametrize("name, digest", [("sha256", SHA256), ("md5", MD5)])
def test_a_wrong_digest_is_not_kept(server, cache, name, digest):
    wrong = digest[::-1]
    with pytest.raises(ValueError, match=f"{digest}.*{name}='{wrong}'"):
        download(f"{server.address}/d0.h5", **{name: wrong}, verbose=0)
    assert files_in(cache) == []
    file = download(f"{server.address}/d0.h5", **{name: digest.upper()}, verbose=0)
    assert file.read_bytes() == BODY


def test_the_query_is_used_but_not_told(server, capsys):
    path = download(f"{server.address}/d0.h5?token=secret")
    shown = capsys.readouterr().out + path.name
    for url in ("/missing.h5?token=secret", "/short.h5?token=secret"):
        with pytest.raises(OSError) as error:
            download(server.address + url)
        shown += str(error.value) + repr(error.value.__cause__)
    assert "secret" not in shown + capsys.readouterr().out
    assert server.requests[0][0] == "/d0.h5?token=secret"


def test_the_progress_is_told(server, capsys):
    for path in ("/b/d0.h5", "/unknown-length.h5"):
        download(server.address + path, verbose=1)
        shown = capsys.readouterr().out
        assert f"Downloading {server.address}{path}" in shown
        assert "/MB" in shown and shown.endswith("\n")


def test_the_cache_folder(monkeypatch, tmp_path):
    url = "https://127.0.0.1/d0.h5"
    monkeypatch.delenv("EFFDET_KERAS_CACHE")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    assert cache_path(url).parent == tmp_path / "keras" / "effdet_keras"
    monkeypatch.delenv("KERAS_HOME")
    assert cache_path(url).parent == pathlib.Path.home() / ".keras" / "effdet_keras"
    monkeypatch.setenv("EFFDET_KERAS_CACHE", "~/weights")
    assert cache_path(url).parent == pathlib.Path.home() / "weights"


@pytest.mark.parametrize("path", ["/", "", "/..", "/a%2Fb", "/..%5c", "/%00"])
def test_any_url_has_a_name_in_the_cache_folder(cache, path):
    file = cache_path(f"https://127.0.0.1{path}")
    assert file.resolve().parent == cache.resolve()
    assert len(cache_path(f"https://127.0.0.1/{'x' * 500}.h5").name) < 120
