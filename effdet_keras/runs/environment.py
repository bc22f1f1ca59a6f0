"""On what a run ran: machine, Python, packages."""

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Mapping
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


def environment_facts(environment: Mapping[str, Any]) -> dict[str, str]:
    """The same in lines for people, for a report.

    Example:
        >>> list(environment_facts(describe_environment()))
        ['when', 'machine', 'software']
    """
    names = ("effdet-keras", "keras", environment["backend"])
    packages = environment["packages"]
    versions = [f"{name} {packages[name]}" for name in names if name in packages]
    return {
        "when": environment["started"],
        "machine": f"{environment['platform']}, {environment['cpus']} CPUs",
        "software": ", ".join([f"Python {environment['python']}", *versions]),
    }


def _versions():
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
