"""A server that detects in images over HTTP: `effdet-keras serve`."""

from effdet_keras._internal.optional_imports import OptionalModule


def _package(name):
    return OptionalModule(name, install="effdet-keras[serve]")


prometheus_client = _package("prometheus_client")
starlette_applications = _package("starlette.applications")
starlette_requests = _package("starlette.requests")
starlette_responses = _package("starlette.responses")
starlette_routing = _package("starlette.routing")
uvicorn = _package("uvicorn")
REQUIRED = (
    starlette_applications,
    uvicorn,
    _package("python_multipart"),
    prometheus_client,
)
