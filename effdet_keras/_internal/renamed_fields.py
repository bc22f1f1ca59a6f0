"""Old names of a dataclass' fields, which work for one release."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from effdet_keras.errors import InvalidTypeError

T = TypeVar("T")


def renamed_fields(**new_names: str) -> Callable[[type[T]], type[T]]:
    """Class decorator: old names of fields are arguments and attributes as before.

    It goes above `dataclasses.dataclass`, with `old="new"` for each name. An old name
    warns with `DeprecationWarning`; `with_new_names` reads files without a warning.
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
                _warn(cls, old, new, stacklevel=3)
                kwargs[new] = kwargs.pop(old)
            init(self, *args, **kwargs)

        cls.__init__ = accept_old_names  # type: ignore[misc]
        cls._new_names = dict(new_names)  # type: ignore[attr-defined]
        for old, new in new_names.items():
            setattr(cls, old, property(functools.partial(_read, cls, old, new)))
        return cls

    return decorate


def with_new_names(cls: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a class, as a file has them, under the names of today."""
    new_names = getattr(cls, "_new_names", {})
    return {new_names.get(name, name): value for name, value in arguments.items()}


def _read(cls, old, new, instance):
    _warn(cls, old, new, stacklevel=3)
    return getattr(instance, new)


def _warn(cls, old, new, *, stacklevel):
    warnings.warn(
        f"`{old}` of `{cls.__name__}` is `{new}` now; the old name will be removed in "
        "the next release.",
        DeprecationWarning,
        stacklevel=stacklevel + 1,
    )
