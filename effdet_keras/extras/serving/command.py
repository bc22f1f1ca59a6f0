"""`effdet-keras serve`."""

import argparse

from effdet_keras.cli.shared_arguments import add_model, add_runtime


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    parser = commands.add_parser(
        "serve",
        help="answer over HTTP: images in, boxes out",
        description="Detects in images that are sent to /detect; / is a page to drop "
        "images on. SIGTERM ends the server when all accepted requests are answered; "
        "SIGHUP opens MODEL again, while the old one answers.",
    )
    add_model(parser, may_be_exported=True)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (127.0.0.1)"
    )
    parser.add_argument("--port", type=int, default=8000, help="port (8000)")
    for flag, kind, meaning in (
        ("--max-bytes", int, "most bytes of an image (10,000,000)"),
        ("--max-pixels", int, "most pixels of an image (25,000,000)"),
        ("--max-side", int, "most pixels along a side of an image (16,384)"),
        ("--max-batch", int, "most images for the network at once (8)"),
        ("--max-wait", float, "seconds that an image waits for others (0.005)"),
        ("--max-queue", int, "images that may wait for the network (64)"),
        ("--max-requests", int, "requests of /detect at the same time (256)"),
        ("--body-timeout", float, "seconds in which an image must arrive (15)"),
        ("--timeout", float, "seconds from there to the answer (30)"),
    ):
        parser.add_argument(
            flag, metavar="N", type=kind, default=argparse.SUPPRESS, help=meaning
        )
    parser.add_argument(
        "--calibrated",
        action="store_true",
        help="give scores the temperature that is stored with the model",
    )
    add_runtime(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    import dataclasses

    from effdet_keras._internal.optional_imports import (
        prometheus_client,
        python_multipart,
        starlette_applications,
        uvicorn,
    )
    from effdet_keras.cli.open_model import open_predictor
    from effdet_keras.extras.serving.app import run_server
    from effdet_keras.extras.serving.service import DetectionService, Limits

    for package in (
        starlette_applications,
        uvicorn,
        python_multipart,
        prometheus_client,
    ):
        package.require("`effdet-keras serve`")
    given = vars(arguments)
    names = [field.name for field in dataclasses.fields(Limits)]
    limits = Limits(**{name: given[name] for name in names if name in given})
    service = DetectionService(
        lambda: open_predictor(arguments), limits, arguments.calibrated
    )
    run_server(service, arguments.host, arguments.port)
    return 0
