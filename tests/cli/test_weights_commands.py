"""`effdet-keras inspect-weights` and `effdet-keras import`."""

import re

import numpy as np
import pytest

from effdet_keras.extras.older_tools import write_tf1_checkpoint
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.weights.archive import read_archive_info
from effdet_keras.weights.network_arrays import network_arrays

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def lite0(tmp_path):
    """A TF1 checkpoint of Lite0 with three classes, of the names alone."""
    config = EfficientDetConfig.from_name("efficientdet-lite0", num_classes=3)
    arrays = {a.name: np.ones(a.shape, "float32") for a in network_arrays(config)}
    write_tf1_checkpoint(tmp_path / "lite0" / "model", arrays)
    return tmp_path / "lite0"


def test_inspect_says_which_model_weights_are_of(lite0, command):
    text = command("inspect-weights", lite0)
    assert "efficientdet-lite0, 3 classes" in text
    assert "Would load into efficientdet-lite0: 588 of 588" in text
    assert "588 of them moving averages" in text
    options = ["--model", "efficientdet-lite1", "--all", "--raw"]
    text = command("inspect-weights", lite0 / "model", *options)
    assert "Would load into efficientdet-lite1" in text and "averages" not in text
    assert re.search(r"^box_net/box-0-bn-3/beta  64$", text, re.MULTILINE)
    said = command("inspect-weights", lite0 / "modle.index", status=1)
    assert "Did you mean 'model.index'" in said


@pytest.mark.parametrize("name", ["d0.h5", "d0.onnx", "d0.index"])
def test_import_refuses_the_name_of_another_file(tmp_path, command, name):
    """It wrote a TensorFlow checkpoint, such as `d0.h5.index`."""
    said = command("import", tmp_path / "none.pth", tmp_path / name, status=1)
    assert "`out` must be a path that ends in .keras, .weights.h5" in said
    assert not list(tmp_path.glob("d0*"))


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors", "w.weights.h5", "w.keras"])
def test_import_finds_a_read_only_folder_before_any_work(read_only, command, name):
    said = command("import", "none.pth", read_only / name, status=1)
    assert f"Read-only file system: nothing can be written there: '{read_only}" in said
    assert name in said


def test_import_to_a_path_below_a_file_names_it_before_reading(tmp_path, command):
    (tmp_path / "notes.txt").write_text("mine")
    out = tmp_path / "notes.txt" / "d0.pth"
    said = command("import", tmp_path / "none.pth", out, status=1)
    assert "A folder is needed" in said and "none.pth" not in said


@pytest.mark.slow  # all of Lite0 and D0
def test_import_writes_weights_as_another_kind(lite0, tmp_path, command):
    out = tmp_path / "lite0.keras"
    arguments = ["import", lite0, out, "--class-names", "cat", "dog", "fox"]
    assert "Loaded 588 of 588 weights" in command(*arguments)
    info = read_archive_info(out)
    assert info["class_names"] == ["cat", "dog", "fox"]
    assert info["config"]["name"] == "efficientdet-lite0"
    assert "is not overwritten" in command(*arguments, status=1)
    d0 = tmp_path / "d0.keras"
    said = command("import", lite0, d0, "--model", "efficientdet-d0", status=1)
    assert "they belong to efficientdet-lite0" in said and not d0.exists()
