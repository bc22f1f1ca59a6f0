"""The type checker sees wrong calls of the public API, and none in a right program."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("mypy", reason='needs mypy: pip install -e ".[dev]"')

ROOT = pathlib.Path(__file__).parents[1]
WRONG = {
    "ek.EfficientDet.from_preset(3)": "[arg-type]",
    "ek.data.load()": "[call-arg]",
    "ek.data.load('DATA', splits='train')": "[call-arg]",
    "ek.DetectionLoss(gama=2.0)": "[call-arg]",
    "ek.Predictor.load('x.onnx', threads=2)": "[call-arg]",
    "ek.callbacks.COCOEvaluation(None, every='two')": "[arg-type]",
    "ek.data.lode('DATA')": "[attr-defined]",
    "ek.no_such_name": "[attr-defined]",
}


def mypy(*arguments):
    command = [sys.executable, "-m", "mypy", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_a_users_program_is_typed_strictly(tmp_path):
    result = mypy("--cache-dir", tmp_path)
    assert result.returncode == 0, result.stdout


def test_wrong_calls_are_seen(tmp_path):
    program = tmp_path / "wrong.py"
    program.write_text("\n".join(["import effdet_keras as ek", *WRONG]))
    lines = mypy("--cache-dir", tmp_path, program).stdout.splitlines()
    for number, (code, kind) in enumerate(WRONG.items(), start=2):
        seen = [line for line in lines if f"wrong.py:{number}: error" in line]
        assert any(kind in line for line in seen), (code, lines)
