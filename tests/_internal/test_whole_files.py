import errno
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import types

import pytest

from effdet_keras._internal import whole_files
from effdet_keras._internal.whole_files import new_folder, replacing, replacing_together

ROOT = pathlib.Path(__file__).parents[2]


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
    from effdet_keras._internal.whole_files import (
        new_folder, replacing, replacing_together)
    def kill(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)
    folder = pathlib.Path(sys.argv[1])
"""


def aged(path, seconds=7200):
    for item in (*path.rglob("*"), path):
        os.utime(item, (time.time() - seconds,) * 2)


@pytest.fixture
def gone():
    """The id of a process that no longer runs."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


# One file


def test_a_file_is_there_only_when_the_block_is_done(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    with replacing(path) as partial:
        partial.write_text("new")
        assert not path.exists()
        assert partial.parent == path.parent
        assert partial.suffix == ".txt"
    assert contents(tmp_path) == {"deep/a.txt": "new"}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("way", [replacing, new_folder, replacing_together])
def test_an_error_keeps_what_was_there(tmp_path, way, error):
    (tmp_path / "a.txt").write_text("old")
    name = "a" if way is new_folder else "a.txt"
    with pytest.raises(error), way(tmp_path / name) as partial:
        path = partial if way is replacing else partial / "a.txt"
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
        with replacing(folder / "a.txt") as partial:
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
    with replacing(path) as first, replacing(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert contents(tmp_path) == {"a.txt": "first"}  # it is the last to leave


def test_a_name_of_254_bytes_can_be_written(tmp_path):
    with replacing(tmp_path / f"{'é' * 125}.txt") as partial:
        partial.write_text("new")
    assert list(contents(tmp_path).values()) == ["new"]


def test_paths_may_be_strings_and_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with replacing("a.txt") as partial:
        partial.write_text("new")
    assert contents(tmp_path) == {"a.txt": "new"}


def test_the_file_has_the_permissions_that_the_user_gives_new_files(tmp_path):
    (tmp_path / "plain.txt").write_text("")
    with replacing(tmp_path / "a.txt") as partial:
        partial.write_text("new")
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("way", [replacing, new_folder, replacing_together])
def test_an_address_makes_no_folder(tmp_path, monkeypatch, way):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="gsutil"), way("gs://bucket/a"):
        raise AssertionError("not reached")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("way", [replacing, new_folder, replacing_together])
def test_a_folder_that_is_read_only_is_named(tmp_path, monkeypatch, way):
    def refuse(path, *args, **kwargs):  # root may write anywhere
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(pathlib.Path, "touch", refuse)
    with pytest.raises(PermissionError) as caught, way(tmp_path / "a"):
        raise AssertionError("not reached")
    assert caught.value.filename == tmp_path
    assert "cannot be written to: Permission denied" in str(caught.value)


@pytest.mark.parametrize("way", [replacing, new_folder, replacing_together])
def test_a_folder_below_a_file_is_named(tmp_path, way):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="'.*file'"), way(tmp_path / "file" / "a"):
        raise AssertionError("not reached")


def test_a_folder_is_not_replaced_by_a_file(tmp_path):
    with pytest.raises(IsADirectoryError, match=tmp_path.name), replacing(tmp_path):
        raise AssertionError("not reached")


def test_a_block_that_writes_nothing_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "a.txt"):
        pass
    assert contents(tmp_path) == {"a.txt": "old"}


# A new folder


def test_a_folder_is_there_only_when_the_block_is_done(tmp_path):
    path = tmp_path / "deep" / "cats"
    with new_folder(path) as folder:
        (folder / "a.txt").write_text("new")
        assert not path.exists()
    assert contents(tmp_path) == {"deep/cats/a.txt": "new"}


def test_a_kill_leaves_no_folder_of_that_name(tmp_path):
    found = killed_in(
        """
        with new_folder(folder / "cats") as partial:
            (partial / "a.txt").write_text("half")
            kill()
        """,
        tmp_path,
    )
    (name,) = found
    assert name.startswith(".cats.")
    assert not (tmp_path / "cats").exists()


@pytest.mark.parametrize("there", ["file", "folder", "broken link"])
def test_what_is_there_is_never_written_over(tmp_path, there):
    path = tmp_path / "cats"
    if there == "file":
        path.write_text("old")
    elif there == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    with pytest.raises(FileExistsError, match="Name another.*cats"), new_folder(path):
        raise AssertionError("not reached")
    assert os.listdir(tmp_path) == ["cats"]


def test_a_folder_that_appears_meanwhile_is_not_replaced(tmp_path):
    path = tmp_path / "cats"
    with pytest.raises(FileExistsError), new_folder(path) as folder:
        (folder / "a.txt").write_text("mine")
        path.mkdir()
        (path / "a.txt").write_text("theirs")
    assert contents(tmp_path) == {"cats/a.txt": "theirs"}


# Several files


def write_pair(folder, text):
    with replacing_together(folder / "a.index") as new:
        for name in ("a.index", "a.data", "part"):
            if name == "part":
                (new / name).mkdir()
                (new / name / f"{text}.txt").write_text(text)
            else:
                (new / name).write_text(text)


def pair(text):
    return {"a.index": text, "a.data": text, f"part/{text}.txt": text}


def test_several_files_take_their_places_and_folders_are_replaced_whole(tmp_path):
    (tmp_path / "other").write_text("other")
    for text in ("old", "new"):
        write_pair(tmp_path, text)
        assert contents(tmp_path) == {"other": "other", **pair(text)}
    assert sorted(os.listdir(tmp_path)) == ["a.data", "a.index", "other", "part"]


