"""Files at addresses are read whole, tried again, and named in errors."""

import pathlib

import pytest
from support.remote import memory_files, web_server
from support.tiny import LITE0, tiny_model

from effdet_keras.extras.remote import files as remote_files
from effdet_keras.extras.remote.files import (
    fetch,
    find_entry,
    list_folder,
    put,
    read_bytes,
    remove,
)
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.weights.archive import write_archive


@pytest.mark.smoke
def test_a_file_goes_to_a_storage_and_comes_back(memory, tmp_path):
    here, back = tmp_path / "here", tmp_path / "back"
    here.write_bytes(b"weights")
    entry = put(here, "memory://run/archive/last.keras")
    assert list_folder("memory://run/archive") == {"last.keras": entry}
    assert list(list_folder("memory://run")) == ["archive"]
    fetch("memory://run/archive/last.keras", back)
    assert back.read_bytes() == b"weights"
    remove("memory://run/archive/last.keras")
    remove("memory://run/archive/last.keras")  # is gone already
    assert memory_files() == {}


def test_a_replaced_file_has_another_version(memory, tmp_path):
    (tmp_path / "a").write_bytes(b"one")
    before = put(tmp_path / "a", "memory://a")
    (tmp_path / "a").write_bytes(b"two")
    assert put(tmp_path / "a", "memory://a").version != before.version


def test_a_broken_connection_is_tried_again(memory, monkeypatch):
    memory.pipe_file("/a", b"all of it")
    attempts = []

    def breaks_twice(self, path, **_):
        attempts.append(path)
        if len(attempts) < 3:
            raise ConnectionError("reset by peer")
        return b"all of it"

    monkeypatch.setattr(type(memory), "cat_file", breaks_twice)
    assert read_bytes("memory://a") == b"all of it"
    assert len(attempts) == 3


def test_what_stays_broken_names_the_address_without_its_secrets(memory, monkeypatch):
    def breaks(self, path, **_):
        raise RuntimeError("endpoint is away")  # of a storage's own library

    monkeypatch.setattr(type(memory), "cat_file", breaks)
    with pytest.raises(OSError, match="'memory://a' cannot be read: endpoint is away"):
        read_bytes("memory://me:word@a?key=1")


def test_what_is_not_there_is_not_tried_again(memory, monkeypatch):
    monkeypatch.setattr(remote_files.time, "sleep", None)  # would raise
    with pytest.raises(
        FileNotFoundError, match="There is no file or folder 'memory://a'"
    ):
        read_bytes("memory://a")
    assert find_entry("memory://a") is None
    assert list_folder("memory://a") == {}


@pytest.mark.parametrize("address", ["gs://bucket/a", "s3://bucket/a"])
def test_a_missing_package_has_its_cure(address, monkeypatch):
    def missing(*_, **__):
        raise ImportError("Install it to access it")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(ImportError, match=r'pip install "effdet-keras\[remote\]"'):
        read_bytes(address)


def test_an_unknown_scheme_is_refused():
    with pytest.raises(ValueError, match="'nowhere://a' is neither a path"):
        read_bytes("nowhere://a")


def test_a_web_server_gives_files_and_lists_no_folder(memory, tmp_path):
    (tmp_path / "a b.txt").write_text("text")
    with web_server(tmp_path) as server:
        address = f"{server.address}/a b.txt"
        assert read_bytes(address) == b"text"
        assert find_entry(address) == find_entry(address)
        assert find_entry(f"{server.address}/b.txt") is None
        server.failures = 2
        fetch(address, tmp_path / "back")
        assert (tmp_path / "back").read_text() == "text"
        with pytest.raises(ValueError, match="do not list their files.*from_coco"):
            list_folder(server.address)
        with pytest.raises(ValueError, match="read, but not written"):
            put(tmp_path / "back", address)
        server.failures = 100
        with pytest.raises(OSError, match=r"'http.*a b.txt' cannot be read: 503"):
            read_bytes(address)


def test_a_server_that_cannot_be_reached_is_named(memory):
    with pytest.raises(OSError, match="'http://127.0.0.1:9/a' cannot be read"):
        read_bytes("http://127.0.0.1:9/a")


def half_of(copy):
    """A copy that a storage cuts in the middle without a word, once or always."""

    def copy_half(self, source, target, **options):
        copy(self, source, target, **options)
        if isinstance(target, str) and target in self.store:
            content = self.store[target].getvalue()
            self.pipe_file(target, content[: len(content) // 2])
        else:
            content = pathlib.Path(target).read_bytes()
            pathlib.Path(target).write_bytes(content[: len(content) // 2])

    return copy_half


@pytest.mark.parametrize("is_cut_once", [True, False])
def test_a_cut_copy_from_a_storage_is_no_file(
    memory, tmp_path, monkeypatch, is_cut_once
):
    memory.pipe_file("/a", b"0123456789")
    target, whole = tmp_path / "a", type(memory).get_file
    copies = [half_of(whole), whole if is_cut_once else half_of(whole)]

    def get_file(self, *arguments, **options):
        copy = copies.pop(0) if len(copies) > 1 else copies[0]
        return copy(self, *arguments, **options)

    monkeypatch.setattr(type(memory), "get_file", get_file)
    if is_cut_once:
        fetch("memory://a", target)
        assert target.read_bytes() == b"0123456789"
    else:
        with pytest.raises(OSError, match="'memory://a' .*has 10 bytes.* but 5 were"):
            fetch("memory://a", target)
        assert not target.exists()


def test_a_cut_copy_to_a_storage_is_an_error(memory, tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"0123456789")
    monkeypatch.setattr(type(memory), "put_file", half_of(type(memory).put_file))
    with pytest.raises(OSError, match="'memory://a' cannot be written: the file has 5"):
        put(tmp_path / "a", "memory://a")


@pytest.mark.parametrize("content", [b"0123456789 and more", b"short"])
def test_a_file_may_grow_or_be_replaced_while_it_is_copied(
    memory, tmp_path, monkeypatch, content
):
    path, copies, whole = tmp_path / "log.txt", [], type(memory).put_file
    path.write_bytes(b"0123456789")

    def put_file(self, source, target, **options):
        whole(self, source, target, **options)
        copies.append(target)
        path.write_bytes(content)

    monkeypatch.setattr(type(memory), "put_file", put_file)
    put(path, "memory://log.txt")
    assert memory.cat_file("/log.txt") == b"0123456789" and len(copies) == 1


def test_a_copy_that_is_damaged_on_its_way_is_fetched_again(
    memory, tmp_path, monkeypatch
):
    model = tiny_model(backbone=LITE0)
    model.save_weights(tmp_path / "a.weights.h5")
    write_archive(model, tmp_path / "a.keras")
    for name in ("a.weights.h5", "a.keras"):
        memory.pipe_file(f"/run/{name}", (tmp_path / name).read_bytes())
    whole = type(memory).get_file

    def flip(self, source, target, **options):
        whole(self, source, target, **options)
        content = bytearray(pathlib.Path(target).read_bytes())
        content[len(content) // 2] ^= 1
        pathlib.Path(target).write_bytes(content)

    readers = {
        "memory://run/a.weights.h5": lambda path: model.load_pretrained(
            path, verbose=0
        ),
        "memory://run/a.keras": EfficientDet.from_archive,
    }
    for address, read in readers.items():
        with monkeypatch.context() as patch:
            patch.setattr(type(memory), "get_file", flip)
            with pytest.raises(ValueError, match="is damaged.*was removed: try again"):
                read(address)
        read(address)
