"""Writers that are killed with -9 at any moment: what is there is always whole."""

import json
import os

import pytest
from support import programs
from support.kill_loop import WRITERS
from support.kinds import slow_but

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forks"),
]


@pytest.mark.parametrize("writer", slow_but(["archives"], WRITERS))
def test_a_kill_at_any_moment_leaves_only_what_is_whole(writer, times, tmp_path):
    kills = times(4, 2000)
    program = programs.SUPPORT / "kill_loop.py"
    said = programs.run_alone(program, writer, tmp_path / "out", kills)
    counts = json.loads(said.splitlines()[-1])
    print(f"{writer}: {counts}")
    assert counts["kills"] == kills
    assert counts["whole"] >= kills and "broken" not in counts


@pytest.mark.slow
def test_runs_that_are_killed_end_with_the_bits_of_one_that_is_not(tmp_path):
    program = programs.SUPPORT / "resumed_run.py"
    counts = json.loads(programs.run_alone(program, tmp_path, 20).splitlines()[-1])
    print(counts["kills"])
    assert counts["different"] == [] and sum(counts["kills"].values()) >= 20
    assert min(counts["kills"][place] for place in ("save", "evaluation")) >= 3
    run = tmp_path / "killed-1"
    report = (run / "report.html").read_text()
    assert report.count("<h2>Training</h2>") == 1 and "for 3 epochs" in report
    assert "Resuming at epoch" in (run / "log.txt").read_text()
