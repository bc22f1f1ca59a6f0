"""How images are ranked: uncertain, contradictory and new ones first, twins last."""

import numpy as np
import pytest
from PIL import Image
from support.clips import photo
from support.small_datasets import record_of

from effdet_keras.data.near_duplicates import hash_images
from effdet_keras.detect.detections import Detections
from effdet_keras.extras.label_next.ranking import (
    disagreement_of,
    rank,
    uncertainty_of,
)


def found(*boxes, scores=(), labels=None):
    labels = np.zeros(len(boxes), int) if labels is None else np.array(labels)
    return Detections(np.array(boxes, float).reshape(-1, 4), np.array(scores), labels)


def hashed(images):
    arrays = map(np.asarray, images)
    return hash_images([record_of(x, x.shape[:2], i) for i, x in enumerate(arrays)])


NONE = hash_images([])
BOX, OTHER = [10, 10, 50, 40], [60, 60, 90, 95]


@pytest.mark.smoke
def test_scores_near_one_half_are_uncertain():
    def of(*scores):
        return uncertainty_of(found(*[BOX] * len(scores), scores=scores))

    assert of(0.5, 0.5, 0.5) == pytest.approx(1.0)
    assert of(0.5) == pytest.approx(1 / 3)
    assert of(0.99, 0.98) < 0.05 < of(0.9, 0.3)
    assert of() == of(0.05, 0.02) == 0.0
    # The three most uncertain of many count.
    assert of(0.5, 0.5, 0.5, 0.99, 0.99) == pytest.approx(1.0)


def test_boxes_that_the_mirror_image_has_too_agree():
    there = found(BOX, OTHER, scores=[0.9, 0.6])
    mirrored = found([10, 60, 50, 90], [60, 5, 90, 40], scores=[0.9, 0.6])
    assert disagreement_of(there, mirrored, width=100) == pytest.approx(0.0)
    # The same boxes without the mirror: nothing agrees.
    assert disagreement_of(there, found(BOX, scores=[0.9]), 100) == pytest.approx(1.0)
    assert disagreement_of(there, found(), 100) == pytest.approx(1.0)
    assert disagreement_of(found(), found(), 100) == 0.0
    # Of another class a box is another one.
    other = found([10, 60, 50, 90], [60, 5, 90, 40], scores=[0.9, 0.6], labels=[1, 0])
    expected = 1 - 2 * 0.6 / (2 * 0.9 + 2 * 0.6)
    assert disagreement_of(there, other, 100) == pytest.approx(expected)


def test_a_box_agrees_with_one_other_only():
    there = found(BOX, BOX, scores=[0.8, 0.8])
    mirrored = found([10, 60, 50, 90], scores=[0.8])
    assert disagreement_of(there, mirrored, 100) == pytest.approx(1 - 1.6 / 2.4)


def test_the_uncertain_and_the_contradictory_come_first():
    images = [photo(seed) for seed in range(4)]
    ranked = rank([0.1, 0.9, 0.2, 0.4], [0.1, 0.9, 0.3, 0.2], hashed(images), NONE)
    assert ranked[0].index == 1 and ranked[-1].index == 0
    assert sorted(one.index for one in ranked) == [0, 1, 2, 3]
    assert all(0 <= one.gain <= 1 for one in ranked)
    assert ranked[0].novelty == 1.0  # nothing is known to be labelled


def test_images_unlike_the_labelled_ones_come_first():
    known, new = photo(0), photo(1)
    near = photo(0).crop((20, 10, 240, 180))
    ranked = rank([0.5, 0.5], [0.5, 0.5], hashed([near, new]), hashed([known]))
    assert [one.index for one in ranked] == [1, 0]
    assert ranked[0].novelty > ranked[1].novelty


def test_near_duplicates_come_last_however_uncertain():
    labelled, image, other = photo(0), photo(1), photo(2)
    images = [labelled.resize((120, 90)), image, image.resize((200, 150)), other]
    ranked = rank(
        [1.0, 0.9, 0.8, 0.1], [1.0, 0.9, 0.8, 0.1], hashed(images), hashed([labelled])
    )
    assert [one.index for one in ranked] == [1, 3, 0, 2]
    assert [one.duplicate_of for one in ranked] == [None, None, -1, 1]


def test_images_of_one_color_and_images_alone_are_ranked():
    grey = Image.fromarray(np.full((30, 40, 3), 128, np.uint8))
    ranked = rank([0.0, 0.0], [0.0, 0.0], hashed([grey, grey]), hashed([grey]))
    assert [one.index for one in ranked] == [0, 1]
    assert len(rank([0.5], [0.5], hashed([photo(0)]), NONE)) == 1
