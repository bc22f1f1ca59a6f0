"""`effdet-keras inspect --augment`: images as training sees them, in a file."""

import numpy as np
import pytest
from PIL import Image

from effdet_keras import cli
from effdet_keras.data import write_shapes

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def inspect(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    write_shapes(folder, num_train=4, num_valid=2, image_size=32)
    return ["inspect", str(folder), "--no-decode", "--image-size", "64"]


def test_images_are_drawn_with_augmentations_by_name(inspect, tmp_path, capsys):
    drawn = {}
    for name in ("photometric_distortion,cut_out", "mosaic"):
        path = tmp_path / f"{name}.png"
        train = [*inspect, "--split", "train"]
        assert cli.main([*train, "--augment", name, "--out", str(path)]) == 0
        assert f"Images as training sees them: {path}" in capsys.readouterr().out
        drawn[name] = np.asarray(Image.open(path))
        assert drawn[name].shape == (4 * 68 - 4, 4 * 68 - 4, 3)
    first, second = drawn.values()
    assert (first != second).any()


def test_each_split_has_a_file_and_no_name_draws_flip_and_scale(inspect, tmp_path):
    path = tmp_path / "grid.png"
    assert cli.main([*inspect, "--augment", "--out", str(path)]) == 0
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["grid-train.png", "grid-valid.png"]


def test_without_the_flag_no_image_is_written(inspect, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(inspect) == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "names, message",
    [
        ("nothing", "There is no augmentation 'nothing'. Known: auto_augment_v0, "),
        ("blur,mosaic", "must stand first"),
    ],
)
def test_names_that_cannot_be_used_are_told(inspect, tmp_path, capsys, names, message):
    out = str(tmp_path / "grid.png")
    assert cli.main([*inspect, "--augment", names, "--out", out]) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
