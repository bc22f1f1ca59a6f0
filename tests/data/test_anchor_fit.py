"""Image size and anchors that `'auto'` fits to the boxes of a dataset."""

import numpy as np
import pytest

from effdet_keras.data import from_arrays
from effdet_keras.data.anchor_fit import fitted_anchors, fitted_image_size, input_boxes
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.anchors import best_anchor_iou
from effdet_keras.network.config import EfficientDetConfig


def dataset(*boxes, side=400, sizes=None):
    images = [np.zeros((*s, 3), "uint8") for s in sizes or [(side, side)]]
    drawn = [np.float32(boxes).reshape(-1, 4)] * len(images)
    labels = [np.zeros(len(drawn[0]), int)] * len(images)
    return from_arrays(images, drawn, labels, ["cat"]).with_classes(["cat"], [7])


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
    before, after = (best_anchor_iou(inputs, c).mean() for c in (config, fitted))
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


@pytest.mark.parametrize(("size", "ratio"), [((560, 2), 0.05), ((2, 560), 20.0)])
def test_boxes_as_thin_as_cables_have_thin_anchors(size, ratio):
    """A ratio of 0.004 was rounded to 0, which is no shape of an anchor."""
    height, width = size
    boxes = [[20, 20, 20 + height, 20 + width]] * 12
    config = EfficientDetConfig(image_size=512)
    fitted = fitted_anchors(dataset(*boxes, side=600), config)
    assert fitted["aspect_ratios"] == (ratio,) * 3
    assert config.replace(**fitted).aspect_ratios == (ratio,) * 3
