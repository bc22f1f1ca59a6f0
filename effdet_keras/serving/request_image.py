"""The image of a request: its bytes, of which no more than the limit are kept."""

import asyncio

from effdet_keras._internal.optional_imports import starlette_requests
from effdet_keras.errors import EffDetError

_OVERHEAD = 65_536  # bytes of a multipart body that are not the image
_PATIENCE = 4  # times the limit that are read, and thrown away, before an answer
_FIELD = "image"


class RefusedError(EffDetError):
    """A request that cannot be answered, with its HTTP status.

    Args:
        status: int.
        reason: str, a sentence for the client.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


async def image_of_request(request, max_bytes: int, seconds: float) -> bytes:
    """Reads the image of a request: the body, or its multipart field `image`.

    Args:
        request: `starlette.requests.Request`.
        max_bytes: int, of the image.
        seconds: float, in which the whole body must arrive.

    Returns:
        bytes.

    Raises:
        RefusedError: 400, 408, 413 or 415.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_form = kind == "multipart/form-data"
    is_image = kind in ("", "application/octet-stream") or kind.startswith("image/")
    if not (is_form or is_image):
        raise RefusedError(
            415,
            "Send the bytes of an image, or multipart/form-data with a field 'image'. "
            f"Received: content-type {kind[:100]!r}",
        )
    try:
        async with asyncio.timeout(seconds):
            body = await _body(request, max_bytes, _OVERHEAD if is_form else 0)
    except TimeoutError:
        raise RefusedError(
            408, f"The body did not arrive within {seconds:g} seconds"
        ) from None
    data = await _field(request, body, max_bytes) if is_form else body
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    if not data:
        raise RefusedError(400, "The image is empty")
    return data


async def _body(request, max_bytes, overhead):
    limit, length = max_bytes + overhead, request.headers.get("content-length", "")
    declared = int(length[:20]) if length.isdecimal() else 0
    waits = "expect" in request.headers  # for our word, before it sends the body
    if declared > (limit if waits else _PATIENCE * limit):
        raise _too_large(max_bytes)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size <= limit:
            parts.append(part)
        # A connection that is closed while the client sends loses our answer.
        elif size > _PATIENCE * limit:
            break
    if size > limit:
        raise _too_large(max_bytes)
    return b"".join(parts)


async def _field(request, body, max_bytes):
    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    whole = starlette_requests.Request(request.scope, receive)
    try:
        form = await whole.form(max_files=1, max_fields=8, max_part_size=max_bytes)
    except Exception as error:  # a broken body makes the parser raise several kinds
        reason = getattr(error, "detail", error)
        raise RefusedError(400, f"The form cannot be read: {reason}") from error
    try:
        value = form.get(_FIELD)
        if value is None or isinstance(value, str):
            raise RefusedError(400, "The form has no file in a field 'image'")
        return await value.read()
    finally:
        await form.close()


def _too_large(limit):
    return RefusedError(413, f"The image has more than {limit:,} bytes")
