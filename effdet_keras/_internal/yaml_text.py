"""YAML as people write it: read safely, with names as text and numbers as numbers."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import yaml

from effdet_keras._internal.remote_path import path_of
from effdet_keras._internal.whole_files import is_remote, local_path
from effdet_keras.errors import InvalidValueError

# YAML 1.1 takes `1e-3` for text, because it has no dot.
_FLOAT = re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+")
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_TEXT = "tag:yaml.org,2002:str"
# What these keys hold are names of classes: `007`, `16:9` and `no` stay as written.
_NAMES = ("names", "class_names", "label_map")
_MAX_DIGITS = 100  # of a number: nothing here takes a longer one


def read_text(path: Any) -> str:
    """The text of a file in UTF-8, or in UTF-16 or UTF-32, whose bytes show that."""
    data = path.read_bytes()
    try:
        return data.decode(json.detect_encoding(data)).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InvalidValueError(
            f"Text must be in UTF-8. Received: {str(path)!r} ({error}). Save the file "
            "again with the encoding UTF-8."
        ) from error


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, with `1e-3`, names as text, and each key at most once."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, value in node.value:
            name = getattr(key, "value", None)
            if not isinstance(name, str):
                continue
            if name in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{name!r} is given twice", problem_mark=key.start_mark
                )
            seen.add(name)
            if name in _NAMES:
                _keep_as_text(value)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node):
        super().flatten_mapping(node)
        # What is merged stands first. Without this, a few lines that merge each other
        # become millions of pairs.
        pairs = {getattr(key, "value", key): (key, value) for key, value in node.value}
        node.value = list(pairs.values())

    def construct_object(self, node, deep=False):
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise yaml.MarkedYAMLError(
                problem=f"{str(node.value)[:40]!r} is no {node.tag.rpartition(':')[2]} "
                f"({type(error).__name__}: {error})",
                problem_mark=node.start_mark,
            ) from error

    def construct_number(self, node):
        if len(node.value) > _MAX_DIGITS:
            raise InvalidValueError(f"more than {_MAX_DIGITS} digits")
        kind = node.tag.rpartition(":")[2]
        return getattr(super(), f"construct_yaml_{kind}")(node)


_Loader.add_implicit_resolver(_NUMBERS[1], _FLOAT, list("-+0123456789"))
for _tag in _NUMBERS:
    _Loader.add_constructor(_tag, _Loader.construct_number)


class _WordLoader(_Loader):
    """Reads `no`, `on` and `~` as words everywhere; numbers as numbers."""

    yaml_implicit_resolvers = {
        first: [pair for pair in pairs if pair[0] in _NUMBERS]
        for first, pairs in _Loader.yaml_implicit_resolvers.items()
    }


class _NameLoader(_WordLoader):
    """Reads a whole file as ids and names, all of them as text."""

    yaml_implicit_resolvers = {}


def _keep_as_text(node):
    """Makes text of what a list holds, or of the values of a mapping; no deeper."""
    items = node.value if isinstance(node, yaml.CollectionNode) else ()
    for item in items:
        item = item[1] if isinstance(node, yaml.MappingNode) else item
        if isinstance(item, yaml.ScalarNode):
            item.tag = _TEXT


def load_yaml(text: str, *, words: bool = False, names: bool = False) -> Any:
    """What a YAML text holds: lists, dicts, text, numbers, bools, None."""
    loader = _NameLoader if names else _WordLoader if words else _Loader
    try:
        return yaml.load(text, Loader=loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        text = " ".join(str(error).split())  # PyYAML's has the line, and draws it
        raise InvalidValueError(f"{type(error).__name__}: {text}") from error


def read_yaml(path: str | os.PathLike) -> dict[Any, Any]:
    """Reads the mapping that a YAML file holds; an empty file is an empty one."""
    path = path_of(path)
    if not is_remote(path):
        path = local_path(path, "The path of a configuration")
    text = read_text(path)
    try:
        content = load_yaml(text)
    except InvalidValueError as error:
        raise InvalidValueError(f"'{path}' is not YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InvalidValueError(
            f"'{path}' must hold lines `name: value`. Received: {str(content)[:60]!r}"
        )
    return content


def parse_value(text: str, *, of: str = "") -> Any:
    """A value as YAML writes it: `20`, `1e-3`, `[320, 480]`, `null`, `adamw`."""
    try:
        is_collection = text.lstrip().startswith(("[", "{"))
        return load_yaml(text, names=of in _NAMES and is_collection)
    except InvalidValueError as error:
        raise InvalidValueError(f"{text!r} is not a value: {error}") from error


def to_yaml(content: dict[str, Any]) -> str:
    """A mapping as the text of a YAML file, in its order."""
    return yaml.safe_dump(content, allow_unicode=True, sort_keys=False)
