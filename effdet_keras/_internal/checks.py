"""What arguments are most often refused for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from effdet_keras.errors import require


def check_known(name: str, value: Any, known: Iterable[Any]) -> None:
    """Refuses a value that is none of those known."""
    known = list(known)
    rule = f"`{name}` must be one of {', '.join(map(repr, known))}"
    require(value in known, rule, **{name: value})


def check_least(name: str, value: Any, least: float = 1) -> None:
    """Refuses a number below the least."""
    require(value >= least, f"`{name}` must be {least} or more", **{name: value})
