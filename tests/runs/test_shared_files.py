"""Files of a run that the first process gives the others."""

import dataclasses
from typing import Any

import pytest

from effdet_keras._internal import processes
from effdet_keras.runs.run_folder import (
    CHECKPOINTS,
    OF_A_RUN,
    RunFolder,
    copy_from_first,
)
from effdet_keras.weights.checkpoint_files import PREVIOUS_FILE


@dataclasses.dataclass
class OneOfTwo:
    """One of two processes, which a test runs one after the other.

    Attributes:
        index: int.
        told: list, what the first process gathered.
    """

    index: int
    told: list
    count: int = 2

    def gather(self, value: Any) -> list[Any]:
        self.told.append(value)
        return self.told


@pytest.fixture
def run_as(monkeypatch):
    """Copies from the first of two folders to the second."""

    def run(first, second, names):
        told = []
        for index, path in enumerate((first, second)):
            monkeypatch.setattr(processes, "_current", [OneOfTwo(index, told)])
            copy_from_first(RunFolder(path), names)

    return run


def test_the_others_get_what_the_first_has_and_lose_what_it_has_not(tmp_path, run_as):
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "archive").mkdir(parents=True)
    (second / "archive").mkdir(parents=True)
    (first / "archive/last.keras").write_bytes(b"new")
    (first / "log.jsonl").write_bytes(b"{}")
    (second / "archive/last.keras").write_bytes(b"old")
    (second / "archive/best.keras").write_bytes(b"of another training")
    (second / "mine.txt").write_bytes(b"kept")

    run_as(first, second, OF_A_RUN)

    files = {
        str(path.relative_to(second)): path.read_bytes()
        for path in second.rglob("*")
        if path.is_file()
    }
    assert files == {
        "archive/last.keras": b"new",
        "log.jsonl": b"{}",
        "mine.txt": b"kept",
    }


def test_all_can_go_on_from_the_last_checkpoint_but_one(tmp_path, run_as):
    """As the first does, where its last one is damaged."""
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "archive").mkdir(parents=True)
    second.mkdir()
    (first / "archive" / PREVIOUS_FILE).write_bytes(b"whole")

    run_as(first, second, CHECKPOINTS)

    assert (second / "archive" / PREVIOUS_FILE).read_bytes() == b"whole"


def test_one_process_keeps_its_files(tmp_path):
    (tmp_path / "archive").mkdir()
    last = tmp_path / "archive" / "last.keras"
    last.write_bytes(b"mine")

    copy_from_first(RunFolder(tmp_path), OF_A_RUN)

    assert last.read_bytes() == b"mine"
