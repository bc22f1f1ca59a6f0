"""Two processes that want the same place: one gets it whole, the other is told."""

import subprocess
import sys

import pytest

import effdet_keras as ek
from effdet_keras.data import write_shapes

_CONVERT = """
import sys
sys.argv[0] = "effdet-keras"  # which imports no more than it uses
from effdet_keras.data import convert
try:
    convert(sys.argv[1], sys.argv[2], "yolo")
except FileExistsError as error:
    print("refused", error)
"""


def run_twice(code, *arguments):
    """What each of two processes that run at the same time prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, **pipes) for _ in range(2)]
    said = [process.communicate() for process in both]
    assert [p.returncode for p in both] == [0, 0], said
    return [out for out, _ in said]


@pytest.mark.tensorflow
def test_two_conversions_into_one_folder(tmp_path):
    write_shapes(tmp_path / "shapes", num_train=300, num_valid=1, image_size=32)
    said = run_twice(_CONVERT, tmp_path / "shapes", tmp_path / "yolo")
    assert sum("refused" in text for text in said) == 1
    assert len(ek.data.load(tmp_path / "yolo", "train")) == 300
    assert sorted(p.name for p in tmp_path.iterdir()) == ["shapes", "yolo"]
