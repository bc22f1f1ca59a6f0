"""The log of a run, one line per epoch; and the text of the terminal."""

import io
import json
import math

from effdet_keras.runs.run_folder import (
    RunLog,
    TextLog,
    history_of,
    read_rows,
    standard_output_kept,
)
from effdet_keras.train.resume import Place


def logged(path, *epochs, done=0):
    log = RunLog(path, Place(epoch=done, seconds=50.0 if done else 0.0))
    for epoch, logs in epochs:
        log.on_epoch_begin(epoch)
        log.on_epoch_end(epoch, logs)
    return log


def test_each_epoch_is_a_line(tmp_path):
    path = tmp_path / "log.jsonl"
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


def test_without_a_file_there_are_no_rows(tmp_path):
    assert read_rows(tmp_path / "log.jsonl") == [] and history_of([]) == {}


def test_the_terminal_is_passed_on_and_kept(tmp_path, capsys):
    path = tmp_path / "log.txt"
    with standard_output_kept() as log:
        print("before")
        log.keep_in(path)
        print("step 1 \rstep 2 \repoch 1", end="")
        print("\r\nafter")
    print("outside")
    assert path.read_text().splitlines()[1:] == ["before", "epoch 1", "after"]
    said = capsys.readouterr().out
    assert said == "before\nstep 1 \rstep 2 \repoch 1\r\nafter\noutside\n"


def test_a_second_text_goes_behind_the_first(tmp_path):
    for number in (1, 2):
        log = TextLog(io.StringIO())
        log.keep_in(tmp_path / "log.txt")
        print(number, file=log)
        assert not log.isatty() and log.encoding
        log.close()
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert lines[1::2] == ["1", "2"]
    assert all(line.startswith("-- 2") for line in lines[::2])
