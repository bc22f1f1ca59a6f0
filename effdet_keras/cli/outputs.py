"""What a command may write: never what it reads, nor what was there before it."""

import os
import pathlib
from collections.abc import Iterable

from effdet_keras.errors import InvalidValueError


def check_outputs(
    outputs: Iterable[str | os.PathLike | None],
    inputs: Iterable[str | os.PathLike] = (),
    *,
    overwrite: bool = False,
) -> None:
    """Refuses paths that must not be written to; call it before any work.

    Example:
        >>> check_outputs(["cat.json"], ["cat.jpg"])
        >>> check_outputs(["cat.jpg"], ["cat.jpg"])
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: 'cat.jpg' is one of the files that are \
read, and would be overwritten. Give another path.
    """
    outputs = [pathlib.Path(path) for path in outputs if path is not None]
    read = {_identity(pathlib.Path(path)) for path in inputs}
    written = set()
    for path in outputs:
        identity = _identity(path)
        if identity in read:
            raise InvalidValueError(
                f"'{path}' is one of the files that are read, and would be "
                "overwritten. Give another path."
            )
        if identity in written:
            raise InvalidValueError(
                f"Two outputs would be written to '{path}'. Give different paths, or "
                "two runs."
            )
        written.add(identity)
    if not overwrite:
        refuse_existing(outputs)


def refuse_existing(outputs: Iterable[pathlib.Path]) -> None:
    """Raises FileExistsError if one of the paths is there.

    Example:
        >>> import tempfile
        >>> refuse_existing([pathlib.Path(tempfile.mkdtemp(), "new.json")])
    """
    there = [str(path) for path in outputs if os.path.lexists(path)]
    if there:
        more = f", and {len(there) - 3} more," if len(there) > 3 else ""
        verb = "is" if len(there) == 1 else "are"
        raise FileExistsError(
            f"{', '.join(map(repr, there[:3]))}{more} {verb} there already, and "
            "nothing is overwritten: give another path, or add --overwrite."
        )


def _identity(path):
    """What two names of one file share; of a file that is not there, its path."""
    try:
        status = path.stat()
    except OSError:
        # Some file systems have one file for both: better two names than one lost.
        return os.path.realpath(path).casefold()
    return status.st_dev, status.st_ino
