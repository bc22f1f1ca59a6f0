"""`effdet-keras serve`."""

from __future__ import annotations

import dataclasses
from typing import Unpack

from effdet_keras._internal.number_ranges import (
    check_number_fields,
    number,
    whole_number,
)
from effdet_keras.cli.arguments import Precision, Runtime
from effdet_keras.extras.serving import REQUIRED


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a server takes of its clients, and how long it waits: see `run`.

    The memory that requests can take is at most `max_requests * max_bytes` for what is
    read, `max_queue` inputs of the network, and as many decoded images as there are
    threads that decode.
    """

    max_bytes: int = whole_number(10_000_000, "[1, inf)")
    max_pixels: int = whole_number(25_000_000, "[1, inf)")
    max_side: int = whole_number(16_384, "[1, inf)")
    max_batch: int = whole_number(8, "[1, inf)")
    max_wait: float = number(0.005, "[0, inf)")
    max_queue: int = whole_number(64, "[1, inf)")
    # Those included of which the body still arrives.
    max_requests: int = whole_number(256, "[1, inf)")
    body_timeout: float = number(15.0, "(0, inf)")
    timeout: float = number(30.0, "(0, inf)")

    @property
    def of_image(self) -> dict[str, int]:
        """Those of a decoded image, as `decode_image` takes them."""
        return {"max_pixels": self.max_pixels, "max_side": self.max_side}

    def __post_init__(self) -> None:
        check_number_fields(self)


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
    from effdet_keras.cli.files import open_any_model
    from effdet_keras.extras.serving.app import run_server
    from effdet_keras.extras.serving.service import DetectionService

    for package in REQUIRED:
        package.require("`effdet-keras serve`")

    def open_model():
        return open_any_model(model, threads, runtime=runtime, precision=precision)

    service = DetectionService(open_model, Limits(**limits), calibrated)
    run_server(service, host, port)
