"""A folder at an address: whole files, in order, kept here until they are there."""

import json
import os
import time

import pytest
from support.remote import memory_files

from effdet_keras._internal import folder_lock as heartbeat
from effdet_keras._internal.folder_lock import LOCK_FILE, this_process
from effdet_keras._internal.remote_path import open_folder
from effdet_keras._internal.whole_files import replacing
from effdet_keras.extras.remote import files as remote_files
from effdet_keras.extras.remote import folder as remote_folder

ADDRESS = "memory://bucket/run"
LOCK = f"/bucket/run/{LOCK_FILE}"


@pytest.fixture(autouse=True)
def quick(memory, monkeypatch):
    """Nothing waits; the thread copies at the end alone, so that tests say when."""
    monkeypatch.setattr(remote_folder, "_LOOK", 600.0)
    monkeypatch.setattr(remote_folder, "_AGAIN", 0.0)
    monkeypatch.setattr(remote_folder, "_SETTLE", 0.0)
    monkeypatch.setattr(heartbeat, "_SILENT", 0.1)
    monkeypatch.setattr(heartbeat, "_LOOK", 0.01)


def opened():
    return open_folder(ADDRESS, "`folder`", lambda name: not name.startswith("other"))


def write(folder, name, text):
    with replacing(folder.path / name) as partial:
        partial.write_text(text)


def there():
    names = {name.removeprefix("/bucket/run/"): c for name, c in memory_files().items()}
    return {name: content.decode() for name, content in names.items()}


def another_process():
    return this_process() | {"host": "another", "token": "x", "signs": 4}


def in_another_cache(monkeypatch, tmp_path):
    """As if the next folder were opened on another machine."""
    monkeypatch.setenv("EFFDET_KERAS_CACHE", str(tmp_path / "another"))


@pytest.fixture
def folder(quick):
    """A folder of this process, which it has begun to write to."""
    folder = opened()
    folder.acquire("A run")
    return folder


def test_what_is_written_is_there_at_the_end_and_on_another_machine(
    folder, tmp_path, monkeypatch
):
    assert json.loads(memory_files()[LOCK])["process"] == os.getpid()
    write(folder, "archive/last.keras", "weights")
    write(folder, "log.jsonl", "line")
    (folder.path / ".hidden").write_text("mine")
    folder.release()
    assert there() == {"archive/last.keras": "weights", "log.jsonl": "line"}
    in_another_cache(monkeypatch, tmp_path)
    other = opened()
    assert (other.path / "archive" / "last.keras").read_text() == "weights"
    assert other.path != folder.path


def test_the_thread_copies_while_the_training_goes_on(monkeypatch):
    monkeypatch.setattr(remote_folder, "_LOOK", 0.01)
    folder = opened()
    folder.acquire("A run")
    write(folder, "last.keras", "weights")
    while "last.keras" not in there():
        time.sleep(0.01)
    folder.release()


def test_files_are_copied_in_the_order_in_which_they_were_written(monkeypatch):
    order = []
    real = remote_files.put

    def put(path, address):
        order.append(address.removeprefix(f"{ADDRESS}/"))
        return real(path, address)

    folder = opened()
    folder.acquire("A run")
    monkeypatch.setattr(remote_files, "put", put)
    for number, name in enumerate(["b.keras", "log.jsonl", "a.keras"]):
        write(folder, name, name)
        os.utime(folder.path / name, (number, number))
    folder.release()
    assert order == ["b.keras", "log.jsonl", "a.keras"]


def test_only_what_changed_is_copied_and_what_is_gone_is_removed(folder, monkeypatch):
    write(folder, "a.keras", "a")
    write(folder, "b.keras", "b")
    folder._copy_all()
    (folder.path / "a.keras").unlink()
    monkeypatch.setattr(remote_files, "put", None)  # would raise
    folder._copy_all()
    assert set(there()) == {"b.keras", LOCK_FILE}
    monkeypatch.undo()


def test_a_file_that_grows_is_not_copied_each_second(folder, monkeypatch):
    (folder.path / "log.txt").write_text("one")
    folder._copy_all()
    with open(folder.path / "log.txt", "a") as file:
        file.write(" two")
    folder._copy_all()
    assert there()["log.txt"] == "one"
    folder.release()
    assert there()["log.txt"] == "one two"


