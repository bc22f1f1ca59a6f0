"""`effdet-keras serve`."""

from __future__ import annotations

import argparse
from typing import Any

from effdet_keras.cli.arguments import Precision, Runtime

_LIMITS = (  # of `Limits`
    ("--max-bytes", int, "most bytes of an image (10,000,000)"),
    ("--max-pixels", int, "most pixels of an image (25,000,000)"),
    ("--max-side", int, "most pixels along a side of an image (16,384)"),
    ("--max-batch", int, "most images for the network at once (8)"),
    ("--max-wait", float, "seconds that an image waits for others (0.005)"),
    ("--max-queue", int, "images that may wait for the network (64)"),
    ("--max-requests", int, "requests of /detect at the same time (256)"),
    ("--body-timeout", float, "seconds in which an image must arrive (15)"),
    ("--timeout", float, "seconds from there to the answer (30)"),
)


def run(
    model: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    calibrated: bool = False,
    threads: int | None = None,
    runtime: Runtime | None = None,
    precision: Precision = "float32",
    **limits: Any,
) -> None:
    """answer over HTTP: images in, boxes out

    Detects in images that are sent to /detect; / is a page to drop images on. SIGTERM
    ends the server when all accepted requests are answered; SIGHUP opens MODEL again,
    while the old one answers.

    Args:
        host: address to listen at
        port: port
        calibrated: give scores the temperature that is stored with the model
    """
    from effdet_keras._internal.optional_imports import (
        prometheus_client,
        python_multipart,
        starlette_applications,
        uvicorn,
    )
    from effdet_keras.cli.files import open_any_model
    from effdet_keras.extras.serving.app import run_server
    from effdet_keras.extras.serving.service import DetectionService, Limits

    for package in (
        starlette_applications,
        uvicorn,
        python_multipart,
        prometheus_client,
    ):
        package.require("`effdet-keras serve`")

    def open_model():
        return open_any_model(model, threads, runtime=runtime, precision=precision)

    run_server(DetectionService(open_model, Limits(**limits), calibrated), host, port)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the limits; those that are not given are those of `Limits`."""
    for flag, kind, meaning in _LIMITS:
        parser.add_argument(
            flag, metavar="N", type=kind, default=argparse.SUPPRESS, help=meaning
        )
