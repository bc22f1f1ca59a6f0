"""The folder of a run: two runs never share one; its log, text, data, shared files."""

import contextlib
import dataclasses
import io
import json
import math
import time
from typing import Any

import numpy as np
import pytest

from effdet_keras._internal import processes
from effdet_keras._internal.whole_files import files_in
from effdet_keras.callbacks import CheckpointArchive
from effdet_keras.data import from_arrays
from effdet_keras.runs import run_folder
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.run_folder import (
    RUN_FILES,
    RunFolder,
    RunLog,
    TextLog,
    copy_from_first,
    file_of_best,
    files_to_resume,
    fingerprint,
    history_of,
    read_rows,
    standard_output_kept,
)
from effdet_keras.train.resume import TrainingPosition
from effdet_keras.weights.checkpoint_files import PREVIOUS_FILE


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.lock():
        folder.begin(RunConfiguration(data="cells"))
    (folder.archive).mkdir()
    (folder.archive / "best.keras").write_text("weights")
    return folder


def test_a_folder_with_a_run_is_refused_unless_it_may_be_overwritten(folder):
    with pytest.raises(FileExistsError, match=r"already has a run.*--overwrite"):
        folder.check_empty(overwrite=False)
    folder.check_empty(overwrite=True)


def test_a_folder_with_something_else_is_never_taken(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match=r"thesis\.tex"):
            RunFolder(tmp_path).check_empty(overwrite=overwrite)
    RunFolder(tmp_path / "new").check_empty(overwrite=False)


def test_a_new_run_removes_the_files_of_the_one_before_and_no_others(folder):
    (folder.path / "notes.txt").write_text("mine")
    folder.log.write_text("{}\n")
    folder.begin(RunConfiguration(data="shapes"))
    assert folder.read_configuration().data == "shapes"
    assert RunFolder(folder.replaced).read_configuration().data == "cells"
    there = sorted(path.name for path in folder.path.iterdir())
    assert there == ["configuration.yaml", "notes.txt", "replaced_run"]
    folder.finish(epoch=1)
    there = sorted(path.name for path in folder.path.iterdir())
    assert there == ["configuration.yaml", "finished.json", "notes.txt"]


@pytest.fixture
def earlier(folder):
    """The files of a run with exports and with files of the user, by name."""
    for name, text in {
        "log.txt": "earlier",
        "archive/best.previous.keras": "earlier",
        "archive/.in_use.json": "of a process that was killed",
        "archive/notes.txt": "mine",
        "tensorboard/train/events.out.tfevents.1.v2": "earlier",
        "export/export_report.json": '{"files": ["a.onnx", "export_report.json"]}',
        "export/a.onnx": "earlier",
        "export/my_notes.txt": "mine",
        "notes.txt": "mine",
    }.items():
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).write_text(text)
    return contents(folder)


def contents(folder):
    return {name: (folder.path / name).read_text() for name in files_in(folder.path)}


def begin_and_stop(folder, *names):
    """Begins a new run, which writes files and then fails."""
    with (
        pytest.raises(KeyboardInterrupt),
        standard_output_kept() as text,
        folder.earlier_run_kept(text),
    ):
        folder.begin(RunConfiguration(data="shapes"))
        text.keep_in(folder.text)
        for name in names:
            (folder.path / name).parent.mkdir(exist_ok=True)
            (folder.path / name).write_text("new")
        raise KeyboardInterrupt


def test_a_new_run_without_a_checkpoint_gives_the_earlier_one_back(folder, earlier):
    begin_and_stop(folder, "log.jsonl", "export/export_report.json")
    assert contents(folder) == earlier


