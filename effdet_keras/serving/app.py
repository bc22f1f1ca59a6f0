"""The HTTP side: addresses, answers, statuses."""

import asyncio
import contextlib
import time

from effdet_keras._internal.optional_imports import (
    starlette_applications,
    starlette_requests,
    starlette_responses,
    starlette_routing,
)
from effdet_keras.errors import InvalidStateError, InvalidValueError
from effdet_keras.images import TooManyPixelsError
from effdet_keras.serving.answers import MEDIA_TYPES, as_image, as_json, format_wanted
from effdet_keras.serving.batcher import QueueFullError
from effdet_keras.serving.openapi import openapi
from effdet_keras.serving.page import page
from effdet_keras.serving.request_image import RefusedError, image_of_request
from effdet_keras.serving.service import DetectionService

_GONE = 499  # the client closed the connection: nobody reads this status
# The page runs its own script and asks its own server, and no other.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src 'self' blob: data:; connect-src 'self'; frame-ancestors 'none'"
)


def create_app(service: DetectionService):
    """The ASGI application of a server.

    Args:
        service: `DetectionService`; it is started and closed with the application.

    Returns:
        `starlette.applications.Starlette`.
    """
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
    """One method per address."""

    def __init__(self, service):
        self._service, self._limits = service, service.limits
        self._open = 0  # requests of /detect that are not answered yet
        self._description = openapi(service.limits)

    async def page(self, _):
        return starlette_responses.HTMLResponse(
            page(), headers={"Content-Security-Policy": _POLICY}
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
        name = request.query_params.get("format")
        kind = format_wanted(name, request.headers.get("accept", ""))
        if kind is None:
            raise RefusedError(
                406, f"An answer has one of these formats: {', '.join(MEDIA_TYPES)}"
            )
        data = await image_of_request(request, limits.max_bytes, limits.body_timeout)
        async with asyncio.timeout(limits.timeout):
            found, size = await self._service.detect(data, score)
            if kind == "json":
                return starlette_responses.JSONResponse(as_json(found, size))
            drawn = await self._service.run(as_image, found, data, limits, kind)
        return starlette_responses.Response(drawn, media_type=MEDIA_TYPES[kind])


def _score(text):
    try:
        return text if text == "best" else float(text)
    except ValueError:
        raise RefusedError(
            400, f"`score` is a number from 0 to 1, or 'best'. Received: {text[:50]!r}"
        ) from None


def _refusal(error):
    """The answer to a request that cannot be fulfilled; other errors go on."""
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
    if status in (408, 413):  # what is left of the body is not read
        headers["Connection"] = "close"
    return starlette_responses.JSONResponse({"error": str(error)}, status, headers)
