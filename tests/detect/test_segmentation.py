"""Class maps from `detect` to evaluation, drawn and saved."""

import dataclasses

import numpy as np
import pytest
from support.tiny import (
    BOTH_HEADS,
    EAGER,
    LITE0,
    lively_segmentation,
    segmented_batch,
    tiny_model,
)

from effdet_keras.callbacks import COCOEvaluation
from effdet_keras.data import from_coco, write_shapes
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.detect.detections import Detections
from effdet_keras.detect.evaluate import evaluate
from effdet_keras.evaluate.mean_iou import MeanIoU
from effdet_keras.letterbox import letterbox_array
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.visualize import draw_class_map

NAMES = ("background", "circle", "square", "triangle")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    write_shapes(folder, num_train=1, num_valid=5, image_size=80)
    return from_coco(folder / "valid.json", folder / "valid", masks=True)


@pytest.mark.smoke
def test_the_class_map_has_the_pixels_of_the_image():
    model = lively_segmentation()
    wide = np.random.default_rng(1).integers(0, 255, (40, 128, 3)).astype("uint8")
    found = model.detect(wide)
    assert found.class_map.shape == (40, 128) and found.class_map.dtype == "uint8"
    assert len(found.pixel_shares()) > 1
    # 40 x 128 lie in the upper 20 rows of the input, and each pixel there is 2 x 2.
    images = np.full((1, 64, 64, 3), 0.0, "float32")
    images[0], _ = letterbox_array(wide, (64, 64), model.config.padding_rgb)
    of_input = model.predict_on_batch(images)["class_map"][0]
    expected = np.repeat(np.repeat(of_input[:20], 2, axis=0), 2, axis=1)
    np.testing.assert_array_equal(found.class_map, expected)
    assert found[:1].class_map is found.class_map
    assert "pixels: " in repr(found)
    assert "seg_class_names" not in tiny_model().get_config()  # without the head


def test_evaluation_measures_the_class_maps_of_detect(shapes):
    model = lively_segmentation(class_names=shapes.class_names, seg_class_names=NAMES)
    numbers = evaluate(model, shapes, batch_size=2, verbose=False)
    metric = MeanIoU(NAMES)
    for example in map(shapes.__getitem__, range(5)):
        metric.update(example["mask"], model.detect(example["image"]).class_map)
    expected = metric.result()
    assert 0 < expected["mIoU"] < 1
    assert {name: numbers[name] for name in expected} == expected
    assert "AP" in numbers
    # Without masks nothing is measured of them.
    plain = evaluate(model, without_masks(shapes), batch_size=2, verbose=False)
    assert "AP" in plain and "mIoU" not in plain


def without_masks(dataset):
    records = [dataclasses.replace(r, shapes=None) for r in dataset.records]
    return DetectionDataset(records, dataset.class_names)


def test_segmentation_alone_is_measured_alone(shapes):
    model = lively_segmentation(heads=("segmentation",), seg_class_names=NAMES)
    numbers = evaluate(model, shapes, batch_size=2, verbose=False)
    assert set(numbers) == {"mIoU", *(f"IoU/{name}" for name in NAMES)}
    found = model.detect(shapes[0]["image"])
    assert len(found) == 0 and found.class_map.shape == (80, 80)


def test_the_callback_logs_mean_iou_and_losses(shapes, capsys):
    model = tiny_model(heads=BOTH_HEADS, class_names=None)
    model.compile(run_eagerly=EAGER, ema_decay=None)
    history = model.fit(
        shapes,
        batch_size=2,
        epochs=1,
        callbacks=[COCOEvaluation(shapes, batch_size=2, losses=True)],
    ).history
    assert {"mIoU", "IoU/circle", "AP", "val_segmentation_loss"} <= set(history)
    assert model.seg_class_names == NAMES
    assert "mIoU" in capsys.readouterr().out
    losses = model.evaluate(shapes, batch_size=2, return_dict=True, verbose=0)
    np.testing.assert_allclose(
        history["val_segmentation_loss"][0], losses["segmentation_loss"], rtol=0.05
    )


