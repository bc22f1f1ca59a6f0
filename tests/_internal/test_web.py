"""What a web server sends counts as a file only if it is the whole file."""

import base64
import hashlib
import pathlib

import pytest
from support.remote import web_server

from effdet_keras._internal.remote_path import local_copy, path_of
from effdet_keras.data import load
from effdet_keras.detect.predictor import Predictor
from effdet_keras.extras.remote.files import read_bytes
from effdet_keras.weights.download import download
from effdet_keras.weights.read_weights import read_weights

BODY = b"0123456789" * 100
MD5 = hashlib.md5(BODY)
BASE64 = base64.b64encode(MD5.digest()).decode()
FLIPPED = b"1" + BODY[1:]
LENGTH = {"Content-Length": str(len(BODY))}
AMAZON = {"X-Amz-Request-Id": "1", "ETag": f'"{MD5.hexdigest()}"'}
BAD = {
    "a part that nobody asked for": (206, {}, BODY[:500], "status 206"),
    "no content": (204, {}, b"", "status 204"),
    "a packed file": (200, {"Content-Encoding": "gzip"}, BODY, "encoding 'gzip'"),
    "a cut body": (200, LENGTH, BODY[:500], "500 of 1000 bytes"),
    "a cut body without a length": (200, {}, BODY[:500], "500 of 1000 bytes"),
    "a digest of Google": (200, {"X-Goog-Hash": f"md5={BASE64}"}, FLIPPED, "MD5"),
    "a digest of its own": (200, {"Content-MD5": BASE64}, FLIPPED, "MD5"),
    "a digest of Amazon": (200, AMAZON, FLIPPED, "MD5"),
    "a page": (200, {}, b"<!-- portal -->" + b"<html>".ljust(985), "a page"),
}
GOOD = {
    "a digest of Google": {"X-Goog-Hash": f"crc32c=AAAAAA==,md5={BASE64}"},
    "a digest of Amazon": AMAZON,
    "a version that is no digest": {"ETag": f'"{"0" * 32}"'},
    "a file in parts": {"X-Amz-Request-Id": "1", "ETag": f'"{"0" * 32}-2"'},
    "a file with a key": AMAZON
    | {"ETag": f'"{"0" * 32}"', "X-Amz-Server-Side-Encryption": "aws:kms"},
    "a file that is stored packed": {
        "X-Goog-Hash": "md5=AAAAAAAAAAAAAAAAAAAAAA==",
        "X-Goog-Stored-Content-Encoding": "gzip",
    },
}


@pytest.fixture
def server(memory, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "file.h5").write_bytes(BODY)
    with web_server(tmp_path / "web") as server:
        yield server


def _take(way, address):
    if way is download:
        return download(address, verbose=0).read_bytes()
    return (
        read_bytes(address) if way is read_bytes else local_copy(address).read_bytes()
    )


@pytest.mark.parametrize("way", [download, read_bytes, local_copy])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_is_an_error_and_the_next_call_has_the_file(server, way, name):
    status, headers, body, said = BAD[name]
    address = f"{server.address}/file.h5"
    server.answers["/file.h5"] = (status, headers, body)
    with pytest.raises(OSError, match=f"{address}.*{said}"):
        _take(way, address)
    server.answers.clear()
    assert _take(way, address) == BODY


@pytest.mark.parametrize("way", [download, read_bytes, local_copy])
@pytest.mark.parametrize("name", GOOD)
def test_a_whole_file_is_taken_whatever_the_storage_tells(server, way, name):
    server.answers["/file.h5"] = (200, GOOD[name] | LENGTH, BODY)
    assert _take(way, f"{server.address}/file.h5") == BODY


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("model.keras", Predictor.load),
        ("model.tflite", Predictor.load),
        ("d0.h5", lambda address: read_weights(address, None, verbose=0)),
        ("d0.tar.gz", lambda address: read_weights(address, None, verbose=0)),
    ],
)
def test_what_cannot_be_read_is_not_kept(server, tmp_path, name, read):
    path = tmp_path / "web" / name
    path.write_bytes(b"PK\x03\x04 cut, and of a length that the server believes")
    address = f"{server.address}/{name}"
    for _ in range(2):
        with pytest.raises(ValueError, match="removed: the next call fetches it again"):
            read(address)
        files = filter(pathlib.Path.is_file, (tmp_path / "cache").rglob("*"))
        kept = [p for p in files if p.suffix != ".used"]  # a note of this process
        assert kept == []
    fetched = [path for path in server.asked if path == f"/{name}"]
    assert len(fetched) == 2


def test_a_cut_list_of_images_is_never_a_shorter_dataset(server, tmp_path):
    rows = [f"{i}.png,4,4,cat,0,0,2,2\n".encode() for i in range(100)]
    header = b"filename,width,height,class,xmin,ymin,xmax,ymax\n"
    (tmp_path / "web" / "train.csv").write_bytes(header + b"".join(rows))
    server.answers["/train.csv"] = (206, {}, header + b"".join(rows[:40]))
    address = f"{server.address}/train.csv"
    with pytest.raises(ValueError, match="status 206"):
        load(address)
    server.answers.clear()
    assert len(load(address)) == 100


@pytest.mark.parametrize(
    "address",
    ["http://[::1", "http://", "https:///a.keras", "http://a:b/", "http://a..b/c"],
)
@pytest.mark.parametrize(
    "call",
    [Predictor.load, load, path_of, lambda a: read_weights(a, None), download],
)
def test_a_malformed_address_is_named_with_the_cure(address, call):
    with pytest.raises(ValueError, match="is not an address that can be") as error:
        call(address)
    assert address in str(error.value) and "https://example.org" in str(error.value)
