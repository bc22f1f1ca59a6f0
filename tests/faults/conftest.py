"""How hard the faults are tried: a little by default, hard under the marker `slow`."""

import pytest


@pytest.fixture(params=["short", pytest.param("long", marks=pytest.mark.slow)])
def times(request):
    """A function of (short, long): how often something is done."""
    return lambda short, long: short if request.param == "short" else long
