"""The HTTP side of the server: routes, responses, statuses, and the process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import importlib.resources
import io
import logging
import os
import signal
import socket
import time

import yaml
from PIL import Image

from effdet_keras._version import __version__
from effdet_keras.detect.detections import Detections
from effdet_keras.errors import (
    EffDetError,
    InvalidStateError,
    InvalidValueError,
    check_argument,
    check_choice,
)
from effdet_keras.extras.decoding import TooManyPixelsError, decode_image
from effdet_keras.extras.report.pages import html_page
from effdet_keras.extras.serving import (
    starlette_applications,
    starlette_requests,
    starlette_responses,
    starlette_routing,
    uvicorn,
)
from effdet_keras.extras.serving.service import QueueFullError

_GONE = 499  # the client closed the connection, so nobody reads this status
# The page may run its own script and send requests to its own server, but to no other.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src 'self' blob: data:; connect-src 'self'; frame-ancestors 'none'"
)


def create_app(service):
    """Returns the Starlette app, which starts and closes the service."""
    answers = _Answers(service)

    @contextlib.asynccontextmanager
    async def lifespan(_):
        await service.start()
        try:
            yield
        finally:
            await service.close()

    route = starlette_routing.Route
    return starlette_applications.Starlette(
        routes=[
            route("/", answers.page),
            route("/detect", answers.detect, methods=["POST"]),
            route("/health", answers.health),
            route("/metrics", answers.metrics),
            route("/openapi.json", answers.description),
        ],
        lifespan=lifespan,
    )


class _Answers:
    def __init__(self, service):
        self._service, self._limits = service, service.limits
        self._open = 0  # number of requests of /detect without a response yet
        self._description = openapi(service.limits)

    async def page(self, _):
        # The page is one file, which loads nothing from other servers.
        return starlette_responses.HTMLResponse(
            html_page("Detection", _text_of("page.html")),
            headers={"Content-Security-Policy": _POLICY},
        )

    async def health(self, _):
        return starlette_responses.JSONResponse({"status": "ok"})

    async def metrics(self, _):
        return starlette_responses.Response(
            self._service.metrics.text(), media_type="text/plain; version=0.0.4"
        )

    async def description(self, _):
        return starlette_responses.JSONResponse(self._description)

    async def detect(self, request):
        """Responds with detections; counts and times the request in the metrics."""
        metrics, start = self._service.metrics, time.perf_counter()
        self._open += 1
        metrics.in_flight.inc()
        status = 500
        try:
            try:
                answer = await self._detect(request)
            except Exception as error:
                answer = _refusal(error)
            status = answer.status_code
            return answer
        finally:
            self._open -= 1
            metrics.in_flight.dec()
            metrics.requests.labels(str(status)).inc()
            metrics.seconds.observe(time.perf_counter() - start)

    async def _detect(self, request):
        limits = self._limits
        if self._open > limits.max_requests:
            raise QueueFullError("Too many requests at the same time: try again later")
        score = _score(request.query_params.get("score", "0.3"))
        classes = _classes(request.query_params.getlist("classes"))
        kind = request.query_params.get("format", "json")
        check_choice("format", kind, MEDIA_TYPES)
        data = await image_of_request(request, limits.max_bytes, limits.body_timeout)
        async with asyncio.timeout(limits.timeout):
            found, size = await self._service.detect(data, score, classes)
            if kind == "json":
                return starlette_responses.JSONResponse(as_json(found, size))
            drawn = await self._service.run(as_image, found, data, limits, kind)
        return starlette_responses.Response(drawn, media_type=MEDIA_TYPES[kind])


def _score(text):
    try:
        return text if text == "best" else float(text)
    except ValueError:
        raise RefusedError(
            400,
            f"`score` must be a number from 0 to 1, or 'best'. Received: {text[:50]!r}",
        ) from None


def _classes(texts):
    """Parses `classes=cat,dog` or `classes=cat&classes=dog`; returns None for all.

    A class name that has a comma must be given with others, or be given twice.
    """
    if len(texts) == 1:
        texts = [name.strip() for name in texts[0].split(",")]
    return texts or None


def _refusal(error):
    """Returns the response for a request that was refused; raises other errors."""
    headers = {}
    if isinstance(error, RefusedError):
        status = error.status
    elif isinstance(error, TooManyPixelsError):
        status = 413
    elif isinstance(error, InvalidValueError | InvalidStateError):
        status = 400
    elif isinstance(error, QueueFullError):
        status, headers = 503, {"Retry-After": "1"}
    elif isinstance(error, TimeoutError):
        status, error = 504, "There was no answer in time: try again later"
    elif isinstance(error, starlette_requests.ClientDisconnect):
        status, error = _GONE, "The client closed the connection"
    else:
        raise error
    if status in (408, 413):  # the rest of the body is not read
        headers["Connection"] = "close"
    return starlette_responses.JSONResponse({"error": str(error)}, status, headers)


def openapi(limits):
    """Returns the OpenAPI description of the server, for `/openapi.json`."""
    text = _text_of("openapi.yaml").replace("VERSION", __version__)
    for name in ("max_bytes", "max_pixels", "max_side"):
        text = text.replace(name.upper(), f"{getattr(limits, name):,}")
    return yaml.safe_load(text)


def _text_of(name):
    file = importlib.resources.files(__package__).joinpath(name)
    return file.read_text(encoding="utf-8")


# --- The image of a request; at most the limit of its bytes is kept in memory.

_OVERHEAD = 65_536  # bytes of a multipart body besides the image
_FIELD = "image"


class RefusedError(EffDetError):
    """Raised for a request that is refused, with its HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


