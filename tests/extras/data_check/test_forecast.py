"""What AP to expect of a dataset, from the trainings of the scorecard."""

import numpy as np
import pytest

from effdet_keras.data.formats.arrays import from_arrays
from effdet_keras.extras.data_check import forecast as module
from effdet_keras.extras.data_check.forecast import Training, expect, forecast


def dataset_of(images, boxes, classes):
    """Images of 100 x 100 with boxes of 40 x 40."""
    return from_arrays(
        [np.zeros((100, 100, 3), "uint8")] * images,
        [[[5, 5 + i, 45, 45 + i] for i in range(boxes)]] * images,
        [[i % classes for i in range(boxes)]] * images,
        [f"class {i}" for i in range(classes)],
    )


def test_the_nearest_in_classes_boxes_and_sides_is_the_one_like_it():
    few = Training("few", 100, 2, 2.0, 0.5, 0.8)
    many = Training("many", 100, 16, 2.0, 0.5, 0.4)
    own = Training("own", 100, 4, 2.0, 0.5, -1.0)
    assert expect(own, [many, few]) == (few, 0.8)
    # Twice as many boxes in an image are as far as twice as many classes.
    other = Training("other", 100, 4, 3.9, 0.5, 0.6)
    assert expect(own, [few, other]) == (other, 0.6)
    smaller = Training("smaller", 100, 4, 2.0, 0.2, 0.6)
    assert expect(own, [few, smaller]) == (few, 0.8)


def test_half_the_images_lose_what_the_scorecard_shows():
    like = Training("like", 80, 1, 1.0, 0.4, 0.7)
    lost = module._LOST_BY_HALF
    for images, expected in (
        (160, 0.7),
        (80, 0.7),
        (40, 0.7 - lost),
        (5, 0.7 - 4 * lost),
    ):
        found = expect(Training("own", images, 1, 1.0, 0.4, -1.0), [like])[1]
        assert found == pytest.approx(expected), images
    assert (
        expect(Training("own", 1, 1, 1.0, 0.4, -1.0), [like._replace(ap=0.1)])[1] == 0
    )


def test_four_of_five_intervals_hold_when_each_is_expected_from_the_others():
    found = []
    for one in module.SCORECARD:
        others = [x for x in module.SCORECARD if x != one]
        margin = np.quantile(module.leave_one_out(others), 0.8, method="higher")
        found.append(abs(expect(one, others)[1] - one.ap) <= margin)
    assert np.mean(found) >= 0.8, found


def test_the_line_names_the_dataset_the_reason_and_the_error():
    (line,) = forecast(dataset_of(80, 1, 1))
    start = "Of the measured datasets, this one is most like cats (1 class, 1.2 boxes"
    assert line.startswith(start)
    assert "Expect an AP of 0." in line and "5 datasets" in line
    low, high = map(float, line.split("an AP of ")[1].split(" with")[0].split(" to "))
    cats = module.SCORECARD[0]
    assert low < cats.ap < high
    assert forecast(dataset_of(3, 0, 1)) == []
