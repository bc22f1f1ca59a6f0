"""A choice by name, or by a dict of its name and settings."""

import difflib

from effdet_keras.errors import InvalidValueError


def choice(argument, value, known, *, otherwise):
    """The name and the settings of what an argument chooses.

    Args:
        argument: string, what the caller calls it, for messages.
        value: a name, or a dict `{"name": name, setting: value, ...}`.
        known: dict of each name to the names of its settings.
        otherwise: string, what else the argument may be, for messages.

    Returns:
        `(name, settings)`: the name in lower case, and a dict.

    Raises:
        ValueError: If the name or a setting is unknown, or there is no name.

    Example:
        >>> known = {"cosine": ("warmup_epochs",), "constant": ()}
        >>> config = {"name": "cosine", "warmup_epochs": 2.0}
        >>> choice("schedule", config, known, otherwise="a Keras schedule")
        ('cosine', {'warmup_epochs': 2.0})
    """
    settings = dict(value) if isinstance(value, dict) else {"name": value}
    name = str(settings.pop("name", "")).lower()
    if name not in known:
        raise InvalidValueError(
            f"`{argument}` must be one of {', '.join(known)}; a dict of such a "
            f"'name' and its settings; or {otherwise}.{_hint(name, known)} "
            f"Received: {argument}={value!r}"
        )
    for key in settings:
        if key not in known[name]:
            raise InvalidValueError(
                f"{name!r} has no setting {key!r}.{_hint(key, known[name])} "
                f"It has: {', '.join(known[name]) or 'none'}. "
                f"Received: {argument}={value!r}"
            )
    return name, settings


def _hint(word, known):
    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