def test_after_a_checkpoint_of_the_new_run_the_earlier_one_stays_aside(
    folder, earlier, capsys
):
    begin_and_stop(folder, "archive/last.keras")
    assert f"still in '{folder.replaced}'" in capsys.readouterr().out
    assert folder.read_configuration().data == "shapes"
    aside = contents(RunFolder(folder.replaced))
    assert aside == {x: y for x, y in earlier.items() if x != "notes.txt"}
    folder.finish(epoch=1)
    assert contents(folder).keys() == {
        "configuration.yaml",
        "finished.json",
        "log.txt",
        "notes.txt",
        "archive/last.keras",
        "archive/notes.txt",
        "export/my_notes.txt",
    }


def test_a_killed_run_without_a_checkpoint_does_not_replace_the_one_before(
    folder, earlier
):
    folder.begin(RunConfiguration(data="shapes"))
    folder.log.write_text("killed")
    aside = contents(RunFolder(folder.replaced))
    folder.begin(RunConfiguration(data="others"))
    assert contents(RunFolder(folder.replaced)) == aside and not folder.log.exists()
    begin_and_stop(folder)
    assert contents(folder) == earlier


@pytest.mark.parametrize("moves", range(9))
@pytest.mark.parametrize("on_the_way", ["there", "back"])
def test_a_kill_while_files_are_moved_loses_none(
    folder, earlier, monkeypatch, on_the_way, moves
):
    put, left = run_folder.put_in_place, iter(range(moves))

    def killed(source, target):
        if next(left, None) is None:
            raise SystemExit
        put(source, target)

    if on_the_way == "back":
        folder.begin(RunConfiguration(data="shapes"))
    monkeypatch.setattr(run_folder, "put_in_place", killed)
    with contextlib.suppress(SystemExit):
        if on_the_way == "back":
            folder._put_back_replaced()
        else:
            folder._set_aside()
    monkeypatch.undo()
    if (folder.replaced / "configuration.yaml").is_file():
        begin_and_stop(folder)
    else:
        with folder.lock():
            pass
    assert contents(folder) == earlier


def test_a_run_that_goes_on_keeps_its_files_and_is_no_longer_finished(folder):
    assert not folder.finished.exists()
    folder.finish(epoch=3)
    assert folder.finished.exists()
    folder.begin(RunConfiguration(data="cells", epochs=9), keeps_files=True)
    assert not folder.finished.exists() and (folder.archive / "best.keras").exists()
    assert folder.read_configuration().epochs == 9


def test_a_run_of_before_keeps_its_validation_images(folder):
    """Its configuration has no `split_by`: they were chosen one by one."""
    folder.begin(RunConfiguration(data="cells"))
    assert folder.read_configuration().split_by == "auto"
    path = folder.path / "configuration.yaml"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(x for x in lines if not x.startswith("split_by:")))
    assert folder.read_configuration().split_by == "image"


def test_a_run_has_its_folder_for_itself(folder, monkeypatch):
    owner = {"process": 1, "host": "another machine"}
    file = folder.path / ".in_use.json"
    file.write_text(json.dumps(owner))
    monkeypatch.setattr(time, "sleep", lambda _: file.write_text(json.dumps([owner])))
    with pytest.raises(RuntimeError, match="another machine"), folder.lock():
        pass


def test_other_data_is_noticed(folder):
    data = {"splits": {"train": {"images": 4, "boxes": 9, "sha256": "a"}}}
    folder.check_same_data(data)  # nothing is known yet
    folder.write_json("data", data)
    folder.check_same_data(data)
    data["splits"]["train"].update(images=5, sha256="b")
    with pytest.raises(RuntimeError, match="its train images are not the same as"):
        folder.check_same_data(data)


def test_a_split_that_is_gone_is_other_data(folder):
    train, test = ({"images": 4, "boxes": 9, "sha256": name} for name in "ab")
    folder.write_json("data", {"splits": {"train": train, "test": test}})
    with pytest.raises(RuntimeError, match="its test images are not .* Received: {}"):
        folder.check_same_data({"splits": {"train": train}})


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"splits": [1]}', "null"])
def test_damaged_data_json_is_named(folder, text):
    (folder.path / "data.json").write_text(text)
    with pytest.raises(RuntimeError, match=r"data\.json' was not written by a run, or"):
        folder.check_same_data({"splits": {}})


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_configuration_is_named(folder, text):
    (folder.path / "configuration.yaml").write_text(text)
    with pytest.raises(RuntimeError, match=r"configuration\.yaml' is empty"):
        folder.read_configuration()


