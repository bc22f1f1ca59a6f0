"""`effdet-keras serve`."""

from __future__ import annotations

from typing import TypedDict, Unpack

from effdet_keras.cli.arguments import Precision, Runtime


class Limits(TypedDict, total=False):
    """The fields of `service.Limits`."""

    max_bytes: int
    max_pixels: int
    max_side: int
    max_batch: int
    max_wait: float
    max_queue: int
    max_requests: int
    body_timeout: float
    timeout: float


def run(
    model: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    calibrated: bool = False,
    threads: int | None = None,
    runtime: Runtime | None = None,
    precision: Precision = "float32",
    **limits: Unpack[Limits],
) -> None:
    """answer over HTTP: images in, boxes out

    Detects in images that are sent to /detect; / is a page to drop images on. SIGTERM
    ends the server when all accepted requests are answered; SIGHUP opens MODEL again,
    while the old one answers.

    Args:
        host: address to listen at
        port: port
        calibrated: give scores the temperature that is stored with the model
        max_bytes (N): most bytes of an image (10,000,000)
        max_pixels (N): most pixels of an image (25,000,000)
        max_side (N): most pixels along a side of an image (16,384)
        max_batch (N): most images for the network at once (8)
        max_wait (N): seconds that an image waits for others (0.005)
        max_queue (N): images that may wait for the network (64)
        max_requests (N): requests of /detect at the same time (256)
        body_timeout (N): seconds in which an image must arrive (15)
        timeout (N): seconds from there to the answer (30)
    """
    from effdet_keras._internal.optional_imports import (
        prometheus_client,
        python_multipart,
        starlette_applications,
        uvicorn,
    )
    from effdet_keras.cli.files import open_any_model
    from effdet_keras.extras.serving import service
    from effdet_keras.extras.serving.app import run_server

    starlette = starlette_applications
    for package in (starlette, uvicorn, python_multipart, prometheus_client):
        package.require("`effdet-keras serve`")

    def open_model():
        return open_any_model(model, threads, runtime=runtime, precision=precision)

    chosen = service.Limits(**limits)
    run_server(service.DetectionService(open_model, chosen, calibrated), host, port)
