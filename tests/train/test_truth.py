"""What the truth of a batch must be: each fault by hand, and no false alarm."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.train import inputs as truth

SIZE = (64, 96)


def faults_of(boxes, labels):
    boxes = np.array(boxes, "float32").reshape(*np.shape(labels), 4)
    labels = np.array(labels)
    config = EfficientDetConfig(image_size=SIZE, num_classes=3, max_level=6)
    batch = {"boxes": boxes, "labels": labels}
    explained = truth.explain_batch(batch, config)
    valid = bool(truth.is_valid_batch(batch, config))
    assert valid == (explained is None)
    return explained


@pytest.mark.parametrize(
    "boxes, labels",
    [
        ([[[8, 8, 40, 90]]], [[2]]),
        ([[[8, 8, 40, 90], [0, 0, 0, 0]]], [[0, -1]]),
        ([[[0, 0, 0, 0]]], [[1]]),  # zeros are padding whatever the label
        ([[[-1, -1, -1, -1]]], [[-1]]),  # as other programs pad
        ([[[-9, -9, 64, 96]]], [[0]]),  # reaches out, but is there
        ([[[0.2, 0.3, 0.9, 0.8]]], [[0]]),  # one sliver left by a crop
        ([[[0.2, 0.3, 0.9, 0.8], [8, 8, 40, 40]]], [[0, 0]]),
        (np.zeros((2, 0, 4)), np.zeros((2, 0), int)),
    ],
)
def test_good_truth_passes(boxes, labels):
    assert faults_of(boxes, labels) is None


@pytest.mark.parametrize(
    "boxes, labels, message",
    [
        ([[[8, 8, 40, 40]]], [[3]], "below the model's `num_classes`, 3.*label 3"),
        ([[[8, 8, 40, 40]]], [[-5]], "start at 0, and be -1.*label -5"),
        ([[[8, 8, 40, 40]]], [[0.7]], "whole numbers.*label 0.7"),
        ([[[40, 8, 8, 40]]], [[0]], "ends before it begins"),
        ([[[np.nan, 8, 40, 40]]], [[0]], "finite"),
        ([[[8, 8, np.inf, 40]]], [[0]], "finite"),
        ([[[8, 70, 40, 90]], [[70, 8, 90, 40]]], [[0], [0]], "image 1"),
        ([[[200, 200, 300, 300]]], [[0]], r"\(64, 96\).*center"),
        ([[[0.1, 0.1, 0.5, 0.5]], [[0, 0, 1, 1]]], [[0], [1]], "between 0 and 1"),
    ],
)
def test_each_fault_is_explained(boxes, labels, message):
    assert re.search(message, faults_of(boxes, labels))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_clipped_boxes_in_pixels_always_pass(data):
    size = st.floats(2, 60, width=32)
    rows = [
        (y, x, y + h, x + w)
        for y, x, h, w in data.draw(
            st.lists(
                st.tuples(st.floats(0, 60, width=32), st.floats(0, 60), size, size),
                min_size=1,
                max_size=6,
            )
        )
    ]
    boxes = np.clip(np.array(rows), 0, [*SIZE, *SIZE])
    assert faults_of([boxes], [[1] * len(rows)]) is None
