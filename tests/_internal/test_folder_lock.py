"""One process at a time has a folder, and one that was killed has none."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from effdet_keras._internal import folder_lock, whole_files
from effdet_keras._internal.folder_lock import LOCK_FILE, FolderLock
from effdet_keras._internal.whole_files import replacing

HOLDS = """
import sys, time
sys.argv[0] = "effdet-keras"  # which imports no more than it uses
from effdet_keras._internal.folder_lock import FolderLock
FolderLock(sys.argv[1]).acquire("A training")
print("held", flush=True)
time.sleep(600)
"""


def started(folder, text=HOLDS):
    """Another process, which has said that it is so far."""
    command = [sys.executable, "-c", text, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def holder(tmp_path):
    """Another process that has the folder."""
    with started(tmp_path) as process:
        yield process
        process.kill()


def test_another_process_is_refused_and_told_who_has_it(holder, tmp_path):
    lock = FolderLock(tmp_path)
    cure = f"process {holder.pid} on .* remove the file '{re.escape(str(lock.file))}'"
    with pytest.raises(RuntimeError, match=cure):
        lock.acquire("A training")
    lock.release()  # of another it releases nothing
    assert os.listdir(tmp_path) == [LOCK_FILE]


def test_what_a_killed_process_left_is_taken_over(holder, tmp_path):
    holder.kill()
    holder.wait()
    lock = FolderLock(tmp_path)
    lock.acquire("A training")
    assert json.loads(lock.file.read_text())["process"] == os.getpid()
    lock.release()
    assert os.listdir(tmp_path) == []


def test_a_process_does_not_lock_itself_out(tmp_path):
    FolderLock(tmp_path).acquire("A training")
    FolderLock(tmp_path).acquire("A training")
    assert os.listdir(tmp_path) == [LOCK_FILE]


@pytest.mark.parametrize(
    "owner", ['{"process": 4, "host": "another"}', "", "[]", '{"process": "x"}']
)
def test_where_nobody_knows_the_owner_the_lock_stays(tmp_path, owner):
    (tmp_path / LOCK_FILE).write_text(owner)
    with pytest.raises(RuntimeError, match="is in use by"):
        FolderLock(tmp_path).acquire("A training")
    assert (tmp_path / LOCK_FILE).read_text() == owner


def test_a_number_that_another_process_has_by_now_counts_as_ended(tmp_path):
    lock = FolderLock(tmp_path)
    lock.acquire("A training")
    owner = json.loads(lock.file.read_text())
    if owner["started"] is None:
        pytest.skip("this system does not say when a process began")
    lock.file.write_text(json.dumps(owner | {"process": 1, "started": "0"}))
    lock.acquire("A training")
    assert json.loads(lock.file.read_text())["process"] == os.getpid()


def test_without_links_the_file_is_made_in_place(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refused)
    lock = FolderLock(tmp_path)
    lock.acquire("A training")
    assert os.listdir(tmp_path) == [LOCK_FILE]
    assert not lock._create()


def of_another_machine(folder, **more):
    owner = {"process": 4, "host": "another", "started": "1", "signs": 3, **more}
    (folder / LOCK_FILE).write_text(json.dumps(owner))
    return owner


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(folder_lock, "_SILENT", 0.1)
    monkeypatch.setattr(folder_lock, "_LOOK", 0.01)
    monkeypatch.setattr(folder_lock, "_EVERY", 0.01)


def test_what_a_machine_left_that_gives_no_sign_is_taken_over(tmp_path, quick, capsys):
    of_another_machine(tmp_path)
    lock = FolderLock(tmp_path)
    lock.acquire("A training")
    assert "Looking whether" in capsys.readouterr().out
    lock.check()
    lock.release()
    assert os.listdir(tmp_path) == []


def test_a_machine_that_gives_signs_keeps_its_folder(tmp_path, quick, monkeypatch):
    owner = of_another_machine(tmp_path)

    def falls_silent(read, first):
        of_another_machine(tmp_path, signs=4)
        return read() == first

    monkeypatch.setattr(folder_lock, "falls_silent", falls_silent)
    with pytest.raises(RuntimeError, match="process 4 on another"):
        FolderLock(tmp_path).acquire("A training")
    assert json.loads((tmp_path / LOCK_FILE).read_text()) == owner | {"signs": 4}


def test_who_has_a_folder_gives_signs_until_it_is_taken_away(tmp_path, quick):
    lock = FolderLock(tmp_path)
    lock.acquire("A training")
    while json.loads(lock.file.read_text())["signs"] < 2:
        time.sleep(0.01)
    of_another_machine(tmp_path)
    while not lock.is_lost:
        time.sleep(0.01)
    with pytest.raises(RuntimeError, match="Another process has taken"):
        lock.check()
    lock.release()
    assert json.loads(lock.file.read_text())["host"] == "another"


WRITES = HOLDS.replace(
    'print("held", flush=True)',
    """
from effdet_keras._internal.whole_files import replacing
with replacing(sys.argv[1] + "/last.keras") as partial:
    partial.write_text("half")
    print("held", flush=True)
    time.sleep(600)
""",
)


def test_what_a_killed_process_left_half_written_is_removed_at_once(tmp_path):
    with started(tmp_path, WRITES) as killed:
        killed.kill()
    assert len(os.listdir(tmp_path)) == 2
    lock = FolderLock(tmp_path)
    lock.acquire("A training")
    assert os.listdir(tmp_path) == [LOCK_FILE]


def test_what_a_process_of_a_silent_machine_left_is_removed_too(tmp_path, quick):
    of_another_machine(tmp_path)
    number = "0123abcd" + whole_files._machine("another")
    for process in (4, 5):  # of the other nothing is known
        (tmp_path / f".last.{process}-{number}.partial.keras").write_text("half")
    FolderLock(tmp_path).acquire("A training")
    names = set(os.listdir(tmp_path))
    assert names == {LOCK_FILE, f".last.5-{number}.partial.keras"}


def test_what_a_living_writer_writes_is_never_removed(tmp_path):
    """It needs no lock to write into the folder, and no other machine is known."""
    text = WRITES.replace('FolderLock(sys.argv[1]).acquire("A training")', "")
    unknown = tmp_path / ".last.4-0123abcd.partial.keras"
    unknown.write_text("of a version that did not name the machine")
    with started(tmp_path, text) as writer, replacing(tmp_path / "own") as partial:
        partial.write_text("of this process")
        before = set(os.listdir(tmp_path))
        FolderLock(tmp_path).acquire("A training")
        assert set(os.listdir(tmp_path)) == before | {LOCK_FILE}
        writer.kill()
