"""One process at a time has a folder, and one that was killed has none."""

import contextlib
import errno
import gc
import json
import os
import socket
import subprocess
import sys
import time

import filelock
import pytest
from support.remote import memory_files

from effdet_keras._internal import folder_lock
from effdet_keras._internal.folder_lock import KERNEL_FILE, LOCK_FILE, FolderLock
from effdet_keras._internal.whole_files import atomic_write

# A drive without links, as those that are mounted over a network may be.
HOLDS = """
import os, sys, time
sys.argv[0] = "effdet-keras"  # which imports no more than it uses
os.link = None
from effdet_keras._internal import folder_lock
if sys.argv[2] == "without kernel locks":
    folder_lock._KernelLock.acquire = lambda *_, **__: None
from effdet_keras._internal.whole_files import atomic_write
folder_lock._EVERY = 0.05
lock = folder_lock.FolderLock(sys.argv[1])
lock.acquire("A training")
with atomic_write(sys.argv[1] + "/last.keras") as partial:
    partial.write_text("half")
    print("held", flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def process_that_holds(folder, kind, *command):
    """Another process, which has the folder."""
    command = [*command, sys.executable, "-c", HOLDS, str(folder), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.fixture(params=["with kernel locks", "without kernel locks"])
def holder(request, tmp_path, monkeypatch):
    """Another process that has the folder."""
    if request.param == "without kernel locks":
        monkeypatch.setattr(folder_lock._KernelLock, "acquire", lambda *_, **__: None)
        monkeypatch.setattr(folder_lock, "_LOOK", 0.05)
    with process_that_holds(tmp_path, request.param) as process:
        yield process


@pytest.fixture(params=["with kernel locks", "without kernel locks"])
def each_kind(request, monkeypatch):
    if request.param == "without kernel locks":
        monkeypatch.setattr(folder_lock._KernelLock, "acquire", lambda *_, **__: None)


@pytest.fixture(params=["here", "at an address"])
def folder(request, tmp_path):
    if request.param == "here":
        return str(tmp_path)
    request.getfixturevalue("memory")
    return "memory://bucket/run"


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(folder_lock, "_SILENT", 0.1)
    monkeypatch.setattr(folder_lock, "_LOOK", 0.01)
    monkeypatch.setattr(folder_lock, "_EVERY", 0.01)


def text_in(folder):
    if "://" in folder:
        return memory_files().get(f"/bucket/run/{LOCK_FILE}", b"").decode()
    path = os.path.join(folder, LOCK_FILE)
    return open(path).read() if os.path.exists(path) else ""


def put_text(folder, text):
    with folder_lock.atomic_write_at(
        folder_lock.path_of(folder) / LOCK_FILE
    ) as partial:
        partial.write_text(text)


def of_another_machine(**more):
    return json.dumps({"process": 4, "host": "another", "token": "x", **more})


def test_a_process_that_runs_keeps_its_folder(holder, tmp_path):
    lock = FolderLock(tmp_path)
    with pytest.raises(RuntimeError, match=f"in use by process {holder.pid} on"):
        lock.acquire("A training")
    lock.release()  # of another it releases nothing
    assert (tmp_path / LOCK_FILE).exists()


def test_what_a_killed_process_left_is_taken_over_at_once(
    holder, tmp_path, monkeypatch
):
    holder.kill()
    holder.wait()
    monkeypatch.setattr(folder_lock.time, "sleep", None)  # nothing is waited for
    lock = FolderLock(tmp_path)
    lock.acquire("A training")
    assert json.loads(lock._read())["process"] == os.getpid()
    assert set(os.listdir(tmp_path)) <= {LOCK_FILE, KERNEL_FILE}  # none half written
    lock.release()
    assert set(os.listdir(tmp_path)) <= {KERNEL_FILE}


def test_files_that_others_write_into_the_folder_stay(tmp_path):
    """An export, say, while `eval --store-thresholds` has the lock for a moment."""
    own = tmp_path / ".movie.partial"  # of the user
    own.write_text("mine")
    names = [".0123abcd.partial.tflite", ".0123abcd.partial.keras"]
    for name in names:
        (tmp_path / name).write_text("of a process that was killed long ago")
        os.utime(tmp_path / name, (1e9, 1e9))
    with (
        atomic_write(tmp_path / "a.keras") as first,
        atomic_write(tmp_path / "pets.tflite") as second,
    ):
        for partial in (first, second):
            partial.write_text("half")
        lock = FolderLock(tmp_path)
        lock.acquire("A training")
        lock.release()
    assert {path.name for path in tmp_path.iterdir()} - {KERNEL_FILE} == {
        "a.keras",
        "pets.tflite",
        ".movie.partial",
    }


@pytest.mark.smoke
def test_two_trainings_of_one_process_do_not_share_a_folder(
    each_kind, tmp_path, quick, monkeypatch
):
    first, second = FolderLock(tmp_path), FolderLock(tmp_path)
    first.acquire("A training")
    with pytest.raises(RuntimeError, match=rf"{os.getpid()} on .*this process"):
        second.acquire("A training")
    assert second.is_held_by_another() and not first.is_held_by_another()
    first.check()
    first.release()
    assert os.listdir(tmp_path) == []
    second.acquire("A training")
    second.release()


def test_a_lock_may_be_taken_again_by_who_has_it(each_kind, tmp_path):
    lock = FolderLock(tmp_path)
    lock.acquire("A training")
    lock.acquire("A training")
    lock.release()
    assert os.listdir(tmp_path) == []


def test_a_lock_that_is_forgotten_is_free(each_kind, tmp_path, monkeypatch):
    """As of a training whose error left nobody to release it."""
    FolderLock(tmp_path).acquire("A training")
    gc.collect()
    monkeypatch.setattr(folder_lock.time, "sleep", None)  # nothing is waited for
    lock = FolderLock(tmp_path)
    assert not lock.is_held_by_another()
    lock.acquire("A training")
    lock.release()
    assert os.listdir(tmp_path) == []


def test_a_process_in_another_container_keeps_its_folder(tmp_path):
    """Its process number means nothing here; the kernel knows it all the same."""
    command = ("unshare", "--pid", "--fork", "--kill-child")
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("this user may make no namespaces")
    with process_that_holds(tmp_path, "with kernel locks", *command) as process:
        number = json.loads((tmp_path / LOCK_FILE).read_text())["process"]
        assert number != process.pid
        with pytest.raises(RuntimeError, match=f"in use by process {number} on"):
            FolderLock(tmp_path).acquire("A training")


def test_numbers_of_other_namespaces_tell_nothing_without_the_kernel(
    tmp_path, quick, monkeypatch, capsys
):
    """On a file system without locks such a process is watched for signs of life."""
    monkeypatch.setattr(folder_lock._KernelLock, "acquire", lambda *_, **__: None)
    owner = {
        "process": 2**22 + 1,  # above all that there are
        "host": socket.gethostname(),
        "boot": folder_lock._boot(),
        "namespace": "pid:[1]",
        "token": "x",
    }
    put_text(str(tmp_path), json.dumps(owner))
    sign = json.dumps({**owner, "signs": 1})
    monkeypatch.setattr(
        folder_lock.time, "sleep", lambda _: put_text(str(tmp_path), sign)
    )
    with pytest.raises(RuntimeError, match="in use by process"):
        FolderLock(tmp_path).acquire("A training")
    owner["namespace"] = folder_lock._namespace()
    put_text(str(tmp_path), json.dumps(owner))
    FolderLock(tmp_path).acquire("A training")  # at once


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_has_signs_of_life(tmp_path, monkeypatch, error):
    def fails(*_, **__):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(filelock.FileLock, "acquire", fails)
    lock = FolderLock(tmp_path)
    lock.acquire("A training")
    assert json.loads(lock._read())["kernel_lock"] is False
    lock.release()
    assert not (tmp_path / LOCK_FILE).exists()


def test_a_file_that_somebody_removes_is_written_again(tmp_path, quick):
    lock = FolderLock(tmp_path)
    lock.acquire("A training")
    (tmp_path / LOCK_FILE).unlink()
    while not (tmp_path / LOCK_FILE).exists():
        time.sleep(0.01)
    lock.check()
    lock.release()


def remove_lock_file(folder):
    (folder_lock.path_of(folder) / LOCK_FILE).unlink()


def test_a_removed_file_takes_no_folder_away(folder, each_kind):
    """As by a clean-up of hidden files, or a mount point that is empty for a moment."""
    lock = FolderLock(folder)
    lock.acquire("A training")
    remove_lock_file(folder)
    lock._beat()
    assert json.loads(text_in(folder))["signs"] == 1
    lock.check()
    lock.release()
    assert text_in(folder) == ""


def test_who_was_silent_for_long_does_not_come_back(folder, monkeypatch):
    """Another one may have had the folder meanwhile, and left it."""
    monkeypatch.setattr(folder_lock._KernelLock, "acquire", lambda *_, **__: None)
    lock = FolderLock(folder)
    lock.acquire("A training")
    remove_lock_file(folder)
    later = time.time() + 1000
    monkeypatch.setattr(time, "time", lambda: later)
    lock._beat()
    with pytest.raises(RuntimeError, match="Another process has taken"):
        lock.check()
    lock.release()
    assert text_in(folder) == ""


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_clock_that_is_set_takes_no_lock_away(holder, tmp_path, monkeypatch, jump):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + jump)
    for path in tmp_path.iterdir():  # as if it were old, or of the future
        os.utime(path, (now - jump, now - jump))
    with pytest.raises(RuntimeError, match=f"in use by process {holder.pid} on"):
        FolderLock(tmp_path).acquire("A training")


@pytest.mark.parametrize("text", [of_another_machine(), ""])
def test_what_gives_no_sign_is_taken_over(folder, quick, capsys, text):
    put_text(folder, text)
    lock = FolderLock(folder)
    lock.acquire("A training")
    assert "Checking whether" in capsys.readouterr().out
    lock.check()
    lock.release()
    assert text_in(folder) == ""


def test_a_machine_that_gives_signs_keeps_its_folder(folder, quick, monkeypatch):
    put_text(folder, of_another_machine(signs=3))
    sign = of_another_machine(signs=4)
    monkeypatch.setattr(folder_lock.time, "sleep", lambda _: put_text(folder, sign))
    with pytest.raises(RuntimeError, match="process 4 on another"):
        FolderLock(folder).acquire("A training")
    monkeypatch.undo()
    assert text_in(folder) == sign


def test_who_has_a_folder_gives_signs_until_it_is_taken_away(folder, quick):
    lock = FolderLock(folder)
    lock.acquire("A training")
    while json.loads(text_in(folder))["signs"] < 2:
        time.sleep(0.01)
    put_text(folder, of_another_machine())
    while not lock._is_lost:
        time.sleep(0.01)
        put_text(folder, of_another_machine())  # a sign may come in between
    with pytest.raises(RuntimeError, match="Another process has taken"):
        lock.check()
    lock.release()
    assert text_in(folder) == of_another_machine()
