"""A folder at an address: whole files, in order, kept here until they are there."""

import json
import os
import time

import pytest
from support.remote import memory_files

from effdet_keras._internal.folder_lock import LOCK_FILE, open_folder
from effdet_keras._internal.whole_files import atomic_write
from effdet_keras.extras.remote import files as remote_files
from effdet_keras.extras.remote import folder as remote_folder

ADDRESS = "memory://bucket/run"
LOCK = f"/bucket/run/{LOCK_FILE}"


@pytest.fixture(autouse=True)
def quick(memory, monkeypatch):
    """Nothing waits; the thread copies at the end alone, so that tests say when."""
    monkeypatch.setattr(remote_folder, "_LOOK", 600.0)


def opened():
    return open_folder(ADDRESS, "`folder`", lambda name: not name.startswith("other"))


def write(folder, name, text):
    with atomic_write(folder.path / name) as partial:
        partial.write_text(text)


def there():
    names = {name.removeprefix("/bucket/run/"): c for name, c in memory_files().items()}
    return {name: content.decode() for name, content in names.items()}


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


def test_a_failed_copy_is_told_tried_again_and_loses_nothing(monkeypatch, capsys):
    monkeypatch.setattr(remote_folder, "_LOOK", 0.01)
    folder, tries, real = opened(), [], remote_files.put

    def away(path, address):
        if address.endswith(LOCK_FILE):
            return real(path, address)
        tries.append(address)
        raise OSError(f"'{address}' cannot be written: away")

    monkeypatch.setattr(remote_files, "put", away)
    folder.acquire("A run")
    write(folder, "last.keras", "weights")
    while len(tries) < 3:
        time.sleep(0.01)
    with pytest.raises(OSError, match="Not all files could be copied to 'memory:.*way"):
        folder.release()
    said = capsys.readouterr().err
    assert said.count("cannot be copied") == 1 and str(folder.path) in said
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


def test_a_run_that_was_taken_over_writes_no_more(folder, memory):
    another = {"process": 4, "host": "another", "token": "x"}
    memory.pipe_file(LOCK, json.dumps(another).encode())
    folder._remote_lock._beat()
    write(folder, "last.keras", "old")
    with pytest.raises(RuntimeError, match="writes nothing more"):
        folder.release()
    assert set(there()) == {LOCK_FILE}


def test_a_folder_that_cannot_be_fetched_is_left_to_others(quick, monkeypatch):
    folder = opened()
    with monkeypatch.context() as broken:
        broken.setattr(folder, "_files_there", None)  # would raise
        with pytest.raises(TypeError):
            folder.acquire("A run")
    assert LOCK not in memory_files()
    again = opened()
    again.acquire("A run")
    again.release()
