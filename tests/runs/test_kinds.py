"""The kinds of values that fields of a run have."""

import dataclasses

import numpy as np
import pytest

from effdet_keras.runs.configuration import (
    NOTHING,
    SWITCH,
    TEXT,
    RunConfiguration,
    check_names,
    many,
    near,
    number,
    one_of,
    whole,
)

SHARE = number("a number from 0 to 1", lambda x: 0 <= x <= 1)


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (whole(1), [1, np.int64(3)], [0, 1.0, True, "1", None]),
        (SHARE, [0, 1, 0.5, np.float32(0.5)], [-0.1, float("nan"), True, "0.5", None]),
        (one_of("a", "b"), ["a"], ["c", 1, None, ("a",)]),
        (SWITCH, [True, False], [0, 1, "yes", None]),
        (TEXT, ["a"], ["", 1, None]),
        (TEXT | NOTHING, ["a", None], ["", 1]),
        (many(whole(1), "two", count=2), [(1, 2)], [(1,), (1, 2, 3), (1, 0), [1, 2]]),
        (many(TEXT, "names"), [(), ("a", "b")], ["a", ("a", 1)]),
    ],
)
def test_a_kind_holds_what_it_says(kind, right, wrong):
    assert all(map(kind.holds, right))
    assert not any(map(kind.holds, wrong))


def test_the_error_names_field_value_and_what_may_be():
    kind = whole(1) | one_of("auto")
    with pytest.raises(ValueError, match="`size` must be a whole number of at least 1"):
        kind.check("size", 0)
    with pytest.raises(ValueError, match=r"or 'auto'\. Received: size='big'"):
        kind.check("size", "big")


def test_an_unknown_name_says_near_ones():
    with pytest.raises(ValueError, match=r"no field 'epoch'\. Did you mean 'epochs'\?"):
        check_names({"epoch": 1}, ["epochs", "seed"], "A run")
    assert near("zzz", ["epochs"]) == ""


def test_every_field_of_a_run_has_a_kind_that_holds_its_default():
    run = RunConfiguration()
    for field in dataclasses.fields(run):
        field.metadata["kind"].check(field.name, getattr(run, field.name))
