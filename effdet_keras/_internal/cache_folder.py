"""The folder in which what was fetched is kept."""

import contextlib
import os
import pathlib

_fetched = set()  # files that this process found or put there, for their addresses


def keras_home():
    """Keras' own folder: `$KERAS_HOME`, or `~/.keras`."""
    return pathlib.Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()


def cache_folder():
    """`$EFFDET_KERAS_CACHE`, or else `effdet_keras` in Keras' own folder.

    Example:
        >>> cache_folder().is_absolute()
        True
    """
    folder = os.environ.get("EFFDET_KERAS_CACHE") or keras_home() / "effdet_keras"
    return pathlib.Path(folder).expanduser().absolute()


def note_fetched(path):
    """Marks a file as the copy of one at an address; returns its path."""
    _fetched.add(path)
    return path


@contextlib.contextmanager
def kept_if_readable(path):
    """Removes the copy of a file at an address that the block cannot read.

    Without it a bad answer of a server would be kept for good: the next call fetches
    the file again. A file of the user is never removed.

    Args:
        path: path of any file. What `note_fetched` marked is a copy.

    Raises:
        What the block raises; of a copy it says that it is gone.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        path = pathlib.Path(path)
        is_of_this_machine = getattr(error, "errno", None) is not None
        is_elsewhere = is_of_this_machine or isinstance(error, FileNotFoundError)
        if path in _fetched and path.is_file() and not is_elsewhere:
            path.resolve().unlink()  # of the Hugging Face Hub's library it is a link
            path.unlink(missing_ok=True)
            _fetched.discard(path)
            if len(error.args) == 1:
                error.args = (
                    f"{str(error).rstrip('.')}. It is a copy of the file at the "
                    "address, and was removed: the next call fetches it again.",
                )
        raise
