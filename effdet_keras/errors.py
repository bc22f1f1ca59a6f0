"""The errors this package raises when the caller can put something right.

Each is also the built-in error that Python code expects (`except ValueError` works).
The command shows one of these as a single line; any other exception is a fault of
the program and keeps its traceback. Errors about files are Python's own `OSError`s.
"""

__all__ = [
    "EffDetError",
    "InvalidStateError",
    "InvalidTypeError",
    "InvalidValueError",
    "MissingPackageError",
    "NonFiniteLossError",
]


class EffDetError(Exception):
    """What every error of this package is; its message names the value and the cure.

    Example:
        >>> import effdet_keras as ek
        >>> try:
        ...     ek.EfficientDet.from_preset("efficientdet-d9")
        ... except ek.errors.EffDetError as error:
        ...     print(type(error).__name__, isinstance(error, ValueError))
        InvalidValueError True
    """


class InvalidValueError(EffDetError, ValueError):
    """An argument, a file or a dataset holds a value that cannot be right."""


class InvalidTypeError(EffDetError, TypeError):
    """An argument is of a type, or has a name, that is not accepted."""


class InvalidStateError(EffDetError, RuntimeError):
    """The call is right, but not now: for instance while weights are swapped."""


class MissingPackageError(EffDetError, ImportError):
    """An optional package is not installed; the message has the `pip install` line."""


class NonFiniteLossError(EffDetError, FloatingPointError):
    """A loss is NaN or infinite, and its step was refused."""
