"""Old names, which work for one release with a `DeprecationWarning`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from effdet_keras.errors import InvalidTypeError

T = TypeVar("T")


def warn_of_old_name(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warns the caller of a function that it used an old name; names the new one."""
    warnings.warn(
        f"`{old}` is `{new}` now; the old name will be removed in the next release.",
        DeprecationWarning,
        stacklevel=stacklevel,
    )


def renamed_fields(**new_names: str) -> Callable[[type[T]], type[T]]:
    """Returns a class decorator that keeps old names of fields usable.

    It goes above `dataclasses.dataclass`, with `old="new"` for each name. An old name
    still works as an argument and as an attribute, with a `DeprecationWarning`.
    `with_new_names` reads files with old names without a warning.
    """

    def decorate(cls):
        init = cls.__init__

        @functools.wraps(init)
        def accept_old_names(self, *args, **kwargs):
            for old in new_names.keys() & kwargs.keys():
                new = new_names[old]
                if new in kwargs:
                    raise InvalidTypeError(
                        f"{cls.__name__} got `{new}` and its old name `{old}`: leave "
                        f"`{old}` out."
                    )
                warn_of_old_name(f"{cls.__name__}.{old}", f"{cls.__name__}.{new}")
                kwargs[new] = kwargs.pop(old)
            init(self, *args, **kwargs)

        cls.__init__ = accept_old_names  # type: ignore[misc]
        cls._new_names = dict(new_names)  # type: ignore[attr-defined]
        for old, new in new_names.items():
            setattr(cls, old, property(functools.partial(_read, cls, old, new)))
        return cls

    return decorate


def with_new_names(cls: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a class's arguments from a file, with old names replaced by new ones."""
    new_names = getattr(cls, "_new_names", {})
    return {new_names.get(name, name): value for name, value in arguments.items()}


def _read(cls, old, new, instance):
    warn_of_old_name(f"{cls.__name__}.{old}", f"{cls.__name__}.{new}")
    return getattr(instance, new)
