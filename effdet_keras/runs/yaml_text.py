"""YAML as configurations have it: read safely, with the numbers people write."""

from __future__ import annotations

import os
import re
from typing import Any

import yaml

from effdet_keras._internal.local_paths import local_path
from effdet_keras._internal.remote_path import RemotePath, path_of
from effdet_keras.errors import InvalidValueError

# YAML 1.1 takes `1e-3` for text, because it has no dot.
_FLOAT = re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which also reads `1e-3`, and refuses names given twice."""

    def construct_mapping(self, node, deep=False):
        names = [str(key.value) for key, _ in node.value]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise yaml.YAMLError(f"{twice[0]!r} is given twice, {node.start_mark}")
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789"))


def read_yaml(path: str | os.PathLike) -> dict[Any, Any]:
    """Reads the mapping that a YAML file holds; an empty file is an empty one.

    Raises:
        OSError: If there is no such file.
        ValueError: If it is not YAML, or holds something else.
    """
    path = path_of(path)
    if not isinstance(path, RemotePath):
        path = local_path(path, "The path of a configuration")
    try:
        content = yaml.load(path.read_bytes(), Loader=_Loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise InvalidValueError(f"'{path}' is not YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InvalidValueError(
            f"'{path}' must hold lines `name: value`. Received: {str(content)[:60]!r}"
        )
    return content


def parse_value(text: str) -> Any:
    """A value as YAML writes it: `20`, `1e-3`, `[320, 480]`, `null`, `adamw`.

    Raises:
        ValueError: If it is not YAML, such as a bracket without its end.

    Example:
        >>> [parse_value(text) for text in ("20", "1e-3", "[1, 2]", "null", "adamw")]
        [20, 0.001, [1, 2], None, 'adamw']
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise InvalidValueError(f"{text!r} is not a value: {error}") from error


def to_yaml(content: dict[str, Any]) -> str:
    """A mapping as the text of a YAML file, in its order."""
    return yaml.safe_dump(content, allow_unicode=True, sort_keys=False)
