"""Writers that are killed with -9 at any moment: what is there is always whole."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from support.kill_loop import WRITERS
from support.kinds import slow_but

TESTS = pathlib.Path(__file__).parents[1]


@pytest.mark.tensorflow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forks")
@pytest.mark.parametrize("writer", slow_but(["archives"], WRITERS))
def test_a_kill_at_any_moment_leaves_only_what_is_whole(writer, times, tmp_path):
    kills = times(4, 200)
    program = TESTS / "support" / "kill_loop.py"
    command = [sys.executable, program, writer, tmp_path / "out", str(kills)]
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    result = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert result.returncode == 0, result.stderr
    counts = json.loads(result.stdout.splitlines()[-1])
    print(f"{writer}: {counts}")
    assert counts["kills"] == kills
    assert counts["whole"] >= kills and "broken" not in counts
    assert counts["left in the end"] == 0