def test_own_batches_with_masks_are_measured_in_the_input():
    model = lively_segmentation()
    images, truth = segmented_batch()
    numbers = evaluate(model, (images, truth), batch_size=2, verbose=False)
    metric = MeanIoU(list("0123"))
    metric.update(truth["masks"], model.predict_on_batch(images)["class_map"])
    assert numbers["mIoU"] == metric.result()["mIoU"]
    alone = lively_segmentation(heads=("segmentation",))
    masks = {"masks": truth["masks"]}
    numbers = evaluate(alone, (images, masks), batch_size=2, verbose=False)
    assert numbers["mIoU"] > 0 and "AP" not in numbers


def test_classes_of_pixels_have_the_names_that_are_known(shapes):
    model = lively_segmentation(class_names=shapes.class_names)
    # Those of the dataset, where the model has none.
    numbers = evaluate(model, shapes, batch_size=2, verbose=False)
    assert {f"IoU/{name}" for name in NAMES} <= set(numbers)
    # Nobody has any: they are called classes.
    own = segmented_batch()
    numbers = evaluate(model, own, batch_size=2, verbose=False)
    assert {f"IoU/class {k}" for k in range(4)} <= set(numbers)
    assert all(
        name.startswith("class ") for name in model.detect(own[0][0]).pixel_shares()
    )


def test_weights_of_a_detector_leave_the_head_new(tmp_path, capsys):
    plain = tiny_model()
    plain.save_weights(tmp_path / "a.weights.h5")
    model = tiny_model(heads=BOTH_HEADS)
    report = model.load_pretrained(tmp_path / "a.weights.h5")
    assert [new.reason for new in report.new] == ["the file has no segmentation head"]
    assert report.num_loaded == len(plain.weights)
    # Another number of classes of pixels leaves the last layer new.
    model.save_weights(tmp_path / "b.weights.h5")
    other = EfficientDet(model.config.replace(seg_num_classes=7))
    report = other.load_pretrained(tmp_path / "b.weights.h5", verbose=0)
    (new,) = report.new
    assert new.reason == "the file has 4 classes of pixels, and the model has 7"
    assert len(new.names) == 2


def test_automl_checkpoints_keep_the_head(tmp_path):
    pytest.importorskip("tensorflow")
    model = lively_segmentation(backbone=LITE0)
    prefix = str(tmp_path / "model")
    model.export_checkpoint(prefix, format="automl-tf1")
    other = EfficientDet(model.config)
    report = other.load_pretrained(prefix, verbose=0)
    assert report.num_loaded == len(model.weights) and not report.new
    for one, two in zip(model.weights, other.weights):
        np.testing.assert_array_equal(np.array(one), np.array(two))


def test_from_preset_counts_the_classes_of_pixels(shapes):
    model = EfficientDet.from_preset(
        "efficientdet-lite0",
        dataset=shapes,
        heads=BOTH_HEADS,
        image_size=64,
        fpn_cell_repeats=1,
        head_repeats=1,
        fpn_num_filters=8,
        max_level=5,
    )
    assert model.config.seg_num_classes == 4 and model.seg_class_names == NAMES


# Drawing


def test_colors_show_classes_but_background():
    image = np.full((2, 3, 3), 100, "uint8")
    class_map = [[0, 1, 2], [255, 1, 0]]
    drawn = draw_class_map(image, class_map, ("background", "cat", "dog"), opacity=0.5)
    assert (drawn[0, 0] == 100).all() and (drawn[1, 0] == 100).all()
    np.testing.assert_array_equal(drawn[0, 1], [178, 84, 93])  # half of (255, 69, 86)
    assert (drawn[0, 2] != drawn[0, 1]).any()
    unnamed = draw_class_map(image, class_map)
    assert (unnamed[0, 0] != 100).any() and (unnamed[1, 0] == 100).all()
    with pytest.raises(ValueError, match=r"\(1, 3\).*\(2, 3, 3\)"):
        draw_class_map(image, [[0, 1, 2]])


def test_detections_are_drawn_over_their_class_map():
    image = np.full((40, 60, 3), 100, "uint8")
    class_map = np.zeros((40, 60), "uint8")
    class_map[:, 30:] = 1
    maps = {"class_map": class_map, "seg_class_names": NAMES}
    drawn = Detections([], [], [], image=image, **maps).draw()
    assert (drawn[:, :30] == 100).all() and (drawn[:, 30:] != 100).any(axis=-1).all()