@pytest.mark.parametrize("line", ['{"epoch": 2, "lo', "[1]", "2"])
def test_a_damaged_line_of_the_log_is_named(tmp_path, line):
    (tmp_path / "log.jsonl").write_text(f'{{"epoch": 1}}\n{line}')
    with pytest.raises(RuntimeError, match=r"Line 2 of '.*log\.jsonl' is damaged"):
        read_rows(tmp_path / "log.jsonl")


# --- The log, one line per epoch; and the text of the terminal.


def logged(path, *epochs, done=0):
    log = RunLog(path, TrainingPosition(epoch=done, seconds=50.0 if done else 0.0))
    for epoch, logs in epochs:
        log.on_epoch_begin(epoch)
        log.on_epoch_end(epoch, logs)
    return log


def test_each_epoch_is_a_line(tmp_path):
    path = tmp_path / "log.jsonl"
    assert read_rows(path) == [] and history_of([]) == {}
    logged(path, (0, {"loss": 2.0}), (1, {"loss": float("nan"), "AP": 0.5}))
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["epoch"], first["loss"]) == (1, 2.0) and first["seconds"] >= 0
    assert (second["epoch"], second["loss"], second["AP"]) == (2, None, 0.5)
    history = history_of(read_rows(path))
    assert list(history) == ["loss", "AP"]
    assert history["AP"][1] == 0.5 and math.isnan(history["AP"][0])


def test_a_run_that_goes_on_drops_lines_without_a_checkpoint(tmp_path):
    path = tmp_path / "log.jsonl"
    logged(path, (0, {"loss": 3.0}), (1, {"loss": 2.0}), (2, {"loss": 9.0}))
    log = logged(path, (2, {"loss": 1.0}), done=2)
    assert history_of(log.rows) == {"loss": [3.0, 2.0, 1.0]}
    assert log.rows[2]["seconds"] >= 50.0  # with those before the stop
    assert read_rows(path) == log.rows


def test_the_terminal_is_passed_on_and_kept(tmp_path, capsys):
    path = tmp_path / "log.txt"
    with standard_output_kept() as log:
        print("before")
        log.keep_in(path)
        print("after")
    print("outside")
    assert path.read_text().splitlines()[1:] == ["before", "after"]
    assert capsys.readouterr().out == "before\nafter\noutside\n"


def test_a_path_that_is_not_utf_8_is_kept_as_well(tmp_path):
    log = TextLog(io.StringIO())
    log.keep_in(tmp_path / "log.txt")
    log.write("Written to 'x\udce9.keras'\n")
    log.file.close()
    assert (tmp_path / "log.txt").read_text().endswith("'x\\udce9.keras'\n")


# --- The digest of its data: the same for the same data, and no other.


def test_every_part_of_it_counts():
    def digest(size=16, box=(0, 0, 8, 8), names=("cat", "dog"), label=0):
        pixels = np.zeros((size, 16, 3), "uint8")
        return fingerprint(from_arrays([pixels], [[box]], [[label]], names))

    others = [digest(), digest(size=17), digest(box=(0, 0, 8, 9)), digest(label=1)]
    others.append(digest(names=("cat", "fox")))
    assert len(set(others)) == len(others)


# --- Files that the first process gives the others.


@dataclasses.dataclass
class OneOfTwo:
    """One of two processes, which a test runs one after the other."""

    index: int
    given: list  # by the first process, and not yet taken by the second
    count: int = 2

    def gather(self, value: Any) -> list[Any]:
        if self.index == 0:
            self.given.append(value)
            return [value, None]
        return [self.given.pop(0), value]


