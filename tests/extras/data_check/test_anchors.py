"""Anchors fitted to boxes: what they gain, and the lines to use them."""

import shlex

import numpy as np
import pytest

from effdet_keras import cli, images, visualize
from effdet_keras.data import (
    DetectionDataset,
    fit_anchors,
    from_arrays,
    write_coco,
    write_shapes,
)
from effdet_keras.data.anchor_fit import input_boxes
from effdet_keras.network.anchors import best_anchor_iou
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.runs.configuration import RunConfiguration, parse_settings

CONFIG = EfficientDetConfig.from_name("efficientdet-lite0", image_size=128)


def dataset(*boxes, labels=None):
    image = np.zeros((128, 128, 3), "uint8")
    labels = [0] * len(boxes) if labels is None else labels
    return from_arrays([image], [boxes], [labels], ["cat", "pen"])


def test_the_gain_is_that_of_the_boxes():
    boxes = [[0, 0, 20, 80], [40, 40, 65, 128], [70, 10, 91, 90]]
    flat = dataset(*boxes)
    fit = fit_anchors(flat, CONFIG)
    assert fit.is_better and fit.config == CONFIG
    boxes, _ = input_boxes(flat.records, CONFIG.image_size)
    for config, coverage in ((CONFIG, fit.before), (fit.fitted, fit.after)):
        iou = best_anchor_iou(boxes, config)
        assert coverage[0].mean_iou == pytest.approx(iou.mean())
        assert coverage[0].share == pytest.approx((iou >= 0.5).mean())
    assert fit.after[0].mean_iou >= fit.before[0].mean_iou + 0.01
    text = str(fit)
    assert "fitted to 3 boxes" in text and f"{fit.after[0].mean_iou:.3f}" in text


@pytest.mark.tensorflow
def test_the_lines_make_the_anchors():
    fit = fit_anchors(dataset([0, 0, 20, 80], [40, 40, 65, 128]), CONFIG)
    command, python = fit.how_to_use("my data").splitlines()[1:3]
    words = shlex.split(command)
    assert words[:3] == ["effdet-keras", "train", "my data"]
    fields = parse_settings([words[words.index("--set") + 1]])
    config = CONFIG.replace(**RunConfiguration(**fields).model_config)
    assert config == fit.fitted
    arguments = python[python.index("image_size=") : -1]
    fields = eval(f"dict({arguments})")
    assert CONFIG.replace(**fields) == fit.fitted


def test_anchors_that_fit_already_are_kept():
    side = 4 * 8  # anchor_scale times stride, at the center of a cell
    fit = fit_anchors(
        dataset([20, 20, 20 + side, 20 + side]),
        CONFIG.replace(anchor_scale=4.0, aspect_ratios=(1.0, 2.0, 0.5)),
    )
    assert not fit.is_better and fit.before[0] == fit.after[0]
    assert "keep those of the model" in fit.how_to_use()


@pytest.mark.tensorflow
def test_the_command_fits_to_what_is_trained_on(tmp_path, capsys):
    write_shapes(tmp_path, num_train=6, num_valid=2, image_size=64)
    inspect = ["inspect", str(tmp_path), "--no-decode", "--image-size", "64"]
    assert cli.main(inspect) == 0
    assert "== anchors" not in capsys.readouterr().out
    assert cli.main([*inspect, "--anchors"]) == 0
    said = capsys.readouterr().out
    assert "== anchors for train ==" in said and "anchors for valid" not in said
    assert cli.main([*inspect, "--anchors", "--split", "valid"]) == 0
    assert "== anchors for valid ==" in capsys.readouterr().out


@pytest.mark.tensorflow
def test_the_command_finds_what_is_trained_on_by_any_name(tmp_path, capsys):
    """As in COCO: `test2017` has no annotations, and `val2017` is for no training."""
    splits = write_shapes(tmp_path / "shapes", num_train=6, num_valid=2, image_size=64)
    train, valid = splits
    empty = DetectionDataset(
        [record.select([]) for record in valid.records], valid.class_names
    )
    data, page = tmp_path / "coco", tmp_path / "page.html"
    write_coco({"train2017": train, "val2017": valid, "test2017": empty}, data)
    inspect = ["inspect", str(data), "--no-decode", "--image-size", "64", "--anchors"]
    cli.main([*inspect, "--html", str(page)])
    said = capsys.readouterr().out
    assert "== anchors for train2017 ==" in said
    assert said.count("== anchors for") == 1 and page.is_file()
    page.unlink()
    arguments = ["--split", "test2017", "--html", str(page)]
    assert cli.main([*inspect, *arguments]) == 1
    assert "have none to train on" in capsys.readouterr().err and page.is_file()


@pytest.mark.tensorflow
def test_images_are_drawn_as_the_default_recipe_shows_them(tmp_path, monkeypatch):
    write_shapes(tmp_path / "data", num_train=6, num_valid=2, image_size=64)
    seen, draw = [], visualize.augmented
    monkeypatch.setattr(
        visualize, "augmented", lambda *a, **o: seen.append(o) or draw(*a, **o)
    )
    inspect = ["inspect", str(tmp_path / "data"), "--split", "train", "--augment"]
    inspect += ["--image-size", "64", "--out"]
    assert cli.main([*inspect, str(tmp_path / "grid.jpg")]) == 0
    assert [options["scale_jitter"] for options in seen] == [(0.8, 1.25)]
    assert images.read_image(tmp_path / "grid.jpg").shape[2] == 3


@pytest.mark.parametrize("name", ["grid", "grid.pngg"])
def test_an_ending_that_is_no_image_is_told_before_all_is_read(name, tmp_path, capsys):
    line = ["inspect", str(tmp_path), "--augment", "--out", str(tmp_path / name)]
    assert cli.main(line) == 1
    message = capsys.readouterr().err
    assert "`--out` must end in an image format" in message and name in message
