"""Files at addresses are read whole, tried again, and named in errors."""

import pytest
from support.remote import memory_files, web_server

from effdet_keras.extras.remote import files as remote_files
from effdet_keras.extras.remote.files import (
    fetch,
    find_entry,
    list_folder,
    put,
    read_bytes,
    remove,
)


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
    with pytest.raises(FileNotFoundError, match="There is no 'memory://a'"):
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
        with pytest.raises(ValueError, match="do not list their folders.*from_coco"):
            list_folder(server.address)
        with pytest.raises(ValueError, match="read and not written to"):
            put(tmp_path / "back", address)
        server.failures = 100
        with pytest.raises(OSError, match=r"'http.*a b.txt' cannot be read: 503"):
            read_bytes(address)


def test_a_server_that_cannot_be_reached_is_named(memory):
    with pytest.raises(OSError, match="'http://127.0.0.1:9/a' cannot be read"):
        read_bytes("http://127.0.0.1:9/a")
