"""The notebook runs from top to bottom, with a stand-in for the published weights."""

import json
import os
import pathlib
import subprocess
import sys
import tarfile

import keras
import numpy as np
import pytest

import effdet_keras as ek
from effdet_keras.checkpoints.download import cache_path
from effdet_keras.presets import find_preset

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "predict_pretrained.ipynb"
NO_NETWORK = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
STOP_SIGN = 12  # the output of COCO's category 13, which the notebook draws


def cells(kind):
    notebook = json.loads(NOTEBOOK.read_text())
    return [
        "".join(cell["source"])
        for cell in notebook["cells"]
        if cell["cell_type"] == kind
    ]


def as_script():
    """The cells' Python in their order, without the lines that are the notebook's."""
    lines = "\n\n".join(cells("code")).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("%", "!")))


def write_stand_in(path):
    """A packed checkpoint of D0 with random weights that sees stop signs all over."""
    model = ek.EfficientDet.from_preset("efficientdet-d0")
    (bias,) = (v for v in model.weights if v.path.endswith("class-predict/bias"))
    values = np.array(keras.ops.convert_to_numpy(bias))
    values[STOP_SIGN] = 1.0  # of the first of nine anchors
    bias.assign(values)
    folder = path.parent / "efficientdet-d0"
    model.export_checkpoint(folder / "model", format="automl-tf1")
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(folder, folder.name)


@pytest.mark.tensorflow
def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("EFFDET_KERAS_CACHE", str(tmp_path / "cache"))
    kept = cache_path(find_preset("efficientdet-d0", "coco").url)
    kept.parent.mkdir()
    write_stand_in(kept)
    script = tmp_path / "notebook.py"
    script.write_text(as_script())
    result = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, **NO_NETWORK, "MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "Loaded 709 of 709 weights of efficientdet-d0" in result.stdout
    assert "stop sign" in result.stdout
    assert (tmp_path / "found.jpg").exists()


def test_outputs_are_not_stored():
    notebook = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not c["outputs"] and c["execution_count"] is None for c in code)


def test_what_it_says_it_reads_is_there():
    for name in ("docs/weights.md", "docs/data.md", "README.md"):
        assert any(name in cell for cell in cells("markdown"))
        assert (ROOT / name).exists()
