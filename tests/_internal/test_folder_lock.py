"""One process at a time has a folder, and one that was killed has none."""

import json
import os
import subprocess
import sys
import time

import pytest
from support.remote import memory_files

from effdet_keras._internal import folder_lock
from effdet_keras._internal.folder_lock import LOCK_FILE, FolderLock

# A drive without links, as those that are mounted over a network may be.
HOLDS = """
import os, sys, time
sys.argv[0] = "effdet-keras"  # which imports no more than it uses
os.link = None
from effdet_keras._internal import folder_lock
from effdet_keras._internal.whole_files import replacing
folder_lock._EVERY = 0.05
folder_lock.FolderLock(sys.argv[1]).acquire("A training")
with replacing(sys.argv[1] + "/last.keras") as partial:
    partial.write_text("half")
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has the folder."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


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
    with folder_lock.replacing_at(folder_lock.path_of(folder) / LOCK_FILE) as partial:
        partial.write_text(text)


def of_another_machine(**more):
    return json.dumps({"process": 4, "host": "another", "token": "x", **more})


def test_a_process_that_runs_keeps_its_folder(holder, tmp_path):
    lock = FolderLock(tmp_path)
    with pytest.raises(RuntimeError, match=f"in use by process {holder.pid} on"):
        lock.acquire("A training")
    lock.release()  # of another it releases nothing
    assert (tmp_path / LOCK_FILE).exists()


def test_what_a_killed_process_left_is_taken_over(holder, tmp_path):
    holder.kill()
    holder.wait()
    lock = FolderLock(tmp_path)
    lock.acquire("A training")
    assert json.loads(lock._read())["process"] == os.getpid()
    assert os.listdir(tmp_path) == [LOCK_FILE]  # and nothing half written
    lock.release()
    assert os.listdir(tmp_path) == []


def test_a_process_does_not_lock_itself_out(tmp_path):
    FolderLock(tmp_path).acquire("A training")
    FolderLock(tmp_path).acquire("A training")
    assert os.listdir(tmp_path) == [LOCK_FILE]


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
