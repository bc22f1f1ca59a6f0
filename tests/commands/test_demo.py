"""`effdet-keras demo`, the whole way in five minutes."""

import json
import sys

import pytest

from effdet_keras import cli
from effdet_keras.commands.run_demo import run_demo

pytestmark = pytest.mark.tensorflow


def test_the_demo_goes_the_whole_way(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "demo"
    status = cli.main(["demo", "--out", str(out), "--epochs", "1", "--images", "16"])
    text = capsys.readouterr().out
    assert status == 0
    for line in ("AP50", "ARmax100", "best checkpoint", "16 images of"):
        assert line in text
    assert (out / "archive" / "best.keras").stat().st_size > 1e6
    assert (out / "curves.png").exists()
    assert len(list((out / "images").glob("*.png"))) == 9
    assert list((out / "logs").rglob("events*"))
    truth = json.loads((out / "data" / "valid.json").read_text())
    assert {"images", "annotations", "categories"} <= set(truth)


@pytest.mark.slow
def test_the_demo_learns(tmp_path):
    assert run_demo(tmp_path)["AP50"] >= 0.75


def test_wrong_arguments_are_told_without_a_traceback(tmp_path, capsys):
    assert cli.main(["demo", "--out", str(tmp_path), "--epochs", "0"]) == 1
    assert "`epochs` must be 1 or more" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert cli.main(["demo", "--out", str(tmp_path / "file")]) == 1
    assert "file" in capsys.readouterr().err


def test_a_missing_matplotlib_is_told_before_the_training(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert cli.main(["demo", "--out", str(tmp_path / "demo")]) == 1
    assert "pip install" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()
