"""A power law of AP over the number of training images, and its uncertainty.

The error of a learner falls with a power of the number of examples, down to a rest that
no number of examples removes (Hestness et al., 2017, "Deep Learning Scaling is
Predictable, Empirically"). With `n` images, and `n0` the largest number that was
measured,

    AP(n) = level + gain * (1 - (n / n0) ** -exponent)

where `level` is AP at `n0`, and `level + gain` is AP of infinitely many images. Three
or four measurements, each of one training, do not determine these three numbers: many
curves fit about equally well. So each curve of a grid is weighted by the likelihood of
the measurements. A forecast is the interval given by these curves and by the random
differences between trainings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from effdet_keras.errors import require

# The standard deviation of AP from one training to the next, if many objects are
# evaluated. With few objects, the second number is added, divided by the root of their
# number.
_NOISE, _NOISE_OF_ONE = 0.015, 0.3
# Trainings on fewer images differ more: by the fourth root of the ratio of images.
_NOISE_POWER = 0.25
# Exponents as measured in the literature: half of them lie between 0.3 and 0.8.
_EXPONENT, _EXPONENT_SPREAD = 0.5, 0.7  # the median, and the spread of its logarithm
_EXPONENTS = np.geomspace(0.05, 2.5, 41)
_GAINS = np.linspace(0.0, 1.0, 101) ** 2
_LEVELS = np.linspace(-3.0, 3.0, 31)  # around the last AP, in standard deviations
_DRAWS = 20_000
HELD = 0.8  # the probability that AP is in an interval


class Interval(NamedTuple):
    """An expected value, and the interval that holds it in four of five cases.

    Example:
        >>> low, middle, high = Interval(0.5, 0.6, 0.65)
        >>> middle
        0.6
    """

    low: float
    middle: float
    high: float


class LearningCurve:
    """The learning curves that are compatible with some measurements.

    Args:
        num_images: ints, the number of training images of each measurement.
        average_precisions: floats from 0 to 1, the AP of each measurement.
        num_objects: int, the number of objects in the images on which AP was measured.
            With few objects, AP is less certain.

    Raises:
        ValueError: If there are not two measurements with different numbers of images,
            or if a number is out of its range.

    Example:
        >>> curve = LearningCurve([30, 60, 120], [0.42, 0.51, 0.57], num_objects=400)
        >>> low, middle, high = curve.forecast(240)
        >>> 0.57 < middle < 0.65 and low < middle < high
        True
    """

    def __init__(
        self,
        num_images: Sequence[int],
        average_precisions: Sequence[float],
        num_objects: int,
    ):
        numbers = np.asarray(num_images, float)
        measured = np.asarray(average_precisions, float)
        is_curve = len(numbers) == len(measured) and len(np.unique(numbers)) > 1
        rule = "A learning curve needs AP of two different numbers of images or more"
        require(is_curve, rule, num_images=num_images, aps=average_precisions)
        is_right = (numbers > 0).all() and ((measured >= 0) & (measured <= 1)).all()
        rule = "Numbers of images are above 0, and AP is from 0 to 1"
        require(is_right, rule, num_images=num_images, aps=average_precisions)
        self._most = numbers.max()
        self._noise = _NOISE + _NOISE_OF_ONE / np.sqrt(max(num_objects, 1))
        last = measured[numbers == self._most].mean()
        levels = np.unique(np.clip(last + _LEVELS * self._noise, 0.0, 1.0))
        level, gain, exponent = np.meshgrid(levels, _GAINS, _EXPONENTS, indexing="ij")
        # AP is at most 1: greater gains are not possible.
        is_possible = level + gain <= 1.0
        self._level, self._gain = level[is_possible], gain[is_possible]
        self._exponent = exponent[is_possible]
        log_odds = -0.5 * (np.log(self._exponent / _EXPONENT) / _EXPONENT_SPREAD) ** 2
        # The grid of gains is denser near 0, so a point has the weight of its cell.
        log_odds += np.log(np.gradient(_GAINS)[np.searchsorted(_GAINS, self._gain)])
        for number, value in zip(numbers, measured):
            off = (value - self._at(number)) / self._noise_of(number)
            log_odds -= 0.5 * off**2
        odds = np.exp(log_odds - log_odds.max())
        random = np.random.default_rng(0)  # makes forecasts reproducible
        self._drawn = random.choice(len(odds), _DRAWS, p=odds / odds.sum())
        self._chance = random.standard_normal(_DRAWS)

    def forecast(self, num_images: int) -> Interval:
        """Returns the AP that one training on `num_images` images should reach."""
        values = self._at(num_images)[self._drawn]
        once = values + self._chance * self._noise_of(num_images)
        outside = (1 - HELD) / 2
        low, high = np.quantile(np.clip(once, 0.0, 1.0), [outside, 1 - outside])
        # Near 0 and 1, chance only goes one way, and the middle may be at the border.
        middle = np.clip(np.median(values), low, high)
        return Interval(float(low), float(middle), float(high))

    def _at(self, num_images):
        """Returns the AP of each curve, at least 0."""
        falls = (num_images / self._most) ** -self._exponent
        return np.maximum(self._level + self._gain * (1 - falls), 0.0)

    def _noise_of(self, num_images):
        return self._noise * max(self._most / num_images, 1.0) ** _NOISE_POWER
