"""Reads the JSON files that commands write beside models, runs and reports."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from effdet_keras.errors import InvalidStateError, first_line


def read_json_object(
    path: Any,
    writer: str,
    cure: str,
    names: Iterable[str] = (),
    error: type[Exception] = InvalidStateError,
) -> dict[str, Any]:
    """Returns the content of a JSON file that this package has written.

    Args:
        path: path object of the file.
        writer: string, what writes such files, such as "a forecast", for the message.
        cure: string, what to do if the file is damaged: the end of the message.
        names: entries that the object must have.
        error: class of the error for a file that is damaged.

    Raises:
        RuntimeError: If the file is not a JSON object with these entries; or another
            class of error, if `error` is given.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        fault = None if isinstance(content, dict) else "it is not a JSON object"
    except (ValueError, RecursionError) as wrong:
        fault = first_line(wrong)
    if fault is None:
        lacking = [name for name in names if name not in content]
        fault = f"it has no {lacking[0]!r}" if lacking else None
    if fault is not None:
        raise error(
            f"'{path}' was not written by {writer}, or is damaged: {fault}. {cure}"
        )
    return content
