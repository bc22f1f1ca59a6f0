import errno
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import types

import pytest

from effdet_keras._internal import whole_files
from effdet_keras._internal.whole_files import (
    atomic_folder,
    atomic_write,
    atomic_write_all,
    check_may_be_written,
    write_text,
)

ROOT = pathlib.Path(__file__).parents[2]
EACH_WAY = pytest.mark.parametrize(
    "way", [atomic_write, atomic_folder, atomic_write_all]
)


def contents(folder):
    """Text by relative path of all files, hidden ones included."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {os.fspath(path.relative_to(folder)): path.read_text() for path in files}


def killed_in(code, folder):
    """Runs code that kills its process; gives what the folder then holds."""
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(START) + textwrap.dedent(code), folder],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    return contents(folder)


START = """
    import os, pathlib, signal, sys
    sys.argv[0] = "effdet-keras"  # which imports no more than it uses
    from effdet_keras._internal.whole_files import atomic_folder, atomic_write
    def kill(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)
    folder = pathlib.Path(sys.argv[1])
"""


# One file


@pytest.mark.smoke
def test_a_file_is_there_only_when_the_block_is_done(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    with atomic_write(path) as partial:
        partial.write_text("new")
        assert not path.exists()
        assert partial.parent == path.parent
        assert partial.suffix == ".txt"
    assert contents(tmp_path) == {"deep/a.txt": "new"}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@EACH_WAY
def test_an_error_keeps_what_was_there(tmp_path, way, error):
    (tmp_path / "a.txt").write_text("old")
    name = "a" if way is atomic_folder else "a.txt"
    with pytest.raises(error), way(tmp_path / name) as partial:
        path = partial if way is atomic_write else partial / "a.txt"
        path.write_text("half")
        raise error
    assert contents(tmp_path) == {"a.txt": "old"}
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("place", ["block", "fsync", "replace"])
def test_a_kill_keeps_the_old_file(tmp_path, place):
    (tmp_path / "a.txt").write_text("old")
    found = killed_in(
        f"""
        os.{place} = kill
        with atomic_write(folder / "a.txt") as partial:
            partial.write_text("half")
            if "{place}" == "block":
                kill()
        """,
        tmp_path,
    )
    assert found.pop("a.txt") == "old"
    assert list(found.values()) == ["half"]


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_write(path) as first, atomic_write(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert contents(tmp_path) == {"a.txt": "first"}  # it is the last to leave


@EACH_WAY
def test_an_address_makes_no_folder(tmp_path, monkeypatch, way):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="gsutil"), way("gs://bucket/a"):
        raise AssertionError("not reached")
    assert os.listdir(tmp_path) == []


def test_a_folder_is_not_replaced_by_a_file(tmp_path):
    with pytest.raises(IsADirectoryError, match=tmp_path.name), atomic_write(tmp_path):
        raise AssertionError("not reached")


# A new folder


def test_a_kill_leaves_no_folder_of_that_name(tmp_path):
    found = killed_in(
        """
        with atomic_folder(folder / "cats") as partial:
            (partial / "a.txt").write_text("half")
            kill()
        """,
        tmp_path,
    )
    assert list(found.values()) == ["half"] and not (tmp_path / "cats").exists()


@pytest.mark.parametrize("there", ["file", "folder", "broken link"])
def test_what_is_there_is_never_written_over(tmp_path, there):
    path = tmp_path / "cats"
    if there == "file":
        path.write_text("old")
    elif there == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    with (
        pytest.raises(FileExistsError, match="another path.*cats"),
        atomic_folder(path),
    ):
        raise AssertionError("not reached")
    assert os.listdir(tmp_path) == ["cats"]


def test_a_folder_that_appears_meanwhile_is_not_replaced(tmp_path):
    path = tmp_path / "cats"
    with pytest.raises(FileExistsError), atomic_folder(path) as folder:
        (folder / "a.txt").write_text("mine")
        path.mkdir()
        (path / "a.txt").write_text("theirs")
    assert contents(tmp_path) == {"cats/a.txt": "theirs"}


# Several files


def write_several(folder, text):
    with atomic_write_all(folder / "a.index") as new:
        (new / "a.index").write_text(text)
        (new / "a.data").write_text(text)
        (new / "part").mkdir()
        (new / "part" / f"{text}.txt").write_text(text)


def test_several_files_take_their_places_and_folders_are_replaced_whole(tmp_path):
    (tmp_path / "other").write_text("other")
    for text in ("old", "new"):
        write_several(tmp_path, text)
        several = {"a.index": text, "a.data": text, f"part/{text}.txt": text}
        assert contents(tmp_path) == {"other": "other", **several}
    assert sorted(os.listdir(tmp_path)) == ["a.data", "a.index", "other", "part"]


def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    write_several(tmp_path, "old")
    replace = os.replace

    def refuse(path, target):
        if ".partial" in pathlib.Path(path).parent.name:
            raise OSError("not now")
        return replace(path, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="not now"):
        write_several(tmp_path, "new")
    assert contents(tmp_path)["part/old.txt"] == "old"


@EACH_WAY
def test_a_full_disk_is_told_whatever_the_library_says(tmp_path, monkeypatch, way):
    def fail():
        with way(tmp_path / "model"):
            raise RuntimeError("words of some library")

    with pytest.raises(RuntimeError, match="words of some library"):
        fail()
    full = types.SimpleNamespace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: full)
    with pytest.raises(OSError, match="No space left.*model"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_drive_may_know_no_flushing_but_must_be_there(tmp_path, monkeypatch):
    path, numbers = tmp_path / "last.keras", [errno.ENOTSUP, errno.ENOTCONN]

    def fails(*_):
        number = numbers.pop(0)
        raise OSError(number, os.strerror(number))

    def write(text):
        with atomic_write(path) as partial:
            partial.write_text(text)

    monkeypatch.setattr(os, "fsync", fails)
    write("epoch 1")
    with pytest.raises(OSError, match="not connected"):
        write("epoch 2")
    assert contents(tmp_path) == {"last.keras": "epoch 1"}


# A file that another program holds for a moment


@pytest.fixture
def pauses(monkeypatch):
    """The seconds that were waited, in which nothing waits."""
    waited = []
    monkeypatch.setattr(whole_files.time, "sleep", waited.append)
    return waited


def held(monkeypatch, name, times, error=PermissionError):
    """Lets a function of `os` fail so many times, as where a file is held."""
    function, left = getattr(os, name), [times]

    def fails(*arguments, **options):
        if left[0]:
            left[0] -= 1
            raise error(errno.EACCES, "used by another process", arguments[0])
        return function(*arguments, **options)

    monkeypatch.setattr(os, name, fails)


@EACH_WAY
def test_a_file_that_is_held_for_a_moment_is_put_in_place_then(
    tmp_path, monkeypatch, way, pauses
):
    held(monkeypatch, "replace", 3)
    with way(tmp_path / "a.txt") as partial:
        (partial if way is atomic_write else partial / "a.txt").write_text("new")
    assert list(contents(tmp_path).values()) == ["new"]
    assert len(pauses) == 3 and sum(pauses) < 1


@EACH_WAY
def test_a_file_that_stays_held_is_an_error_after_some_seconds(
    tmp_path, monkeypatch, way, pauses
):
    held(monkeypatch, "replace", 99)
    refused = pytest.raises(PermissionError, match="another process")
    with refused, way(tmp_path / "a.txt") as partial:
        (partial if way is atomic_write else partial / "a.txt").write_text("new")
    assert 3 < sum(pauses) < 10 and list(tmp_path.iterdir()) == []


def test_copies_and_removals_are_tried_again_as_well(tmp_path, monkeypatch, pauses):
    path = tmp_path / "a.txt"
    path.write_text("old")
    held(monkeypatch, "unlink", 2)
    whole_files.remove_file(path)
    assert not path.exists() and len(pauses) == 2
    whole_files.remove_file(path)  # what is gone is gone
    path.write_text("old")
    copyfile, left = shutil.copyfile, [2]

    def fails(*arguments):
        left[0] -= 1
        if left[0] >= 0:
            raise PermissionError(errno.EACCES, "used by another process")
        return copyfile(*arguments)

    monkeypatch.setattr(shutil, "copyfile", fails)
    whole_files.copy_file(path, tmp_path / "b.txt")
    assert contents(tmp_path) == {"a.txt": "old", "b.txt": "old"}


def test_other_errors_are_not_waited_for(tmp_path, monkeypatch, pauses):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with (
        pytest.raises(OSError, match="No space"),
        atomic_write(tmp_path / "a") as partial,
    ):
        partial.write_text("new")
    assert pauses == []


def test_a_folder_that_may_not_be_written_to_is_told_at_once(
    tmp_path, monkeypatch, pauses
):
    held(monkeypatch, "replace", 1)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # also of root
    with pytest.raises(PermissionError), atomic_write(tmp_path / "a.txt") as partial:
        partial.write_text("new")
    assert pauses == []


def test_what_takes_the_place_while_it_is_waited_for_stays(
    tmp_path, monkeypatch, pauses
):
    path = tmp_path / "cats"
    held(monkeypatch, "replace", 1)
    monkeypatch.setattr(whole_files.time, "sleep", lambda _: path.mkdir())
    with pytest.raises(FileExistsError), atomic_folder(path) as folder:
        (folder / "a.txt").write_text("mine")
    assert list(path.iterdir()) == []


def test_a_rename_may_take_its_time(tmp_path, monkeypatch):
    """As on a network drive: what was there is whole all the while."""
    path, replace, seen = tmp_path / "a.txt", os.replace, []
    path.write_text("old")

    def slow(*arguments):
        seen.append(path.read_text())
        time.sleep(0.2)
        seen.append(path.read_text())
        replace(*arguments)

    monkeypatch.setattr(os, "replace", slow)
    with atomic_write(path) as partial:
        partial.write_text("new")
    assert seen == ["old", "old"] and contents(tmp_path) == {"a.txt": "new"}


def test_a_text_may_name_a_file_whose_name_is_not_utf_8(tmp_path):
    text = json.dumps({"image": "x\udce9 \u4eba.jpg"}, ensure_ascii=False)
    write_text(tmp_path / "a.json", text)
    written = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert written == '{"image": "x\\udce9 \u4eba.jpg"}'
    assert json.loads(written) == json.loads(text)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_or_quota_names_the_file_that_was_to_be(tmp_path, number):
    """`write` and `close` of Python raise without a name."""
    path = tmp_path / "a.json"
    path.write_text("old")
    with (
        pytest.raises(OSError, match="a.json") as caught,
        atomic_write(path) as partial,
    ):
        partial.write_text("new")
        raise OSError(number, os.strerror(number))
    assert (caught.value.errno, caught.value.filename) == (number, str(path))
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.json"]


# A folder that nobody can write to


@EACH_WAY
def test_a_read_only_folder_is_named_as_the_user_named_it(read_only, way):
    def as_a_library(partial):  # as torch and safetensors do
        raise RuntimeError(f"open file failed: {partial}")

    def as_h5py(partial):
        raise OSError(errno.EROFS, f"unable to create (name = '{partial}')")

    for write in (pathlib.Path.touch, as_a_library, as_h5py):
        with (
            pytest.raises(OSError, match=r"ro/w\.pth|/ro'") as error,
            way(read_only / "w.pth") as partial,
        ):
            write(partial)
        assert error.value.errno == errno.EROFS
        assert "partial" not in str(error.value)
    for path in (read_only / "w.pth", read_only / "new" / "w.pth", read_only):
        with pytest.raises(OSError, match=re.escape(os.fspath(path))):
            check_may_be_written(path)


@EACH_WAY
def test_an_error_within_names_the_file_of_the_user(tmp_path, way):
    """A name that is too long, a drive that fails: whatever a system may refuse."""
    with (
        pytest.raises(OSError, match=r"/long\.txt'") as error,
        way(tmp_path / "w") as partial,
    ):
        path = partial / "long.txt"
        raise OSError(errno.EIO, os.strerror(errno.EIO), os.fspath(path))
    assert "partial" not in str(error.value)
    mine = FileNotFoundError(errno.ENOENT, "No image", "mine.jpg")
    with pytest.raises(FileNotFoundError) as error, way(tmp_path / "w"):
        raise mine
    assert error.value is mine


def test_a_folder_that_may_be_written_to_stays_as_it_is(tmp_path):
    check_may_be_written(tmp_path / "new" / "deep" / "a.json")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("write", [atomic_write, atomic_folder, atomic_write_all])
def test_an_output_below_a_file_names_that_file(tmp_path, write):
    (tmp_path / "notes.txt").write_text("mine")
    out = tmp_path / "notes.txt" / "new"
    with (
        pytest.raises(NotADirectoryError, match=r"A folder is needed .*notes\.txt'"),
        write(out),
    ):
        pytest.fail("it began to write")
    assert (tmp_path / "notes.txt").read_text() == "mine"
