"""Image size and anchors fitted to boxes: what they gain, and the lines to use them."""

import shlex

import numpy as np
import pytest

from effdet_keras import cli
from effdet_keras.data import from_arrays, write_shapes
from effdet_keras.data.anchor_fit import (
    anchor_fit,
    fit_anchors,
    fitted_anchors,
    fitted_image_size,
    input_boxes,
)
from effdet_keras.model.config import EfficientDetConfig
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.runs.configuration import RunConfiguration, parse_settings

CONFIG = EfficientDetConfig.from_name("efficientdet-lite0", image_size=128)


def dataset(*boxes, side=400, sizes=None):
    images = [np.zeros((*s, 3), "uint8") for s in sizes or [(side, side)]]
    drawn = [np.float32(boxes).reshape(-1, 4)] * len(images)
    labels = [np.zeros(len(drawn[0]), int)] * len(images)
    return from_arrays(images, drawn, labels, ["cat"]).with_classes(["cat"], [7])


def test_the_gain_is_that_of_the_boxes():
    boxes = [[0, 0, 20, 80], [40, 40, 65, 128], [70, 10, 91, 90]]
    flat = dataset(*boxes, side=128)
    fit = fit_anchors(flat, CONFIG)
    assert fit.is_better and fit.config == CONFIG
    boxes, _ = input_boxes(flat.records, CONFIG.image_size)
    for config, coverage in ((CONFIG, fit.before), (fit.fitted, fit.after)):
        iou = anchor_fit(boxes, config)
        assert coverage[0].mean_iou == pytest.approx(iou.mean())
        assert coverage[0].share == pytest.approx((iou >= 0.5).mean())
    assert fit.after[0].mean_iou >= fit.before[0].mean_iou + 0.01
    text = str(fit)
    assert "fitted to 3 boxes" in text and f"{fit.after[0].mean_iou:.3f}" in text


@pytest.mark.tensorflow
def test_the_lines_make_the_anchors():
    fit = fit_anchors(dataset([0, 0, 20, 80], [40, 40, 65, 128], side=128), CONFIG)
    command, python = fit.how_to_use("my data").splitlines()[1:3]
    words = shlex.split(command)
    assert words[:3] == ["effdet-keras", "train", "my data"]
    fields = parse_settings([words[words.index("--set") + 1]])
    config = CONFIG.replace(**RunConfiguration(**fields).model_config)
    assert config == fit.fitted
    arguments = python[python.index("image_size=") : -1]
    fields = eval(f"dict({arguments})")
    assert CONFIG.replace(**fields) == fit.fitted


def test_a_gain_at_the_cost_of_small_boxes_is_told():
    large = [[y, x, y + 60, x + 60] for y in (0, 60) for x in (0, 30, 60)]
    fit = fit_anchors(dataset(*large, [20, 20, 38, 38], side=128), CONFIG)
    assert fit.is_better and fit.worse_sizes == ("small",)
    assert fit.how_to_use().startswith("Caution: fewer of the small boxes")
    fit = fit_anchors(dataset(*large, side=128), CONFIG)
    assert fit.worse_sizes == () and "Caution" not in fit.how_to_use()


