"""What a web server sends counts as a file only if it is the whole file."""

import functools

import pytest
from support.remote import web_server

from effdet_keras._internal.remote_path import local_copy
from effdet_keras.data import from_coco, from_csv, load
from effdet_keras.extras.remote.files import read_bytes
from effdet_keras.weights.locate import download

BODY = b"0123456789" * 100
LENGTH = {"Content-Length": str(len(BODY))}
BAD = {
    "a part that nobody asked for": (206, {}, BODY[:500], "status 206"),
    "no content": (204, {}, b"", "status 204"),
    "a packed file": (200, {"Content-Encoding": "gzip"}, BODY, "encoding 'gzip'"),
    "a cut body": (200, LENGTH, BODY[:500], "500 of 1000 bytes"),
    "a page": (200, {}, b"<!-- portal -->" + b"<html>".ljust(985), "a (web )?page"),
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


@pytest.mark.parametrize("name", ["train.csv", "train.json"])
def test_an_annotation_file_that_cannot_be_read_is_fetched_again(
    server, tmp_path, name
):
    """The bad answer has the length and the date of the good file."""
    good = {
        "train.csv": b"filename,width,height,class,xmin,ymin,xmax,ymax\n"
        b"1.png,4,4,cat,0,0,2,2\n",
        "train.json": b'{"images": [{"id": 1, "file_name": "1.png", "width": 4, '
        b'"height": 4}], "annotations": [], "categories": [{"id": 1, "name": "cat"}]}',
    }[name]
    (tmp_path / "web" / name).write_bytes(good)
    address = f"{server.address}/{name}"
    server.answers[f"/{name}"] = (200, {}, b'{"error": "busy"}'.ljust(len(good)))
    from_json = functools.partial(from_coco, image_dir=server.address)
    from_format = {"train.csv": from_csv, "train.json": from_json}[name]
    for _ in range(2):
        with pytest.raises(ValueError, match="from_(csv|coco).*was removed"):
            from_format(address)
    server.answers.clear()
    assert len(from_format(address)) == 1
