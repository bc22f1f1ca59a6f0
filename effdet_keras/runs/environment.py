"""On what a run ran: machine, Python, packages."""

import datetime
import importlib.metadata
import os
import platform
from typing import Any

import keras

from effdet_keras._version import __version__

_PACKAGES = (
    *("keras", "tensorflow", "jax", "torch", "numpy", "pillow"),
    *("pycocotools", "hotcoco", "matplotlib", "tensorboard"),
)


def describe_environment() -> dict[str, Any]:
    """What somebody needs to know to repeat a run, for JSON.

    Example:
        >>> sorted(describe_environment())
        ['backend', 'cpus', 'machine', 'packages', 'platform', 'python', 'started']
    """
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "backend": keras.backend.backend(),
        "packages": {"effdet-keras": __version__, **_versions()},
    }


def _versions():
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
