"""`effdet-keras inspect-weights` and `effdet-keras import`."""

import re

import numpy as np
import pytest

from effdet_keras import cli
from effdet_keras.data import write_shapes
from effdet_keras.extras.older_tools import write_tf1_checkpoint
from effdet_keras.model.config import EfficientDetConfig
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


def test_inspect_says_which_model_weights_are_of(lite0, capsys):
    assert cli.main(["inspect-weights", str(lite0)]) == 0
    text = capsys.readouterr().out
    assert "efficientdet-lite0, 3 classes" in text
    assert "Would load into efficientdet-lite0: 588 of 588" in text
    assert "588 of them moving averages" in text
    model = ["--model", "efficientdet-lite1"]
    assert (
        cli.main(["inspect-weights", str(lite0 / "model"), *model, "--all", "--raw"])
        == 0
    )
    text = capsys.readouterr().out
    assert "Would load into efficientdet-lite1" in text and "averages" not in text
    assert re.search(r"^box_net/box-0-bn-3/beta +64$", text, re.MULTILINE)
    assert cli.main(["inspect-weights", str(lite0 / "modle.index")]) == 1
    assert "Did you mean: model.index" in capsys.readouterr().err


@pytest.mark.slow  # all of Lite0 and D0
def test_import_writes_weights_as_another_kind(lite0, tmp_path, capsys):
    out = str(tmp_path / "lite0.keras")
    arguments = ["import", str(lite0), out, "--class-names", "cat", "dog", "fox"]
    assert cli.main(arguments) == 0
    assert "Loaded 588 of 588 weights" in capsys.readouterr().out
    info = read_archive_info(out)
    assert info["class_names"] == ["cat", "dog", "fox"]
    assert info["config"]["name"] == "efficientdet-lite0"
    assert cli.main(arguments) == 1
    assert "nothing is overwritten" in capsys.readouterr().err
    other = ["import", str(lite0), str(tmp_path / "d0.keras")]
    assert cli.main([*other, "--model", "efficientdet-d0"]) == 1
    assert "they are of efficientdet-lite0" in capsys.readouterr().err
    assert not (tmp_path / "d0.keras").exists()


def test_a_dataset_is_sent_to_the_command_for_datasets(tmp_path, capsys):
    write_shapes(tmp_path / "data", num_train=1, num_valid=1, image_size=64)
    for path in (tmp_path / "data", tmp_path / "data" / "train.json"):
        assert cli.main(["inspect-weights", str(path)]) == 1
        said = capsys.readouterr().err
        assert f"`effdet-keras inspect {path}`" in said
        assert len(said.splitlines()) == 1


def test_weights_are_sent_to_the_command_for_weights(lite0, capsys):
    for path in (lite0, lite0 / "model.index"):
        assert cli.main(["inspect", str(path)]) == 1
        said = capsys.readouterr().err
        assert f"`effdet-keras inspect-weights {path}`" in said
        assert len(said.splitlines()) == 1