def test_a_file_that_grows_is_copied_though_the_clock_was_set_back(folder, monkeypatch):
    monkeypatch.setattr(remote_folder, "_GROWING", 0.0)
    (folder.path / "log.txt").write_text("one")
    folder._copy_all()
    yesterday = time.time() - 86_400
    monkeypatch.setattr(time, "time", lambda: yesterday)
    with open(folder.path / "log.txt", "a") as file:
        file.write(" two")
    folder._copy_all()
    assert there()["log.txt"] == "one two"
    folder.release()


def test_a_failed_copy_is_told_tried_again_and_loses_nothing(
    folder, monkeypatch, capsys
):
    write(folder, "last.keras", "weights")
    real = remote_files.put

    def away(path, address):
        raise OSError(f"'{address}' cannot be written: away")

    monkeypatch.setattr(remote_files, "put", away)
    for _ in range(2):
        try:
            folder._copy_all()
        except OSError as error:
            folder._tell_failure(error)
    said = capsys.readouterr().err
    assert said.count("cannot be copied") == 1 and str(folder.path) in said
    with pytest.raises(
        OSError, match="Not all files could be copied to 'memory:.*away"
    ):
        folder.release()
    assert (folder.path / "last.keras").read_text() == "weights"
    monkeypatch.setattr(remote_files, "put", real)
    again = opened()  # the same command, later
    again.acquire("A run")
    again.release()
    assert there() == {"last.keras": "weights"}


def test_a_failure_at_the_end_does_not_hide_the_error_that_ended_it(
    folder, monkeypatch, capsys
):
    write(folder, "last.keras", "weights")
    monkeypatch.setattr(remote_files, "put", None)
    with pytest.raises(KeyboardInterrupt):
        try:
            raise KeyboardInterrupt
        finally:
            folder.release()
    assert "Not all files could be copied" in capsys.readouterr().err


def test_what_another_machine_wrote_since_counts(folder, tmp_path, monkeypatch, memory):
    write(folder, "last.keras", "epoch 1")
    folder.release()
    write(folder, "last.keras", "epoch 2, never copied")
    assert (opened().path / "last.keras").read_text() == "epoch 2, never copied"
    memory.pipe_file("/bucket/run/last.keras", b"epoch 7 of another machine")
    assert (opened().path / "last.keras").read_text() == "epoch 7 of another machine"


def test_what_is_not_ours_is_neither_fetched_nor_removed(memory):
    memory.pipe_file("/bucket/run/other.jpg", b"photo")
    folder = opened()
    assert folder.others == ("other.jpg",) and not list(folder.path.iterdir())
    folder.acquire("A run")
    folder.release()
    assert there() == {"other.jpg": "photo"}


def test_another_run_that_gives_signs_is_not_disturbed(memory, monkeypatch):
    owner = another_process()
    memory.pipe_file(LOCK, json.dumps(owner).encode())
    folder = opened()

    def falls_silent(read, first):
        memory.pipe_file(LOCK, json.dumps(owner | {"signs": 5}).encode())
        return read() == first

    monkeypatch.setattr(heartbeat, "falls_silent", falls_silent)
    with pytest.raises(
        RuntimeError, match=r"'memory://bucket/run' is in use by .*anoth"
    ):
        folder.acquire("A run")
    assert json.loads(memory_files()[LOCK])["host"] == "another"


def test_one_that_gives_no_sign_any_more_is_taken_over(memory):
    memory.pipe_file(LOCK, json.dumps(another_process()).encode())
    folder = opened()
    folder.acquire("A run")
    assert json.loads(memory_files()[LOCK])["host"] != "another"
    folder.release()
    assert LOCK not in memory_files()


def test_of_two_at_once_the_one_that_is_not_seen_is_refused(memory, monkeypatch):
    def settle(_):  # the other writes in this second
        memory.pipe_file(LOCK, json.dumps(another_process()).encode())

    folder = opened()
    monkeypatch.setattr(remote_folder.time, "sleep", settle)
    with pytest.raises(RuntimeError, match="must have its folder for itself"):
        folder.acquire("A run")


def test_a_run_that_was_taken_over_writes_no_more(folder, memory, monkeypatch):
    memory.pipe_file(LOCK, json.dumps(another_process()).encode())
    assert folder._remote_lock._beat() is False
    write(folder, "last.keras", "old")
    with pytest.raises(RuntimeError, match="Another process has taken"):
        folder.check()
    with pytest.raises(RuntimeError, match="nothing more is written"):
        folder.release()
    assert set(there()) == {LOCK_FILE}


def test_a_sign_of_life_changes_the_file(folder, memory):
    before = memory_files()[LOCK]
    assert folder._remote_lock._beat()
    assert memory_files()[LOCK] != before
    folder.release()
