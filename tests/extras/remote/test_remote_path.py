"""Addresses are read in the words of `pathlib`."""

import pathlib

import pytest
from support.remote import web_server

from effdet_keras._internal.remote_path import for_each, local_copy, path_of
from effdet_keras.extras.remote import files as remote_files
from effdet_keras.extras.remote.path import RemotePath

FILES = ("a.json", "train/1.jpg", "train/2.jpg", "labels/train/1.txt", ".hidden.json")


@pytest.fixture
def cats(memory):
    for name in FILES:
        memory.pipe_file(f"/bucket/cats/{name}", name.encode())
    return path_of("memory://bucket/cats")


@pytest.fixture
def here(tmp_path):
    for name in FILES:
        path = tmp_path / "cats" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "cats"


@pytest.mark.parametrize("pattern", ["*.json", "*", "*/*.jpg", "train/*", "*.none"])
def test_glob_finds_what_pathlib_finds(cats, here, pattern):
    expected = sorted(path.relative_to(here).as_posix() for path in here.glob(pattern))
    found = sorted(str(path).removeprefix(f"{cats}/") for path in cats.glob(pattern))
    # A listing keeps hidden files: readers leave them out themselves.
    assert found == expected


def test_rglob_and_iterdir_do_as_well(cats, here):
    names = sorted(path.relative_to(here).as_posix() for path in here.rglob("*"))
    assert sorted(str(p).removeprefix(f"{cats}/") for p in cats.rglob("*")) == names
    assert [p.name for p in cats.iterdir()] == sorted(p.name for p in here.iterdir())


@pytest.mark.parametrize("name", ["a.json", "train", "none", "train/1.jpg", "train/x"])
def test_kinds_are_those_of_pathlib(cats, here, name):
    for question in ("exists", "is_file", "is_dir"):
        assert getattr(cats / name, question)() == getattr(here / name, question)()


def test_parts_are_those_of_pathlib():
    remote, local = map(path_of, ("s3://bucket/a/b.tar.gz", "/bucket/a/b.tar.gz"))
    for name in ("name", "stem", "suffix"):
        assert getattr(remote, name) == getattr(local, name)
    assert str(remote.parent) == "s3://bucket/a"
    assert str(remote.with_suffix(".txt")) == "s3://bucket/a/b.tar.txt"
    assert str(remote / "../c") == "s3://bucket/a/c"
    assert str(remote.parent / "./x//y/../z.jpg") == "s3://bucket/a/x/z.jpg"
    assert str(path_of("s3://bucket/a/../b/./c/")) == "s3://bucket/b/c"
    assert path_of(pathlib.Path("s3://bucket/a")) == path_of("s3://bucket/a")
    assert path_of("here/a") == pathlib.Path("here/a")


def test_two_slashes_within_an_address_stay(memory):
    memory.pipe_file("/bucket/a//b.jpg", b"of a sloppy upload")
    path = path_of("memory://bucket/a//b.jpg")
    assert path.is_file() and path.read_bytes() == b"of a sloppy upload"
    assert local_copy(path).read_bytes() == b"of a sloppy upload"
    archived = "https://web.archive.org/web/2020/https://foo.org/x.jpg"
    assert str(path_of(archived)) == archived
    assert str(path_of(archived).parent / "y.jpg") == archived.replace("x.", "y.")


def test_one_listing_serves_a_whole_folder(cats, monkeypatch):
    listed = []
    real = remote_files.list_folder
    monkeypatch.setattr(
        remote_files, "list_folder", lambda a: listed.append(a) or real(a)
    )
    assert all((cats / "train" / f"{i}.jpg").is_file() for i in (1, 2))
    assert not (cats / "train" / "3.jpg").is_file()
    assert listed == [f"{cats}/train"]


def test_a_copy_is_fetched_once_until_the_file_is_replaced(cats, memory, monkeypatch):
    fetched = []
    real = remote_files.fetch
    monkeypatch.setattr(
        remote_files, "fetch", lambda a, p: fetched.append(a) or real(a, p)
    )
    first = local_copy(cats / "a.json")
    assert local_copy(cats / "a.json") == first and len(fetched) == 1
    memory.pipe_file("/bucket/cats/a.json", b"another")
    second = local_copy(cats / "a.json")
    assert second.read_text() == "another" and not first.exists()
    with pytest.raises(FileNotFoundError, match="memory://bucket/cats/none"):
        local_copy(cats / "none")


def test_a_file_of_this_machine_is_its_own_copy(here):
    assert local_copy(here / "a.json") == here / "a.json"


def test_for_each_keeps_the_order(cats, here):
    for folder in (cats, here):
        paths = [folder / name for name in FILES]
        assert for_each(lambda path: path.read_text(), paths) == list(FILES)


def test_a_presigned_address_is_asked_for_with_its_query(memory, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    with web_server(tmp_path) as server:
        path = RemotePath(f"{server.address}/a.txt?signature=1/2")
        assert path.name == "a.txt" and path.read_text() == "text"
        assert server.asked == ["/a.txt?signature=1/2"]


@pytest.mark.parametrize("status", [401, 403, 405, 501])
def test_a_server_that_refuses_to_send_headers_alone(memory, tmp_path, status):
    """As S3 does, where an address is signed for GET."""
    (tmp_path / "a.txt").write_text("text")
    with web_server(tmp_path) as server:
        server.head_status = status
        path = path_of(f"{server.address}/a.txt?signature=1")
        assert path.exists() and path.fetched().read_text() == "text"
        assert path.fetched() == path.fetched()
        with pytest.raises(FileNotFoundError):
            path_of(f"{server.address}/none.txt").fetched()
