"""The stages that need no training: sound data passes, broken data fails where it is.

Each broken dataset is sound but for one thing, and must fail at one stage first.
"""

import dataclasses

import numpy as np
import pytest
from keras import ops
from PIL import Image

from effdet_keras.data import DetectionDataset, from_arrays
from effdet_keras.data.problems import Problem
from effdet_keras.extras.selftest.self_test import RULES, follow_boxes
from effdet_keras.extras.selftest.stages import SelfTestReport
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.train.matching import IoUMatching, Matching

pytestmark = pytest.mark.tensorflow

CONFIG = EfficientDetConfig.from_name("efficientdet-lite0", image_size=64, max_level=5)
STAGES = (
    "scoring",
    "reading",
    "letterbox",
    "matching (IoU)",
    "encoding (IoU)",
    "all of it (IoU)",
    "matching (ATSS)",
    "encoding (ATSS)",
    "all of it (ATSS)",
)
BOXES = [[[8, 8, 40, 40], [4, 30, 20, 60]], [[10, 2, 50, 30]], []]  # yxyx


def sound(size=(64, 64), boxes=BOXES):
    images = [np.zeros((*size, 3), "uint8")] * len(boxes)
    labels = [[n % 2 for n, _ in enumerate(one)] for one in boxes]
    return from_arrays(images, boxes, labels, ["cat", "dog"])


def changed(dataset, number, **fields):
    """The dataset with other fields of one record."""
    records = list(dataset.records)
    records[number] = dataclasses.replace(records[number], **fields)
    return DetectionDataset(records, dataset.class_names, dataset.category_ids)


def with_boxes(boxes_xywh):
    """The sound dataset with other boxes in its first image."""
    return changed(sound(), 0, boxes_xywh=boxes_xywh)


def follow(dataset, config=CONFIG, rules=RULES):
    stages = []
    usable = follow_boxes(dataset, config, stages.append, rules)
    return SelfTestReport(tuple(stages)), usable


def failed(report):
    return [stage.name for stage in report.stages if not stage.passed]


@pytest.mark.smoke
def test_nothing_is_lost_of_sound_data():
    report, usable = follow(sound())
    assert tuple(stage.name for stage in report.stages) == STAGES
    assert report.ok and failed(report) == []
    assert all(stage.average_precision > 0.999 for stage in report.stages)
    assert all(stage.lost == () for stage in report.stages)
    assert "0 of 3 boxes lost" in str(report.stage("letterbox"))
    assert usable.tolist() == [True, True, True]
    assert report.verdict() == "All 9 stages passed."


