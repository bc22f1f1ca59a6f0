"""A server that is not well: its answers are errors, and forgotten when it is well."""

import hashlib
import io
import zipfile

import h5py
import numpy as np
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
    with pytest.raises(
        ValueError, match="known kind.*cache folder.*No file could be.*404"
    ):
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
    with pytest.raises(
        ValueError, match="The sha256 digest .* is not the expected one"
    ):
        fresh.load_pretrained(address, sha256="0" * 64, verbose=0)
    assert kept.read_bytes() == body


def test_a_file_that_is_good_and_does_not_fit_is_kept(files, server):
    address = f"{server.address}/a.weights.h5"
    other = ek.EfficientDet.from_preset("efficientdet-lite1", image_size=64)
    with pytest.raises(ValueError, match="do not fit"):
        other.load_pretrained(address, verbose=0)
    assert cache_path(address).exists()


def averages_alone(folder):
    """A checkpoint of google/automl without the raw weights."""
    tf = pytest.importorskip("tensorflow")
    name = "efficientnet-b0/stem/conv2d/kernel/ExponentialMovingAverage"
    (folder / "tf").mkdir()
    tf.raw_ops.SaveV2(
        prefix=str(folder / "tf/model"),
        tensor_names=[name],
        shape_and_slices=[""],
        tensors=[tf.ones((3, 3, 3, 32))],
    )
    pack(folder / "sent.tar.gz", folder / "tf")
    return "sent.tar.gz", {"averages": False}, "contains only moving averages"


def several(folder):
    for name in ("a.h5", "b.h5"):
        (folder / "two" / name).parent.mkdir(exist_ok=True)
        (folder / "two" / name).write_bytes(b"")
    pack(folder / "sent.tar.gz", folder / "two")
    return "sent.tar.gz", {}, "contains several checkpoints"


def another_network(folder):
    with h5py.File(folder / "sent.h5", "w") as file:
        file["conv1/conv1/kernel:0"] = [1.0]
    return "sent.h5", {}, "weights of another network"


def another_torch_network(folder):
    save_file = pytest.importorskip("safetensors.numpy").save_file
    save_file({"fc": np.ones(1)}, folder / "sent.safetensors")
    return "sent.safetensors", {}, "contains another network"


def with_pipeline_config(folder):
    tiny_model(backbone=LITE0).save_weights(folder / "sent.weights.h5")
    return "sent.weights.h5", {"pipeline_config": "a.config"}, "only with checkpoints"


@pytest.mark.parametrize("was_kept", [False, True])
@pytest.mark.parametrize(
    "write",
    [
        averages_alone,
        several,
        another_network,
        another_torch_network,
        with_pipeline_config,
    ],
)
def test_a_whole_file_is_not_fetched_again(
    write, was_kept, tmp_path, memory, monkeypatch
):
    """Another argument, or another file, is the cure; this one may have many GB."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    name, arguments, message = write(tmp_path)
    with web_server(tmp_path) as server:
        address = f"{server.address}/{name}"
        kept = cache_path(address)
        if was_kept:
            kept.parent.mkdir(parents=True)
            kept.write_bytes((tmp_path / name).read_bytes())
        with pytest.raises(ValueError, match=message) as error:
            tiny_model(backbone=LITE0).load_pretrained(address, verbose=0, **arguments)
        assert "cache folder" not in str(error.value)
        assert kept.exists() and len(server.asked) == (0 if was_kept else 1)


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
