"""Safe reading of YAML, with class names as text and `1e-3` as a number."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import yaml

from effdet_keras._internal.remote_path import path_of
from effdet_keras._internal.whole_files import is_remote, local_path
from effdet_keras.errors import InvalidValueError

# YAML 1.1 reads `1e-3` as text, because it has no dot.
_FLOAT = re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+")
# The values of these keys are class names: `007`, `16:9` and `no` stay as written.
_NAMES = ("names", "class_names", "label_map")


def read_text(path: Any) -> str:
    """Returns the text of a UTF-8 file, or UTF-16 or UTF-32 if its bytes show that."""
    data = path.read_bytes()
    try:
        return data.decode(json.detect_encoding(data)).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InvalidValueError(
            f"Text must be in UTF-8. Received: {str(path)!r} ({error}). Save the file "
            "again with the encoding UTF-8."
        ) from error


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader; `1e-3` is a number, names are text, keys are unique."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"{key.value!r} is given twice"
                    raise yaml.MarkedYAMLError(
                        problem=problem, problem_mark=key.start_mark
                    )
                seen.add(key.value)
                if key.value in _NAMES:
                    _keep_as_text(value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789"))


def _keep_as_text(node):
    """Makes text of the items of a list, or the values of a mapping, but no deeper."""
    items = node.value if isinstance(node, yaml.CollectionNode) else ()
    for item in items:
        item = item[1] if isinstance(node, yaml.MappingNode) else item
        if isinstance(item, yaml.ScalarNode):
            item.tag = "tag:yaml.org,2002:str"


def load_yaml(text: str, *, names: bool = False) -> Any:
    """Parses YAML; if `names` is True, every value and key is text."""
    try:
        return yaml.load(text, Loader=yaml.BaseLoader if names else _Loader)
    except Exception as error:  # PyYAML raises many kinds
        text = " ".join(str(error).split())  # PyYAML's message draws the line
        raise InvalidValueError(f"{type(error).__name__}: {text}") from error


def load_value(key: str, text: str) -> Any:
    """Parses YAML as the value of a key; for some keys, names stay as written."""
    return load_yaml(f"{key}:\n {text}")[key] if key in _NAMES else load_yaml(text)


def read_yaml(path: str | os.PathLike) -> dict[Any, Any]:
    """Reads the mapping in a YAML file; an empty file gives an empty dict."""
    path = path_of(path) if is_remote(path) else local_path(path, "The path of a file")
    try:
        content = load_yaml(read_text(path))
    except InvalidValueError as error:
        raise InvalidValueError(f"'{path}' is not YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InvalidValueError(
            f"'{path}' must hold lines `name: value`. Received: {str(content)[:60]!r}"
        )
    return content


def to_yaml(content: dict[str, Any]) -> str:
    """Returns a mapping as the text of a YAML file, in the mapping's order."""
    return yaml.safe_dump(content, allow_unicode=True, sort_keys=False)
