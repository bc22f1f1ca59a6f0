"""The description of the server, for programs: OpenAPI 3.1."""

from effdet_keras._version import __version__
from effdet_keras.serving.answers import MEDIA_TYPES
from effdet_keras.serving.limits import Limits

_REFUSALS = {
    "400": "It is no image, or cannot be decoded; or a parameter is out of its range",
    "406": "`Accept` or `format` names no format of an answer",
    "408": "The body did not arrive in time",
    "413": "The image has too many bytes or pixels; it was not decoded",
    "415": "The content type is neither an image nor multipart/form-data",
    "503": "Too many requests wait: try again after `Retry-After` seconds",
    "504": "There was no answer in time",
}


def openapi(limits: Limits) -> dict:
    """The OpenAPI description of a server, as `/openapi.json` gives it.

    Example:
        >>> sorted(openapi(Limits())["paths"])
        ['/detect', '/health', '/metrics']
    """
    number = {"type": "number"}
    binary = {"type": "string", "format": "binary"}
    detection = _object(
        label={"type": "string", "description": "name of the class"},
        **{"class": {"type": "integer", "description": "0 .. C-1"}},
        score=number,
        box={
            "type": "array",
            "items": number,
            "minItems": 4,
            "maxItems": 4,
            "description": "x_min, y_min, x_max, y_max in pixels of the upright image",
        },
    )
    answer = _object(
        width={"type": "integer"},
        height={"type": "integer"},
        detections={"type": "array", "items": detection},
    )
    error = _content(_object(error={"type": "string"}))
    image = {"schema": binary}
    detect = {
        "summary": "Finds objects in an image",
        "parameters": [
            _parameter(
                "score",
                {"anyOf": [{**number, "minimum": 0, "maximum": 1}, {"const": "best"}]},
                "the lowest score to keep; 'best' for the thresholds of the model",
            ),
            _parameter(
                "format",
                {"enum": list(MEDIA_TYPES)},
                "of the answer; goes before the header `Accept`",
            ),
        ],
        "requestBody": {
            "required": True,
            "description": f"at most {limits.max_bytes:,} bytes and "
            f"{limits.max_pixels:,} pixels, {limits.max_side:,} along a side",
            "content": {
                "image/*": image,
                "application/octet-stream": image,
                "multipart/form-data": {"schema": _object(image=binary)},
            },
        },
        "responses": {
            "200": {
                "description": "what was found",
                "content": {
                    "application/json": {"schema": answer},
                    "image/jpeg": image,
                    "image/png": image,
                },
            },
            **{
                status: {"description": reason, "content": error}
                for status, reason in _REFUSALS.items()
            },
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "effdet-keras serve", "version": __version__},
        "paths": {
            "/detect": {"post": detect},
            "/health": {"get": _plain("200: it answers; 503: it is about to end")},
            "/metrics": {"get": _plain("metrics for Prometheus")},
        },
    }


def _object(**properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


def _content(schema):
    return {"application/json": {"schema": schema}}


def _parameter(name, schema, description):
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _plain(description):
    return {"responses": {"200": {"description": description}}}
