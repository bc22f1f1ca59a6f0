"""What an export is judged by, and calibration images that could calibrate nothing."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from support.tiny import spread, tiny_model

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.box_ops import pairwise_iou
from effdet_keras.data import DetectionDataset, from_arrays
from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.export import litert
from effdet_keras.export.check import _closest_expected, check_export
from effdet_keras.export.export_model import _images_of_calibration, _images_of_dataset
from effdet_keras.export.network import check_calibration, divided_calibration
from effdet_keras.export.runtime import Runtime, describe

pytestmark = pytest.mark.tensorflow
RNG = np.random.default_rng(0)
IMAGES = [RNG.integers(0, 256, (64, 64, 3)).astype("uint8") for _ in range(4)]
OTHERS = [RNG.integers(0, 256, (64, 64, 3)).astype("uint8") for _ in range(2)]
SHARES = [image.astype("float32") / 255 for image in IMAGES]


@pytest.fixture(scope="module")
def model():
    return spread(tiny_model())


# --- Calibration that is refused before anything is converted.


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        ([np.zeros((64, 64, 3), "uint8")] * 4, r"only one color.*\[0, 0, 0\]"),
        ([np.full((64, 64, 3), v, "uint8") for v in (20, 200)], r"\[200, 200, 200\]"),
        (SHARES, r"of `calibration` \(float32\) from .*Multiply.*by 255"),
        ([IMAGES[0], 2 * SHARES[1] - 1], "of `calibration` .*as if it were normalized"),
        ([IMAGES[0], SHARES[1] * np.nan], "image 1 of `calibration` .*NaN"),
    ],
    ids=["black", "one color each", "fractions", "normalized", "NaN"],
)
def test_calibration_that_shows_the_range_of_nothing_is_refused_at_once(
    model, tmp_path, monkeypatch, calibration, message
):
    monkeypatch.setattr(litert, "_traced", lambda *_: pytest.fail("it was converted"))
    with pytest.raises(ValueError, match=message):
        model.export(tmp_path / "x.tflite", precision="int8", calibration=calibration)
    with pytest.raises(ValueError, match=message):
        model.export(tmp_path / "x", target="mediapipe", calibration=calibration)
    assert not list(tmp_path.iterdir())


def test_black_images_of_a_dataset_are_refused_and_some_among_others_are_not():
    black = np.zeros((64, 64, 3), "uint8")
    dataset = from_arrays([black] * 3, [[]] * 3, [[]] * 3, ("cat",))
    with pytest.raises(ValueError, match="only one color"):
        check_calibration(dataset, 100)
    check_calibration([black, black, IMAGES[0]], 100)


# --- Images that check a file and did not calibrate it.


def numbers(sources):
    return [int(read()[0, 0, 0]) for read in sources]


def test_the_check_has_images_that_did_not_calibrate():
    images = [np.full((4, 4, 3), value, "uint8") for value in range(40)]
    chosen, held_back = map(numbers, divided_calibration(images, 100))
    assert held_back == [0, 13, 26, 39]
    assert sorted(chosen + held_back) == list(range(40))
    # Of more images than are used nothing has to be held back.
    chosen, held_back = map(numbers, divided_calibration(images, 10))
    assert len(chosen) == 10 and len(held_back) == 4
    assert not set(chosen) & set(held_back)
    # Of a few all are needed.
    chosen, held_back = divided_calibration(images[:9], 100)
    assert len(chosen) == 9 and not held_back
    used = {"calibration": images, "calibration_images": None}
    assert [int(x[0, 0, 0]) for x in _images_of_calibration(used)] == [0, 13, 26, 39]
    used = {"calibration": images[:20]}
    assert [int(x[0, 0, 0]) for x in _images_of_calibration(used)] == [0, 19, 1, 18]


def test_images_of_the_check_may_be_a_dataset(model, tmp_path):
    images = [*IMAGES, *OTHERS]
    dataset = from_arrays(images, [[]] * 6, [[]] * 6, ("cat",))
    chosen = _images_of_dataset(dataset)
    assert [any(np.array_equal(x, y) for y in chosen) for x in images].count(True) == 4
    report = model.export(tmp_path / "x.onnx", images=dataset, verbose=0)
    assert report.images == 4
    with pytest.raises(ValueError, match="`images` is a dataset without images"):
        model.export(tmp_path / "y.onnx", images=DetectionDataset([], ("cat",)))
    assert not (tmp_path / "y.onnx").exists()


# --- What is judged.


class FileOf(Runtime):
    """A file that computes what a model does, but for `change(logits, images)`."""

    def __init__(self, model, path, change, precision="int8"):
        path.write_bytes(b"file")
        self.path, self._model, self._change = path, model, change
        self.description = describe(model, outputs="raw", precision=precision)

    def run(self, images):
        found = {n: np.array(v) for n, v in self._model(images).items()}
        return {**found, "class_logits": self._change(found["class_logits"], images)}


def checked(model, tmp_path, change, *, others=(), precision="int8"):
    runtime = FileOf(model, tmp_path / "file", change, precision)
    return check_export(model, runtime, IMAGES, format="litert", others=others)


def test_other_images_count_as_well(model, tmp_path):
    def wrong_in_others(logits, images):
        is_other = any(np.array_equal(images[0], other) for other in OTHERS)
        return logits * 0.3 if is_other else logits

    report = checked(model, tmp_path, wrong_in_others)
    assert report.matched == report.live_detections > 0 and report.images == 4
    with pytest.raises(ValueError, match="does not compute the same as the model"):
        checked(model, tmp_path, wrong_in_others, others=OTHERS)
    same = checked(model, tmp_path, lambda logits, _: logits, others=OTHERS)
    assert same.live_detections == report.live_detections and same.images == 6


def test_a_graphics_card_does_not_round_to_tf32_what_is_compared(model, tmp_path):
    rounds = tf.config.experimental.tensor_float_32_execution_enabled
    seen = []

    def spy(logits, images):
        seen.append(rounds())
        return logits

    assert rounds()
    checked(model, tmp_path, spy, precision="float32")
    assert seen == [False] * len(IMAGES) and rounds()


@pytest.mark.parametrize(
    ("precision", "cure"),
    [
        ("int8", "Calibrate with more images"),
        ("dynamic", "Export float16, or int8"),
        ("float16", "export float32"),
        ("float32", "the tool that converts the model has a fault"),
    ],
)
def test_a_wrong_file_is_told_with_the_cure_of_its_precision(
    model, tmp_path, precision, cure
):
    with pytest.raises(ValueError, match=rf"\({precision}\) .*written\. .*{cure}"):
        checked(model, tmp_path, lambda logits, _: logits * 0.3, precision=precision)


def test_numbers_that_are_none_are_seen_in_any_image(tmp_path):
    """In the first of four, where no detection is found that could be missed."""
    model = unsure(tiny_model(), -4.0)

    def broken(logits, images):
        return logits * (np.nan if np.array_equal(images[0], IMAGES[0]) else 1.0)

    with pytest.raises(ValueError, match="`class_logits` differs by nan"):
        checked(model, tmp_path, broken, precision="float32")


def test_an_overlap_at_the_threshold_of_suppression_may_be_decided_either_way():
    # A box, one a third of its width beside it (an IoU of 0.5), and one far away.
    anchors = np.array([[0, 0, 24, 24], [0, 8, 24, 32], [40, 40, 64, 64]], "float32")
    iou = float(pairwise_iou(anchors[:1], anchors[1:2])[0, 0])
    assert iou == 0.5
    live = {
        "class_logits": np.array([[[2.0], [1.0], [0.0]]], "float32"),
        "box_deltas": np.zeros((1, 3, 4), "float32"),
    }
    hard = Postprocess(method="hard", iou_threshold=iou, max_detections=5)
    of_model = SimpleNamespace(config=tiny_model().config, anchors=anchors)
    description = SimpleNamespace(postprocess=hard, classes_per_detection=1)

    def gap_of(found):
        found = {name: np.asarray(value)[0] for name, value in found.items()}
        expected, gap = _closest_expected(description, live, of_model, found)
        assert np.abs(expected["scores"] - found["scores"]).max() == pytest.approx(gap)
        return gap

    counts = set()
    for threshold in (iou - 1e-5, iou + 1e-5):
        file = dataclasses.replace(hard, iou_threshold=threshold)
        found = file(live, anchors, (64, 64))
        counts.add(int(found["num_detections"][0]))
        assert gap_of(found) == 0.0
        lower = {**live, "class_logits": live["class_logits"] - 0.1}
        assert gap_of(file(lower, anchors, (64, 64))) > 0.01
    assert counts == {2, 3}
    # An overlap that is clearly above the threshold is not at it.
    file = dataclasses.replace(hard, iou_threshold=0.9)
    live["box_deltas"][0, 1, 1] = -0.1
    assert gap_of(file(live, anchors, (64, 64))) > 0.2


def unsure(model, logit):
    """The model, with all of its scores around that of a logit."""
    for weight in model.weights:
        if "class-predict" in weight.path:
            is_bias = weight.path.endswith("bias")
            weight.assign(weight * 0 + (logit if is_bias else 0.0))
    return model


def test_low_scores_are_compared_where_no_detection_is_certain(tmp_path):
    model = unsure(tiny_model(), -4.0)  # a score of 0.018
    report = checked(model, tmp_path, lambda logits, _: logits)
    text = str(report)
    assert report.live_detections == 0 and "0 of 0" not in text
    assert "compared, 0.018 of the model and 0.018 of the file. To check more" in text
    with pytest.raises(ValueError, match="highest score in these images is 0.0024"):
        checked(model, tmp_path, lambda logits, _: logits - 2.0)
    # A step of 1/256 more or less is what 8 bits are.
    checked(model, tmp_path, lambda logits, _: logits + 0.2)


def test_a_check_of_nothing_says_that_it_was_none(tmp_path):
    model = unsure(tiny_model(), -20.0)
    for precision in ("int8", "float32"):
        options = {"precision": precision}
        report = checked(model, tmp_path, lambda logits, _: logits, **options)
        assert "NOT CHECKED" in str(report) and "0 of 0" not in str(report)
        assert "pass `images` in which the model finds objects" in report.warnings[0]
