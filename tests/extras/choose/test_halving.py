"""Successive halving by hand: how long each rung is, who goes on, and what it costs."""

import pytest

from effdet_keras.extras.choose.halving import (
    frontier,
    num_rungs,
    num_survivors,
    ranking,
    rung_epochs,
    uncertainty,
)


def test_rungs_are_eta_times_as_long_and_the_last_is_the_whole_training():
    assert rung_epochs(140, rungs=3, eta=3) == [15, 45, 140]
    assert rung_epochs(9, rungs=3, eta=3) == [1, 3, 9]
    assert rung_epochs(7, rungs=2, eta=2) == [3, 7]
    assert rung_epochs(5, rungs=1, eta=3) == [5]


def test_a_training_too_short_for_its_rungs_is_told():
    with pytest.raises(ValueError, match="need 9 epochs or more. Received: epochs=8"):
        rung_epochs(8, rungs=3, eta=3)


def test_a_third_goes_on_rounded_up():
    assert [num_survivors(n, eta=3) for n in (1, 2, 3, 4, 7)] == [1, 1, 1, 2, 3]
    assert num_survivors(4, eta=2) == 2
    with pytest.raises(ValueError, match="`eta` must be .* at least 2"):
        num_survivors(2, eta=1)


def test_the_best_go_on_and_of_those_that_are_alike_the_most_expensive():
    aps, costs = [0.1, 0.4, 0.2, 0.3, 0.0, 0.5, 0.1], [1, 2, 3, 4, 5, 6, 7]
    assert ranking(aps, costs) == [5, 1, 3, 2, 6, 0, 4]
    assert ranking([0.2, 0.2, 0.2], [1, 1, 1]) == [0, 1, 2]
    # 0.3 is not alike 0.5, and 0.2 is alike 0.3 once 0.4 and 0.5 have their places.
    assert ranking(aps, costs[::-1], margin=0.15) == [1, 5, 2, 3, 0, 4, 6]
    # Lite0 and Lite1 at 128x128, 192x192 and 192x256 after 100 of 900 steps on blood
    # cells: 0.236 ended at 0.504, and the last, 0.184, at 0.537.
    aps, ms = [0.072, 0.236, 0.167, 0.024, 0.211, 0.184], [8, 15, 18, 11, 20, 26]
    assert ranking(aps, ms, uncertainty(1 / 9))[:2] == [5, 4]
    assert uncertainty(1.0) == 0.0


@pytest.mark.parametrize("count", range(6, 60))
def test_steps_are_less_than_40_percent_of_an_exhaustive_search(count):
    """A survivor goes on from its checkpoint: a rung costs what it adds."""
    epochs, rungs = 90, num_rungs(count, 3, 90)
    cost, done, going_on = 0, 0, count
    for end in rung_epochs(epochs, rungs, 3):
        cost += going_on * (end - done)
        done = end
        if end < epochs:
            going_on = num_survivors(going_on, 3)
    assert done == epochs and going_on <= max(count / 9 + 1, 1)
    assert cost <= 0.4 * count * epochs


def test_the_frontier_has_no_point_that_another_beats():
    points = [(20, 0.3), (10, 0.2), (10, 0.1), (30, 0.3), (15, 0.2), (40, 0.5)]
    assert frontier(points) == [(10, 0.2), (20, 0.3), (40, 0.5)]
    assert frontier([]) == []
