"""What is left after `pip install --no-deps effdet-keras` on a small board.

It makes an environment, half a minute; .ci/run runs it.
"""

import json
import os
import pathlib
import subprocess
import sys
import venv

import numpy as np
import pytest
from PIL import Image
from support.tiny import lively_model

import effdet_keras as ek

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ["ai-edge-litert", "numpy", "Pillow"]  # those of docs/predict.md
DETECT = """
import importlib.util, json, sys
import effdet_keras as ek
absent = [n for n in ("keras", "tensorflow") if importlib.util.find_spec(n) is None]
found = ek.Predictor.load(sys.argv[1]).detect(sys.argv[2], 0.2)
print(json.dumps([absent, found.boxes.tolist(), found.scores.tolist(), found.names]))
"""


def run(*command, cwd=None):
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)),
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the programs of an environment without Keras."""
    home = tmp_path_factory.mktemp("small")
    venv.create(home, with_pip=True)
    folder = home / ("Scripts" if sys.platform == "win32" else "bin")
    pip = [folder / "python", "-m", "pip", "install", "--quiet"]
    run(*pip, "--no-deps", ROOT)
    run(*pip, *PACKAGES)
    return folder


@pytest.mark.parametrize("outputs", ["detections", "raw"])
def test_a_litert_file_is_all_that_detecting_needs(folder, tmp_path, outputs):
    path, image = tmp_path / "pets.tflite", tmp_path / "pets.png"
    model = lively_model(backbone="efficientnet-lite0")  # the other is of tests alone
    model.export(path, outputs=outputs, verbose=0)
    pixels = np.random.default_rng(3).integers(0, 256, (48, 56, 3), "uint8")
    Image.fromarray(pixels).save(image)
    expected = ek.Predictor.load(path).detect(image, 0.2)
    assert len(expected) > 3

    # In a folder without the sources, which Python would find first.
    said = run(folder / "python", "-c", DETECT, path, image, cwd=tmp_path)
    absent, boxes, scores, names = json.loads(said.splitlines()[-1])
    assert absent == ["keras", "tensorflow"]
    assert tuple(names) == tuple(expected.names)
    np.testing.assert_allclose(boxes, expected.boxes, atol=1e-3)
    np.testing.assert_allclose(scores, expected.scores, atol=1e-5)

    command = folder / "effdet-keras"
    assert "predict" in run(command, "--help")
    drawn = tmp_path / "drawn"
    said = run(command, "predict", path, image, "--score", "0.2", "--out", drawn)
    assert f"pets.png: {len(expected)} detections" in said
    assert Image.open(drawn / "pets.png").size == (56, 48)


def test_the_page_names_these_packages():
    text = (ROOT / "docs" / "predict.md").read_text()
    assert f"pip install {' '.join(PACKAGES)}\n" in text