def test_anchors_that_fit_already_are_kept():
    side = 4 * 8  # anchor_scale times stride, at the center of a cell
    fit = fit_anchors(
        dataset([20, 20, 20 + side, 20 + side], side=128),
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


def test_the_mean_of_the_classes_is_over_classes_and_not_over_boxes():
    image, boxes = np.zeros((128, 128, 3), "uint8"), [[[8, 8, 40, 40], [0, 0, 20, 90]]]
    dataset = from_arrays([image], boxes, [[0, 1]], ["plate", "pen"])
    fit = fit_anchors(dataset, EfficientDetConfig(image_size=128))
    assert round(fit.class_means[0], 2) == 0.56


# What a model is fitted to with 'auto'.


@pytest.mark.parametrize(
    ("side", "size"), [(300, 192), (150, 256), (110, 384), (30, 384), (5, 512)]
)
def test_the_smaller_the_boxes_the_larger_the_input(side, size):
    boxes = dataset([0, 0, side, side])
    assert fitted_image_size(boxes, EfficientDetConfig()) == (size, size)


@pytest.mark.parametrize(
    ("pixels", "size"),
    [(300, 320), (400, 384), (640, 512), (2_000, 512)],
    ids=["nothing more to show", "of the images", "1.6 times", "no more"],
)
def test_tiny_boxes_of_large_images_get_more_than_the_models_own_size(pixels, size):
    config = EfficientDetConfig.from_name("efficientdet-lite0")  # of 320
    boxes = dataset([0, 0, 5, 5], sizes=[(pixels, pixels)])
    assert fitted_image_size(boxes, config) == (size, size)


def test_one_small_box_of_twenty_does_not_count():
    boxes = [[0, 0, 200, 200]] * 19 + [[0, 0, 4, 4]]
    assert fitted_image_size(dataset(*boxes), EfficientDetConfig()) == (192, 192)


def two_classes(num_small):
    """Large boxes, and among them a class of few small ones."""
    image = np.zeros((400, 400, 3), "uint8")
    boxes = [[0, 0, 200, 200]] * 300 + [[9, 9, 39, 39]] * num_small
    labels = [0] * 300 + [1] * num_small
    return from_arrays([image], [boxes], [labels], ["plate", "crumb"])


def test_a_class_of_small_boxes_counts_though_they_are_few():
    config = EfficientDetConfig()
    assert fitted_image_size(two_classes(9), config) == (320, 320)
    assert fitted_image_size(two_classes(0), config) == (192, 192)

    config = EfficientDetConfig(image_size=384)
    scales = [
        fitted_anchors(two_classes(count), config)["anchor_scale"] for count in (12, 0)
    ]
    assert scales[0] < scales[1]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(300, 400)] * 10, (320, 384)),  # 288 pixels high, in steps of 64
        ([(400, 225)] * 10, (384, 256)),
        ([(300, 400)] * 19 + [(400, 300)], (320, 384)),
        ([(300, 400), (400, 300)], (384, 384)),
        ([(10, 400)] * 10, (64, 384)),  # 12 of its pixels are 11 there
    ],
    ids=["wide", "high", "one of them is not", "both", "a strip"],
)
def test_the_input_has_the_shape_of_the_images(sizes, expected):
    # Boxes that need all of the images' pixels, and that lie in the strip too.
    boxes = dataset([0, 0, 10, 90], sizes=sizes)
    assert fitted_image_size(boxes, EfficientDetConfig()) == expected


def test_fitted_anchors_overlap_long_boxes_better():
    boxes = dataset(*[[i, 0, i + 12 + i // 20, 150] for i in range(0, 200, 10)])
    config = EfficientDetConfig(image_size=384)
    fitted = config.replace(**fitted_anchors(boxes, config))
    inputs, _ = input_boxes(boxes.records, config.image_size)
    before, after = (anchor_fit(inputs, c).mean() for c in (config, fitted))
    assert after > before + 0.2
    assert fitted.num_anchors == config.num_anchors


def test_a_model_takes_classes_size_and_anchors_of_its_dataset():
    boxes = dataset(*[[i, 0, i + 20, 150] for i in range(0, 200, 10)])
    model = EfficientDet.from_preset(
        "efficientdet-lite0",
        dataset=boxes,
        image_size="auto",
        anchors="auto",
        max_level=5,
        fpn_cell_repeats=1,
        head_repeats=1,
    )
    assert model.class_names == ("cat",)
    assert model.category_ids == (7,)
    assert model.config.image_size == (320, 320)
    assert min(model.config.aspect_ratios) > 5
    assert EfficientDet.from_config(model.get_config()).config == model.config


def test_auto_without_boxes_is_refused():
    with pytest.raises(ValueError, match="dataset=train"):
        EfficientDet.from_preset("efficientdet-lite0", image_size="auto")
    with pytest.raises(ValueError, match="dataset=train"):
        # Known before the weights are looked for, so before a download.
        EfficientDet.from_preset("efficientdet-lite0", anchors="auto", weights="no")
    with pytest.raises(ValueError, match="must be 'auto' or None"):
        EfficientDet.from_preset("efficientdet-lite0", anchors=4.0, weights="coco")
    with pytest.raises(ValueError, match="has none"):
        fitted_image_size(dataset(), EfficientDetConfig())