@pytest.mark.parametrize("size", [(200, 100), (90, 301)])
def test_images_of_any_shape_pass(size):
    height, width = size
    boxes = [[[0, 0, height // 2, width // 2], [height // 3, 5, height, width - 1]]]
    assert follow(sound(size, boxes))[0].ok


def test_a_box_without_area_fails_in_scoring_and_nowhere_else():
    report, _ = follow(with_boxes([[8, 8, 32, 32], [30, 4, 0, 16]]))
    assert failed(report) == ["scoring"]
    (lost,) = report.stage("scoring").lost
    assert lost.count == 1 and "no area" in lost.reason
    assert lost.examples == ("image_id=1: dog, left 30, top 4, width 0, height 16",)


def test_a_label_without_a_class_fails_in_scoring():
    report, _ = follow(changed(sound(), 0, labels=[0, 2]))
    assert failed(report)[0] == "scoring"
    assert "must be from 0 to 1" in report.stage("scoring").lost[0].cure


def test_nothing_to_find_ends_the_test():
    report, usable = follow(sound(boxes=[[], []]))
    assert usable is None and len(report.stages) == 1 and not report.ok
    assert "iscrowd" in report.stages[0].cure


def test_images_that_cannot_be_read_fail_in_reading(tmp_path, capsys):
    small, broken = tmp_path / "small.png", tmp_path / "broken.png"
    Image.new("RGB", (32, 32)).save(small)  # annotated as 64 x 64
    broken.write_bytes(b"no image")
    dataset = sound(boxes=[*BOXES[:2], BOXES[1]])
    dataset = changed(dataset, 0, image=str(small), file_name="small.png")
    dataset = changed(dataset, 1, image=str(broken), file_name="broken.png")
    report, usable = follow(dataset)
    assert failed(report)[0] == "reading"
    stage = report.stage("reading")
    assert stage.lost[0].count == 3 and "cannot be read" in stage.lost[0].reason
    assert stage.lost[0].examples[0].startswith("small.png: cat")
    assert usable.tolist() == [False, False, True]
    assert "could not be read" in capsys.readouterr().err


@pytest.mark.parametrize("box", [[100, 8, 32, 32], [40, 8, 100, 32]])
def test_boxes_in_the_wrong_place_fail_in_reading(box):
    report, usable = follow(with_boxes([box, [30, 4, 16, 16]]))
    assert failed(report)[0] == "reading"
    assert "outside of its image" in report.stage("reading").lost[0].reason
    assert report.stage("letterbox").passed and report.stage("matching (IoU)").passed
    assert usable.tolist() == [False, True, True]


def test_what_the_reader_left_out_is_told_and_an_error_fails():
    def with_problem(kind):
        data = sound()
        problem = Problem(kind, "a.json", "annotation 7")
        return DetectionDataset(data.records, data.class_names, problems=[problem])

    report, _ = follow(with_problem("unknown class"))
    assert failed(report) == ["reading"]
    assert report.stage("reading").lost[0].examples == ("a.json: annotation 7",)
    report, _ = follow(with_problem("stray annotation"))
    assert report.ok and "stray annotation" in str(report.stage("reading"))


def test_boxes_too_small_for_the_input_fail_in_the_letterbox():
    boxes = [[[100, 100, 500, 600], [10, 10, 30, 30]], [[200, 300, 700, 800]]]
    dataset = sound((1000, 1000), boxes)
    report, usable = follow(dataset)
    assert failed(report)[0] == "letterbox"
    (lost,) = report.stage("letterbox").lost
    assert lost.count == 1 and "64x64" in lost.reason
    assert "--image-size" in lost.cure
    assert usable.tolist() == [False, True]
    assert follow(dataset, CONFIG.replace(image_size=128))[0].stage("letterbox").passed


def test_small_boxes_side_by_side_fail_in_matching():
    """Both overlap one anchor most, which is for the first of them."""
    report, _ = follow(with_boxes([[24, 24, 4, 4], [28, 24, 4, 4]]))
    first = failed(report)[0]
    assert first.startswith("matching")
    stage = report.stage(first)
    assert "another box has" in stage.lost[0].reason and stage.lost[0].count == 1
    assert "inspect DATA --anchors" in stage.cure
    assert " ".join(str(stage).split()).count(stage.cure) == 1
    assert report.stage(first.replace("matching", "encoding")).passed  # what is left
    assert not report.stage(first.replace("matching", "all of it")).passed


def test_an_image_so_flat_that_rounding_counts_fails_in_the_letterbox():
    """37 pixels become 7, where 7.9 would keep the proportions."""
    report, _ = follow(sound((37, 301), [[[0, 0, 37, 150], [5, 160, 37, 300]]]))
    assert failed(report)[0] == "letterbox"
    stage = report.stage("letterbox")
    assert stage.lost == () and "Rounding moves" in stage.cure
    assert not report.stage("all of it (IoU)").passed


class _Spoiled(Matching):
    """The reference's rule, with targets that are wrong.

    The test matches by number first, where the two boxes of an image are 0 and 1, and
    only then by class.
    """

    def __init__(self, classes=0, deltas=0.0):
        self.classes, self.deltas, self.calls = classes, deltas, 0

    def __call__(self, boxes, labels, anchors, config):
        self.calls += 1
        classes, deltas = IoUMatching()(boxes, labels, anchors, config)
        if self.classes and self.calls % 2 == 0:
            classes = ops.where(classes >= 0, 1 - classes, classes)
        return classes, deltas + self.deltas


@pytest.mark.parametrize("spoiled", [{"deltas": 1.0}, {"classes": 1}], ids=str)
def test_wrong_targets_fail_in_encoding(spoiled):
    report, _ = follow(sound(), rules={"mine": _Spoiled(**spoiled)})
    assert failed(report)[0] == "encoding (mine)"
    assert report.stage("encoding (mine)").lost[0].count == 3


def test_a_box_that_is_decoded_a_little_beside_costs_precision():
    report, _ = follow(sound(), rules={"mine": _Spoiled(deltas=0.05)})
    stage = report.stage("encoding (mine)")
    assert not stage.passed and stage.lost == ()
    assert 0.5 < stage.average_precision < 0.99
