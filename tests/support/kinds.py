"""Parameters of tests that try many kinds of one thing."""

import pytest


def slow_but(fast, kinds):
    """All kinds, of which those that are not in `fast` carry the marker `slow`."""
    return [k if k in fast else pytest.param(k, marks=pytest.mark.slow) for k in kinds]
