"""The benchmarks: that they run and print what they promise. No times are judged."""

import json
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parents[1] / "benchmarks"


def test_the_evaluation_prints_a_line_for_each_backend():
    done = subprocess.run(
        [sys.executable, FOLDER / "coco_eval.py", "--quick"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["case"] == "pycocotools"
    assert all(line["numbers_are_equal"] for line in lines)
    assert all(line["seconds"] > 0 and line["peak_mb"] > 1 for line in lines)
    assert {line["detections"] for line in lines} == {5000}
