"""How the core reaches its extras: by name, when one is first used; it imports none."""

from __future__ import annotations

import importlib
from typing import Any


def extra(place: str) -> Any:
    """What an extra registered under a name.

    The names stand in the tables of the core (docs/architecture.md, "Seams"): the
    subcommands, the kinds of weights, the targets of exports, the files of other
    trainers. An extra is imported when one of its names is first used.

    Args:
        place: string, `module:name`, the module below `effdet_keras.extras`; or the
            module alone.

    Example:
        >>> extra("targets.triton:write_triton").__name__
        'write_triton'
    """
    module, _, name = place.partition(":")
    found = importlib.import_module(f"effdet_keras.extras.{module}")
    return getattr(found, name) if name else found
