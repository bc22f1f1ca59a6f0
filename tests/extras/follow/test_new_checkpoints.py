"""Checkpoints taken from a folder into which a training writes."""

import json
import os
import shutil
import zipfile

import pytest

from effdet_keras.extras.follow import NewCheckpoints


def write(path, epoch):
    """A file that is an archive as far as it tells what it is."""
    info = {"format": 1, "versions": {"effdet_keras": "0"}, "epoch": epoch}
    info["created"] = f"2026-01-01T00:00:{epoch:02}+00:00"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("archive.json", json.dumps(info))
        archive.writestr("weights", os.urandom(5000))


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def taken(folder, tmp_path_factory):
    """Takes what is new: pairs of file and epoch."""
    copy = tmp_path_factory.mktemp("copies") / "copy.keras"
    checkpoints = NewCheckpoints(folder)

    def take():
        found = []
        while (one := checkpoints.take(copy)) is not None:
            found.append((one[0], one[1]["epoch"]))
        return found

    return take


@pytest.mark.smoke
def test_the_last_checkpoint_is_taken_each_time_that_it_is_replaced(folder, taken):
    assert taken() == []
    for epoch in (1, 2):
        write(folder / "new", epoch)
        os.replace(folder / "new", folder / "last.keras")
        assert taken() == [("last.keras", epoch)] and taken() == []


def test_numbered_ones_come_in_their_order_and_none_comes_twice(
    folder, taken, tmp_path_factory
):
    for name, epoch in (("b", 1), ("a", 2), ("last", 3), ("best", 1)):
        write(folder / f"{name}.keras", epoch)
    shutil.copy(folder / "last.keras", folder / "c.keras")
    shutil.copy(folder / "last.keras", folder / "best.previous.keras")
    write(folder / ".hidden.partial.keras", 9)
    for name in ("last.earlier", "step-00000090.earlier"):  # of another training
        write(folder / f"{name}.keras", 9)
    assert [epoch for _, epoch in taken()] == [1, 2, 3]
    # What was evaluated before is not taken.
    known = {(epoch, f"2026-01-01T00:00:0{epoch}+00:00") for epoch in (1, 2)}
    copy = tmp_path_factory.mktemp("copies") / "copy.keras"
    assert NewCheckpoints(folder, known).take(copy)[1]["epoch"] == 3
