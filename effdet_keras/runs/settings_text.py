"""Fields as the command line gives them: `--set field=value`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from effdet_keras._internal.yaml_text import parse_value
from effdet_keras.errors import InvalidValueError


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Reads settings as fields of `RunConfiguration`.

    Args:
        texts: strings "field=value", or "field.name=value" for one value of a field
            that is a mapping. Values are written as in YAML.

    Returns:
        Dict of fields; nothing is checked but the form.

    Raises:
        ValueError: If a text has another form, or gives a field twice.

    Example:
        >>> parse_settings(["epochs=20", "freeze=null", "model_config.max_level=5"])
        {'epochs': 20, 'freeze': None, 'model_config': {'max_level': 5}}
        >>> parse_settings(["epochs"])
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: A setting is written FIELD=VALUE, such \
as epochs=20. Received: 'epochs'
    """
    fields: dict[str, Any] = {}
    for text in texts:
        name, is_setting, value = text.partition("=")
        name = name.strip()
        if not is_setting or not name:
            raise InvalidValueError(
                "A setting is written FIELD=VALUE, such as epochs=20. "
                f"Received: {text!r}"
            )
        field, is_inner, key = name.partition(".")
        place = fields.setdefault(field, {}) if is_inner else fields
        key = key if is_inner else field
        if not isinstance(place, dict) or key in place:
            raise InvalidValueError(f"`{name}` is set twice. Received: {text!r}")
        place[key] = parse_value(value, of=key)
    return fields
