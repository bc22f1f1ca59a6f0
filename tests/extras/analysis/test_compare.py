"""The comparison of two detectors: the AP is pycocotools', the draws are fair."""

import dataclasses

import numpy as np
import pytest
from support.image_results import coco_numbers, image_result, noisy_results

from effdet_keras.extras.analysis import compare
from effdet_keras.extras.analysis.compare import compare_detectors

BOX, FAR = (0, 0, 10, 10), (50, 50, 60, 60)


def ap_of(results, counts):
    """AP and AP50 of images that count so often, as a draw computes them."""
    return compare._ap_and_ap50(compare._Class.from_results(results), np.array(counts))


def coarse(results):
    """Equal scores, and boxes that overlap alike."""
    return [
        dataclasses.replace(
            one,
            scores=np.ceil(one.scores * 6) / 6,
            boxes=np.ceil(one.boxes / 6) * 6,
            truth_boxes=np.ceil(one.truth_boxes / 6) * 6,
        )
        for one in results
    ]


@pytest.mark.parametrize(
    "results",
    [
        *(noisy_results(seed, truth_seed=seed) for seed in range(3)),
        noisy_results(0, num_extra=350),  # more than 100 of one class
        coarse(noisy_results(3)),
    ],
    ids=["0", "1", "2", "many", "coarse"],
)
def test_the_ap_is_that_of_pycocotools(results):
    expected = coco_numbers(results, 3, "pycocotools")
    backwards = results[::-1]
    [ap, ap50] = compare_detectors(backwards, results, num_draws=1).values()
    assert ap.first == ap.second == pytest.approx(expected["AP"], abs=1e-12)
    assert ap50.first == ap50.second == pytest.approx(expected["AP50"], abs=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_an_image_that_is_drawn_twice_counts_twice(seed):
    results = noisy_results(seed)
    counts = np.random.default_rng(seed).integers(0, 4, len(results))
    drawn = [one for one, count in zip(results, counts) for _ in range(count)]
    drawn = [dataclasses.replace(x, image_id=i) for i, x in enumerate(drawn, start=1)]
    expected = coco_numbers(drawn, 3, "pycocotools")
    assert ap_of(results, counts) == pytest.approx(
        (expected["AP"], expected["AP50"]), abs=1e-12
    )


def test_a_class_that_was_not_drawn_is_left_out_of_the_mean():
    both = [
        image_result([(0, *BOX)], [(0, 0.9, *BOX)], image_id=1),
        image_result([(1, *BOX)], [(0, 0.9, *BOX)], image_id=2),
    ]
    assert ap_of(both, [1, 1]) == (0.5, 0.5)
    assert ap_of(both, [1, 0]) == (1, 1)
    assert ap_of(both, [0, 1]) == (0, 0)


def test_the_same_detector_is_not_better():
    results = noisy_results(0)
    for difference in compare_detectors(results, results, num_draws=50).values():
        assert difference[2:] == (0, 0)  # low, high


def test_the_interval_is_that_of_a_bootstrap_by_hand():
    """Of 20 objects, one on each image, the first misses 6 and the second none."""
    truth, found = [(0, *BOX)], [(0, 0.9, *BOX)]
    first = [
        image_result(truth, found if i >= 6 else [], image_id=i) for i in range(20)
    ]
    second = [image_result(truth, found, image_id=i) for i in range(20)]
    ap50 = compare_detectors(first, second, num_draws=1000)["AP50"]
    assert (ap50.first, ap50.second) == pytest.approx((0.7, 1), abs=0.01)
    # The share that is missed is binomial: 95 % of it lies between 2 and 10 of 20.
    assert (ap50.low, ap50.high) == pytest.approx((0.1, 0.5), abs=0.02)


@pytest.mark.parametrize("num_images", [0, 2])
def test_images_without_objects_tell_nothing_of_two_detectors(num_images):
    """There is no AP to draw: it would be an error of NumPy, or draws without end."""
    found = [(0, 0.9, *BOX)]
    results = [image_result([], found, image_id=i) for i in range(num_images)]
    message = f"on images with objects. Received: num_images={num_images}"
    with pytest.raises(ValueError, match=message):
        compare_detectors(results, results)
