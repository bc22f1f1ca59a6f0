"""Images for TensorBoard: truth beside detections."""

import numpy as np
import pytest

from effdet_keras.callbacks import ImageSummary
from effdet_keras.data import from_arrays
from effdet_keras.detect.detections import Detections
from effdet_keras.extras import image_summary

pytestmark = pytest.mark.tensorflow


def test_pairs_show_truth_on_the_left_and_detections_on_the_right(valid, model):
    few, many = (
        ImageSummary(valid, "unused", num_images=2, score_threshold=threshold).pairs(
            model
        )
        for threshold in (1.0, 0.0)
    )
    for nothing, everything in zip(few, many, strict=True):
        assert nothing.dtype == np.uint8 and nothing.shape[-1] == 3
        # Titles may differ, images are 64 pixels high at most.
        left, right = np.split(np.arange(nothing.shape[1]), [nothing.shape[1] // 2])
        rows = slice(-30, None)
        same = nothing[rows] == everything[rows]
        assert same[:, left].mean() > 0.99
        assert same[:, right].mean() < 0.95


class Finder:
    """Stands for a model that finds the same in every image."""

    averages = None

    def __init__(self, found=((), (), ())):
        self.found = Detections(*found)

    def detect(self, images, **arguments):
        self.images = images
        return [self.found for _ in images]


def test_images_are_spread_over_the_dataset_and_no_more_than_it_has(valid):
    model = Finder()
    ImageSummary(valid, "unused", num_images=3).pairs(model)
    shapes = [image.shape[:2] for image in model.images]
    assert shapes == [(64, 64), (100, 60), (30, 30)]
    assert len(ImageSummary(valid[:2], "unused", num_images=9).pairs(model)) == 2


def test_large_images_are_scaled_down_with_their_boxes(model, monkeypatch):
    dataset = from_arrays(
        [np.zeros((100, 300, 3), "uint8")], [[[10, 20, 80, 100]]], [[0]], ["cat"]
    )
    drawn = []

    def draw_boxes(image, boxes, **arguments):
        drawn.append((image.shape, np.asarray(boxes).tolist()))
        return image

    monkeypatch.setattr(image_summary, "draw_boxes", draw_boxes)
    ImageSummary(dataset, "unused", max_side=150).pairs(model)
    assert drawn[0] == ((50, 150, 3), [[5.0, 10.0, 40.0, 50.0]])


@pytest.mark.slow
def test_tensorboard_gets_the_pairs_of_the_wanted_epochs(valid, train, model, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model.fit(
        *train,
        batch_size=2,
        epochs=3,
        verbose=0,
        callbacks=[ImageSummary(valid, tmp_path, num_images=2, every=2)],
    )
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = [tag for tag in events.Tags()["tensors"] if "detections" in tag]
    assert sorted(tags) == ["detections/0", "detections/1"]
    assert [event.step for event in events.Tensors("detections/0")] == [1, 2]
