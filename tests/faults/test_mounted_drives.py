"""Run folders on drives that know no flushing and no links, and that go away."""

import errno
import json
import os
import signal
import subprocess
import sys

import pytest

from effdet_keras._internal import folder_lock as heartbeat
from effdet_keras._internal import whole_files
from effdet_keras._internal.folder_lock import LOCK_FILE, FolderLock
from effdet_keras._internal.whole_files import replacing

# A machine with a drive of that kind: writes checkpoints until it is killed.
WRITES = """
import errno, os, pathlib, socket, sys
sys.argv[0] = "effdet-keras"  # which imports no more than it uses
from effdet_keras._internal.folder_lock import FolderLock
from effdet_keras._internal.whole_files import replacing

def refused(*_, **__):
    raise OSError(errno.ENOTSUP, "Operation not supported")

os.fsync = os.link = refused
socket.gethostname = lambda: "the machine before"
folder = pathlib.Path(sys.argv[1])
FolderLock(folder).acquire("A training")
for number in range(1, 10**9):
    with replacing(folder / "last.keras") as partial:
        partial.write_text(f"{number} " * 10_000)
    if number == 5:
        print("written", flush=True)
"""


@pytest.fixture
def drive(monkeypatch):
    """This machine's drive: as the one of the machine before."""

    def refused(*_, **__):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "fsync", refused)
    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(heartbeat, "_SILENT", 0.1)
    monkeypatch.setattr(heartbeat, "_LOOK", 0.01)


def test_the_next_machine_goes_on_with_what_the_one_before_left(tmp_path, drive):
    command = [sys.executable, "-c", WRITES, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "written\n"
        process.send_signal(signal.SIGKILL)
    assert json.loads((tmp_path / LOCK_FILE).read_text())["host"].endswith("before")
    numbers = set((tmp_path / "last.keras").read_text().split())
    assert len(numbers) == 1 and int(numbers.pop()) >= 5  # one whole file
    lock = FolderLock(tmp_path)
    lock.acquire("A training")
    with replacing(tmp_path / "last.keras") as partial:
        partial.write_text("on")
    assert (tmp_path / "last.keras").read_text() == "on"
    lock.release()
    assert not (tmp_path / LOCK_FILE).exists()


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOTCONN, "not connected"), (errno.ENOSPC, "No space left")],
)
def test_a_drive_that_is_away_or_full_is_an_error_and_leaves_the_file(
    tmp_path, monkeypatch, number, said
):
    (tmp_path / "last.keras").write_text("epoch 1")

    def fails(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(whole_files.os, "fsync", fails)
    with (
        pytest.raises(OSError, match=said),
        replacing(tmp_path / "last.keras") as partial,
    ):
        partial.write_text("epoch 2")
    assert [p.name for p in tmp_path.iterdir()] == ["last.keras"]
    assert (tmp_path / "last.keras").read_text() == "epoch 1"