async def image_of_request(request, max_bytes: int, seconds: float) -> bytes:
    """Reads the image of a request: its body, or the multipart field `image`."""
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
            408, f"The body of the request did not arrive within {seconds:g} seconds"
        ) from None
    data = await _field(request, body, max_bytes) if is_form else body
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    if not data:
        raise RefusedError(400, "The image is empty")
    return data


async def _body(request, max_bytes, overhead):
    limit, length = max_bytes + overhead, request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limit:
        raise _too_large(max_bytes)
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > limit:
            raise _too_large(max_bytes)
    return b"".join(parts)


async def _field(request, body, max_bytes):
    """Returns the bytes of the file in the form field "image"."""

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


# --- Responses: detections as JSON, or as the image with the boxes drawn.

MEDIA_TYPES = {"json": "application/json", "jpeg": "image/jpeg", "png": "image/png"}


def as_json(detections: Detections, image_size: tuple[int, int]) -> dict:
    """Returns JSON values; boxes are `xyxy` in pixels of the upright image."""
    objects = [
        {
            "label": name,
            "class": label,
            "score": round(score, 6),
            "box": [round(v, 2) for v in (x_min, y_min, x_max, y_max)],
        }
        for name, label, score, (y_min, x_min, y_max, x_max) in zip(
            detections.names,
            detections.labels.tolist(),
            detections.scores.tolist(),
            detections.boxes.tolist(),
        )
    ]
    height, width = image_size
    answer = {"width": int(width), "height": int(height), "detections": objects}
    if detections.class_map is not None:
        answer["pixel_shares"] = detections.pixel_shares()
    return answer


def as_image(detections, data, limits, kind):
    """Returns the bytes of a "jpeg" or "png" file: the image with boxes drawn."""
    image = decode_image(data, **limits.decoding)
    drawn = dataclasses.replace(detections, image=image).draw()
    file = io.BytesIO()
    Image.fromarray(drawn).save(file, format=kind.upper())
    return file.getvalue()


# --- The process: it listens, handles signals, and ends without losing a request.


def run_server(service, host, port):
    """Serves until SIGTERM or Ctrl-C, then responds to accepted requests, and returns.

    On SIGHUP it opens the model again, see `DetectionService.reload`.
    """
    # Otherwise each broken form prints a line; its client gets the reason.
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        create_app(service),
        host=host,
        port=port,
        http="h11",
        ws="none",
        log_level="info",
        access_log=False,
        server_header=False,
        timeout_keep_alive=5,
    )
    server = uvicorn.Server(config)
    try:
        asyncio.run(_serve(server, service))
    except KeyboardInterrupt:  # uvicorn raises the signal again after it has finished
        if not (server.started and server.should_exit):
            raise


def check_address(host: str, port: int) -> None:
    """Raises ValueError if a server cannot listen on a host and port.

    uvicorn would find it only after the model was opened, so this comes before that.
    """
    check_argument(0 <= port <= 65535, "port", port, "a whole number from 0 to 65535")
    options = {"type": socket.SOCK_STREAM, "flags": socket.AI_PASSIVE}
    try:
        found = socket.getaddrinfo(host or None, port, **options)
    except (OSError, UnicodeError) as error:
        raise InvalidValueError(
            "`host` must be an address or a name of this machine, such as '127.0.0.1', "
            f"or '0.0.0.0' for all its addresses. Received: host={host!r} ({error})"
        ) from error
    errors = [_error_of_listening(*one) for one in found]
    # A name such as "localhost" may have an address of a family that is switched off.
    in_use = [e for e in errors if e is not None and e.errno == errno.EADDRINUSE]
    if in_use or None not in errors:
        error = [*in_use, *errors][0]
        raise InvalidValueError(
            "The server cannot listen on this address and port: give others with "
            "`--host` and `--port`, or end the program that uses them. Received: "
            f"host={host!r}, port={port} ({error.strerror})"
        ) from error


def _error_of_listening(family, kind, protocol, _, address):
    """Returns the OSError of listening on an address, or None if there is none."""
    try:
        with socket.socket(family, kind, protocol) as listening:
            if os.name == "posix":  # as asyncio: a port just left may be used again
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
    except OSError as error:
        return error


async def _serve(server, service):
    tasks = set()

    def reload():
        task = asyncio.create_task(service.reload())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    with contextlib.suppress(NotImplementedError, AttributeError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    await server.serve()
