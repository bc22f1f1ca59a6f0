"""`effdet-keras serve`: detects in images over HTTP."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from effdet_keras._internal.number_ranges import (
    check_number_fields,
    number,
    whole_number,
)
from effdet_keras.cli.arguments import (
    add_model,
    add_precision,
    add_runtime,
    add_threads,
)
from effdet_keras.extras.serving import REQUIRED

SUMMARY = "serve a model over HTTP: send images, and get boxes"
DESCRIPTION = (
    "Starts an HTTP server that detects objects in the images that are sent to "
    "/detect; its page / lets you drop images in a browser. On SIGTERM, the server "
    "answers all accepted requests and ends. On SIGHUP, it opens MODEL again; until "
    "that is done, the old model answers."
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits for clients of a server, and its timeouts: see `add_arguments`.

    Requests can take at most this memory: `max_requests * max_bytes` for their bodies,
    `max_queue` inputs of the network, and one decoded image per thread that decodes.
    """

    max_bytes: int = whole_number(10_000_000, "[1, inf)")
    # At most the limit of Pillow, `PIL.Image.MAX_IMAGE_PIXELS`.
    max_pixels: int = whole_number(25_000_000, "[1, 89478485]")
    max_side: int = whole_number(16_384, "[1, inf)")
    max_batch: int = whole_number(8, "[1, inf)")
    max_wait: float = number(0.005, "[0, inf)")
    max_queue: int = whole_number(64, "[1, inf)")
    # This includes requests whose body is still arriving.
    max_requests: int = whole_number(256, "[1, inf)")
    body_timeout: float = number(15.0, "(0, inf)")
    timeout: float = number(30.0, "(0, inf)")

    @property
    def decoding(self) -> dict[str, int]:
        """The limits of a decoded image, as arguments of `decode_image`."""
        return {"max_pixels": self.max_pixels, "max_side": self.max_side}

    def __post_init__(self) -> None:
        check_number_fields(self)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    add_model(parser)
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=8000,
        help="port to listen on (default: %(default)s)",
    )
    parser.add_argument(
        "--calibrated",
        action="store_true",
        help=(
            "calibrate the scores with the temperature that `eval --store-thresholds` "
            "stored in the model"
        ),
    )
    add_threads(parser)
    add_runtime(parser)
    add_precision(parser)
    # `run` receives only the limits that were given; `Limits` has the defaults.
    parser.add_argument(
        "--max-bytes",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help="the most bytes of an image file (default: 10,000,000)",
    )
    parser.add_argument(
        "--max-pixels",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help="the most pixels of an image; at most 89,478,485 (default: 25,000,000)",
    )
    parser.add_argument(
        "--max-side",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help="the most pixels along a side of an image (default: 16,384)",
    )
    parser.add_argument(
        "--max-batch",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help="the most images per batch of the network (default: 8)",
    )
    parser.add_argument(
        "--max-wait",
        type=float,
        default=argparse.SUPPRESS,
        metavar="N",
        help=(
            "number of seconds that an image waits for others to fill the batch "
            "(default: 0.005)"
        ),
    )
    parser.add_argument(
        "--max-queue",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help="the most images that may wait for the network (default: 64)",
    )
    parser.add_argument(
        "--max-requests",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help="the most requests to /detect at the same time (default: 256)",
    )
    parser.add_argument(
        "--body-timeout",
        type=float,
        default=argparse.SUPPRESS,
        metavar="N",
        help=(
            "number of seconds within which the image of a request must arrive "
            "(default: 15)"
        ),
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=argparse.SUPPRESS,
        metavar="N",
        help=(
            "number of seconds from the arrival of an image within which its answer "
            "must be ready (default: 30)"
        ),
    )


def run(
    model: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    calibrated: bool = False,
    threads: int | None = None,
    runtime: str | None = None,
    precision: str = "float32",
    **limits: Any,
) -> None:
    """Serves a model over HTTP; `limits` are fields of `Limits`."""
    from effdet_keras.cli.files import open_any_model
    from effdet_keras.extras.serving.app import check_address, run_server
    from effdet_keras.extras.serving.service import DetectionService

    for package in REQUIRED:
        package.require("`effdet-keras serve`")
    check_address(host, port)

    def open_model():
        return open_any_model(model, threads, runtime=runtime, precision=precision)

    service = DetectionService(open_model, Limits(**limits), calibrated)
    run_server(service, host, port)
