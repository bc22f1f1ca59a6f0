"""A server that is not well: its answers are errors, and forgotten when it is well."""

import hashlib
import io
import zipfile

import pytest
from support.arrays import assert_equal
from support.remote import web_server
from support.tiny import LITE0, tiny_model
from support.weights import pack, values

import effdet_keras as ek
from effdet_keras.weights.archive import write_archive
from effdet_keras.weights.locate import cache_path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of weights of one model, by their names, which end as their kinds do."""
    folder = tmp_path_factory.mktemp("web")
    model = tiny_model(backbone=LITE0)
    model.save_weights(folder / "a.weights.h5")
    write_archive(model, folder / "a.keras")
    model.export_checkpoint(folder / "tf/model", "automl-tf1")
    pack(folder / "a.tar.gz", folder / "tf")
    return folder, model


@pytest.fixture
def server(files, memory, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with web_server(files[0]) as server:
        yield server


def flipped(body):
    place = len(body) // 2
    return body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]


def whole(body):
    return {"Content-Length": str(len(body))}


# What is sent with status 200 in the place of a file: headers and body.
BAD = {
    "text": lambda body: (whole(b"try later"), b"try later"),
    "json": lambda body: (whole(b'{"error": 1}'), b'{"error": 1}'),
    "nothing": lambda body: (whole(b""), b""),
    "nothing, of no length": lambda body: ({}, b""),
    "a page": lambda body: ({}, b"<!doctype html><html>wait</html>"),
    "a long comment": lambda body: ({}, b"<!-- " + b"x" * 900 + b" --><html></html>"),
    "a cut body of no length": lambda body: ({}, body[: len(body) // 2]),
    "its first bytes": lambda body: ({}, body[:100]),
    "a flipped bit": lambda body: (whole(body), flipped(body)),
}
FILES = ["a.weights.h5", "a.keras", "a.tar.gz"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("bad", BAD)
def test_weights_are_fetched_again(files, server, name, bad):
    folder, model = files
    address = f"{server.address}/{name}"
    headers, body = BAD[bad]((folder / name).read_bytes())
    server.answers[f"/{name}"] = (200, headers, body)
    fresh = tiny_model(backbone=LITE0)
    with pytest.raises((OSError, ValueError)):
        fresh.load_pretrained(address, verbose=0)
    assert not cache_path(address).exists()
    server.answers.clear()
    fresh.load_pretrained(address, verbose=0)
    assert_equal(values(fresh), values(model))
    asked = len(server.asked)
    fresh.load_pretrained(address, verbose=0)
    assert len(server.asked) == asked  # what can be read is kept


@pytest.mark.parametrize("name", FILES)
def test_a_copy_of_a_former_version_that_cannot_be_read_is_replaced(
    files, server, name
):
    folder, model = files
    address = f"{server.address}/{name}"
    kept = cache_path(address)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b'{"error": "rate limit"}')
    fresh = tiny_model(backbone=LITE0)
    fresh.load_pretrained(address, verbose=0)
    assert_equal(values(fresh), values(model))
    assert kept.read_bytes() == (folder / name).read_bytes()


def test_a_copy_that_cannot_be_read_and_no_server(files, server):
    address = f"{server.address}/gone.h5"
    kept = cache_path(address)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"text")
    with pytest.raises(ValueError, match="known kind.*cache folder.*not be.*404"):
        tiny_model(backbone=LITE0).load_pretrained(address, verbose=0)


def test_a_copy_with_another_digest_is_fetched_again_once(files, server):
    folder, model = files
    address, kept = f"{server.address}/a.keras", cache_path(f"{server.address}/a.keras")
    body = (folder / "a.keras").read_bytes()
    fresh = tiny_model(backbone=LITE0)
    kept.parent.mkdir(parents=True)
    older = io.BytesIO(body)
    with zipfile.ZipFile(older, "a") as archive:
        archive.writestr("note.txt", "an older release, which can be read")
    kept.write_bytes(older.getvalue())
    digest = hashlib.sha256(body).hexdigest()
    fresh.load_pretrained(address, sha256=digest, verbose=0)
    assert_equal(values(fresh), values(model))
    assert kept.read_bytes() == body
    # A digest that the server's file does not have either costs nobody the good copy.
    with pytest.raises(ValueError, match="another sha256 digest than expected"):
        fresh.load_pretrained(address, sha256="0" * 64, verbose=0)
    assert kept.read_bytes() == body


def test_a_file_that_is_good_and_does_not_fit_is_kept(files, server):
    address = f"{server.address}/a.weights.h5"
    other = ek.EfficientDet.from_preset("efficientdet-lite1", image_size=64)
    with pytest.raises(ValueError, match="do not fit"):
        other.load_pretrained(address, verbose=0)
    assert cache_path(address).exists()


@pytest.mark.parametrize("bad", [flipped, lambda body: b"text".ljust(len(body))])
def test_an_archive_at_an_address_is_fetched_again(files, server, bad):
    """The bad answer has the length and the date of the good file."""
    address = f"{server.address}/a.keras"
    body = (files[0] / "a.keras").read_bytes()
    server.answers["/a.keras"] = (200, {}, bad(body))
    for read in (ek.Predictor.load, ek.EfficientDet.from_archive):
        with pytest.raises(ValueError, match="a.keras' is damaged.*was removed"):
            read(address)
    server.answers.clear()
    ek.EfficientDet.from_archive(address)