def copy_to_second(first, second, names, monkeypatch):
    """Runs `copy_from_first` in both; returns what was sent."""
    given = []
    monkeypatch.setattr(processes, "_current", [OneOfTwo(0, given)])
    copy_from_first(RunFolder(first), names)
    sent = list(given)
    monkeypatch.setattr(processes, "_current", [OneOfTwo(1, given)])
    copy_from_first(RunFolder(second), names)
    assert given == []
    return sent


def test_the_others_get_what_the_first_has_and_lose_what_it_has_not(
    tmp_path, monkeypatch
):
    """In pieces: a large checkpoint is more than one call of JAX can send."""
    monkeypatch.setattr(run_folder, "_PIECE", 4)
    first, second = tmp_path / "first", tmp_path / "second"
    for path, content in {
        first / "archive/last.keras": b"new and long",
        first / "archive" / PREVIOUS_FILE: b"whole",
        first / "log.jsonl": b"",
        second / "archive/last.keras": b"old",
        second / "archive/best.keras": b"of another training",
        second / "mine.txt": b"kept",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    sent = copy_to_second(first, second, RUN_FILES, monkeypatch)
    assert max(len(piece) for piece in sent if isinstance(piece, bytes)) == 4
    files = [path for path in second.rglob("*") if path.is_file()]
    found = {str(path.relative_to(second)): path.read_bytes() for path in files}
    assert found == {
        "archive/last.keras": b"new and long",
        f"archive/{PREVIOUS_FILE}": b"whole",
        "log.jsonl": b"",
        "mine.txt": b"kept",
    }


def test_of_the_checkpoints_the_others_get_the_one_that_is_used(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "first")
    folder.archive.mkdir(parents=True)

    def chosen(name, resume=True):
        path = None if name is None else folder.archive / name
        found = "effdet_keras.runs.run_folder.checkpoint_to_resume"
        monkeypatch.setattr(found, lambda folder: (path, ["a text"]))
        names = files_to_resume(folder, resume=resume)
        return [name for name in names if name.startswith("archive/")]

    monkeypatch.setattr(processes, "_current", [OneOfTwo(0, [])])
    assert chosen("step-00000070.keras") == ["archive/step-00000070.keras"]
    assert chosen(PREVIOUS_FILE) == [f"archive/{PREVIOUS_FILE}"]
    assert chosen(None) == chosen("last.keras", resume=False) == []
    assert file_of_best(folder) == ()
    (folder.archive / "last.keras").write_bytes(b"last")
    assert file_of_best(folder) == ("archive/last.keras",)
    (folder.archive / "best.keras").write_bytes(b"best")
    names = file_of_best(folder)
    copy_to_second(folder.path, tmp_path / "second", names, monkeypatch)
    there = list((tmp_path / "second" / "archive").iterdir())
    assert [path.name for path in there] == ["best.keras"]


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no run in '.*absent'"):
        RunFolder(tmp_path / "absent").read_configuration()


# --- A file where a folder is needed.


@pytest.mark.parametrize("inside", ["", "new/run"])
def test_a_file_in_place_of_a_folder_is_named_and_stays(tmp_path, inside):
    (tmp_path / "notes").write_text("mine")
    path = tmp_path / "notes" / inside
    with pytest.raises(NotADirectoryError, match=r"notes' is a file.*another path"):
        RunFolder(path).check_empty(overwrite=True)
    with pytest.raises(NotADirectoryError, match="notes' is a file"):
        CheckpointArchive(path)
    with pytest.raises(NotADirectoryError), run_folder.only_writer(path, "search"):
        pass
    assert (tmp_path / "notes").read_text() == "mine"


def test_an_empty_path_is_not_the_current_folder():
    with pytest.raises(ValueError, match="The folder of a run must not be empty"):
        RunFolder("")