def test_the_file_that_is_named_comes_last(tmp_path, monkeypatch):
    replace, seen = os.replace, []

    def note(source, target):
        seen.append(pathlib.Path(target).name)
        replace(source, target)

    monkeypatch.setattr(whole_files.os, "replace", note)
    write_pair(tmp_path, "new")
    assert seen == ["a.data", "part", "a.index"]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("succeeding", range(8))
def test_a_rename_that_fails_undoes_those_before_it(
    tmp_path, monkeypatch, succeeding, links, is_first
):
    if not is_first:
        write_pair(tmp_path, "old")
    before = contents(tmp_path)
    replace, calls = os.replace, []

    def replace_until(source, target):
        calls.append(target)
        if len(calls) == succeeding + 1:
            raise OSError("no space left")
        replace(source, target)

    def no_links(*args, **kwargs):
        raise OSError("no links here")

    monkeypatch.setattr(whole_files.os, "replace", replace_until)
    if not links:
        monkeypatch.setattr(whole_files.os, "link", no_links)
    # Three renames, and one more for each thing that is there and not linked.
    renames = 3 if is_first else 4 if links else 6
    if succeeding >= renames:
        write_pair(tmp_path, "new")
        assert contents(tmp_path) == pair("new")
        return
    with pytest.raises(OSError, match="no space"):
        write_pair(tmp_path, "new")
    assert contents(tmp_path) == before


def test_a_kill_between_the_renames_keeps_the_old_files(tmp_path):
    for name in ("a.data", "a.index"):
        (tmp_path / name).write_text("old")
    found = killed_in(
        """
        replace = os.replace
        def one(source, target):
            if pathlib.Path(target).name == "a.index":
                kill()
            replace(source, target)
        os.replace = one
        with replacing_together(folder / "a.index") as new:
            (new / "a.data").write_text("new")
            (new / "a.index").write_text("new")
        """,
        tmp_path,
    )
    assert found.pop("a.data") == "new"
    assert found.pop("a.index") == "old"
    (hidden,) = (path for path in tmp_path.iterdir() if path.name.startswith("."))
    assert contents(hidden / "old") == {"a.data": "old", "a.index": "old"}
    aged(hidden)
    with replacing(tmp_path / "b") as partial:
        partial.write_text("")
    assert contents(hidden / "old") == {"a.data": "old", "a.index": "old"}


def test_old_files_stay_where_undoing_fails(tmp_path, monkeypatch):
    write_pair(tmp_path, "old")

    def fail(source, target):
        raise OSError("the disk is gone")

    def remove_target(source, target, **kwargs):
        os.rename(source, target)  # as where there are no links

    monkeypatch.setattr(whole_files.os, "link", remove_target)
    monkeypatch.setattr(whole_files.os, "replace", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        write_pair(tmp_path, "new")
    (hidden,) = (path for path in tmp_path.iterdir() if path.name.startswith("."))
    assert contents(hidden / "old") == {"a.data": "old"}


# What a kill leaves


def leftover(folder, process, is_folder=False):
    path = folder / f".a.{process}-0123abcd.partial{'' if is_folder else '.txt'}"
    if is_folder:
        path.mkdir()
        (path / "half.txt").write_text("half")
    else:
        path.write_text("half")
    return path


def write_something(folder):
    with replacing(folder / "b.txt") as partial:
        partial.write_text("new")


@pytest.mark.parametrize(
    ("process", "is_folder", "seconds", "is_removed"),
    [
        ("gone", False, 7200, True),
        ("gone", True, 7200, True),
        ("gone", False, 3000, False),
        ("parent", False, 7200, False),
        ("own", False, 7200, True),  # in a container all have number 1
    ],
)
def test_what_an_ended_process_left_is_removed_when_it_is_an_hour_old(
    tmp_path, gone, process, is_folder, seconds, is_removed
):
    numbers = {"gone": gone, "parent": os.getppid(), "own": os.getpid()}
    path = leftover(tmp_path, numbers[process], is_folder)
    aged(path, seconds)
    write_something(tmp_path)
    assert path.exists() != is_removed


def test_a_folder_with_a_file_that_was_just_written_is_kept(tmp_path, gone):
    path = leftover(tmp_path, gone, is_folder=True)
    aged(path)
    os.utime(path / "half.txt")
    write_something(tmp_path)
    assert path.exists()


def test_what_this_process_writes_is_kept(tmp_path):
    with replacing(tmp_path / "a.txt") as partial:
        partial.write_text("new")
        aged(partial)
        whole_files._last_look.clear()
        write_something(tmp_path)
        assert partial.exists()


def test_hidden_files_of_others_are_kept(tmp_path):
    names = [".a.partial.txt", "a.1-0123abcd.partial.txt", ".a.1-0123.partial"]
    for name in names:
        (tmp_path / name).write_text("")
        aged(tmp_path / name)
    write_something(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "b.txt"])


def test_a_folder_of_many_files_is_listed_once(tmp_path, monkeypatch):
    listed = []
    iterdir = pathlib.Path.iterdir
    monkeypatch.setattr(
        pathlib.Path, "iterdir", lambda path: (listed.append(path), iterdir(path))[1]
    )
    for number in range(5):
        with replacing(tmp_path / f"{number}.txt") as partial:
            partial.write_text("new")
    assert listed.count(tmp_path) == 1


@pytest.mark.parametrize("write", [replacing, new_folder, replacing_together])
def test_a_full_disk_is_told_whatever_the_library_says(tmp_path, monkeypatch, write):
    def fail():
        with write(tmp_path / "model"):
            raise RuntimeError("words of some library")

    with pytest.raises(RuntimeError, match="words of some library"):
        fail()
    full = types.SimpleNamespace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: full)
    with pytest.raises(OSError, match="No space left.*nothing was changed.*model"):
        fail()
    assert list(tmp_path.iterdir()) == []
