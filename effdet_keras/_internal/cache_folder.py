"""The folder in which what was fetched is kept."""

import os
import pathlib


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
