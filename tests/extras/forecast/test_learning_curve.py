"""The power law of a learning curve, on curves whose end is known."""

import numpy as np
import pytest

from effdet_keras.extras.forecast.learning_curve import LearningCurve

PARTS = (0.12, 0.25, 0.5)


def true_curve(random):
    """AP over the number of images, for a dataset as there are."""
    final, exponent = random.uniform(0.4, 0.95), random.uniform(0.25, 1.0)
    at_100 = random.uniform(0.3, 0.9) * final
    return lambda n: np.maximum(final - (final - at_100) * (n / 100) ** -exponent, 0.0)


def measured(curve, num_images, random, noise):
    numbers = np.round(num_images * np.array(PARTS))
    values = curve(numbers) + random.normal(0, noise, len(numbers))
    return numbers, np.clip(values, 0, 1)


@pytest.mark.smoke
def test_a_curve_without_noise_is_continued():
    for final, exponent in ((0.6, 0.5), (0.8, 0.7), (0.9, 0.35)):
        numbers = np.array([30, 60, 120])
        values = final - 0.3 * (numbers / 30) ** -exponent
        curve = LearningCurve(numbers, values, num_objects=1000)
        expected = final - 0.3 * (240 / 30) ** -exponent
        assert curve.forecast(240).middle == pytest.approx(expected, abs=0.02)


def test_eight_of_ten_intervals_hold_and_the_middle_is_near():
    """Of 300 made-up datasets, with the chance of one training: all, and twice all."""
    random = np.random.default_rng(0)
    held, errors, twice = [], [], []
    for _ in range(300):
        truth, number = true_curve(random), random.integers(60, 2000)
        numbers, values = measured(truth, number, random, noise=0.02)
        curve = LearningCurve(numbers, values, num_objects=2000)
        reached = truth(number) + random.normal(0, 0.02)
        low, middle, high = curve.forecast(number)
        held.append(low <= reached <= high)
        errors.append(abs(middle - reached))
        low, _, high = curve.forecast(2 * number)
        twice.append(low <= truth(2 * number) + random.normal(0, 0.02) <= high)
    assert 0.72 <= np.mean(held) <= 0.92
    assert 0.70 <= np.mean(twice) <= 0.95
    assert np.median(errors) < 0.03 and np.quantile(errors, 5 / 6) < 0.05


def test_more_images_are_never_expected_to_lose():
    """Also where chance had the larger training lose."""
    curve = LearningCurve([30, 60, 120], [0.50, 0.52, 0.49], num_objects=300)
    middles = [curve.forecast(n).middle for n in (120, 240, 480, 960)]
    assert middles == sorted(middles) and 0.45 < middles[0] < 0.56


def test_what_is_not_known_grows_with_the_distance_and_with_few_objects():
    numbers, values = [30, 60, 120], [0.4, 0.5, 0.56]

    def width(num_images, num_objects):
        low, _, high = LearningCurve(numbers, values, num_objects).forecast(num_images)
        return high - low

    assert width(240, 1000) < width(480, 1000) < width(4800, 1000)
    assert width(240, 1000) < width(240, 30)


def test_a_fourth_measurement_narrows_the_forecast():
    three = LearningCurve([30, 60, 120], [0.4, 0.5, 0.57], 1000).forecast(480)
    four = LearningCurve([30, 60, 120, 240], [0.4, 0.5, 0.57, 0.62], 1000).forecast(480)
    assert four.high - four.low < three.high - three.low


@pytest.mark.parametrize(
    "values", [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.9, 0.96, 0.99]]
)
def test_forecasts_are_average_precisions(values):
    curve = LearningCurve([30, 60, 120], values, num_objects=50)
    for number in (60, 240, 100_000):
        low, middle, high = curve.forecast(number)
        assert 0 <= low <= middle <= high <= 1


@pytest.mark.parametrize(
    ("numbers", "values", "message"),
    [
        ([30], [0.5], "two different numbers"),
        ([30, 30], [0.5, 0.6], "two different numbers"),
        ([30, 60], [0.5, -1.0], "AP is from 0 to 1"),
        ([0, 60], [0.5, 0.6], "above 0"),
    ],
)
def test_measurements_that_make_no_curve_are_refused(numbers, values, message):
    with pytest.raises(ValueError, match=message):
        LearningCurve(numbers, values, num_objects=100)
