"""`effdet-keras forecast`: predicts what more images would gain."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from effdet_keras._internal.optional_imports import keras
from effdet_keras.cli.arguments import (
    OneOrTwo,
    add_data,
    add_overwrite,
    add_training_fields,
    size_or_auto,
)

SUMMARY = "forecast how much AP twice as many images would gain"
DESCRIPTION = (
    "Trains on nested parts of a dataset, and forecasts with a power law the AP of "
    "all images and of twice as many, also for each class. It needs 40 images or "
    "more, and takes the time of three trainings."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    add_data(parser)
    parser.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="folder of the trainings, forecast.json and forecast.html",
    )
    parser.add_argument(
        "--percents",
        nargs="+",
        type=int,
        default=[12, 25, 50],
        metavar="P",
        help=(
            "the parts of the images to train on, in percent; 100 is all images (12 "
            "25 50)"
        ),
    )
    parser.add_argument(
        "--time-budget",
        metavar="TIME",
        help=(
            "time for all trainings, such as 40m or 2h: a quarter for each part, and "
            "a quarter for all images if that is left"
        ),
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the forecast in FOLDER: what was measured is kept",
    )
    add_overwrite(parser)
    fields = add_training_fields(parser, "steps of each training (1,400)")
    fields.add_argument(
        "--model", metavar="NAME", help="a preset, as for train (efficientdet-lite0)"
    )
    fields.add_argument(
        "--image-size",
        action=OneOrTwo,
        nargs="+",
        type=size_or_auto,
        metavar="PIXELS",
        help="the network's input size, as for train (fitted to all boxes)",
    )


def run(
    data: str,
    *,
    out: str,
    percents: Sequence[int] = (12, 25, 50),
    time_budget: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    settings: Sequence[str] = (),
    **fields: Any,
) -> None:
    """Runs a forecast, and prints what more images would gain."""
    keras.require("`effdet-keras forecast`")
    from effdet_keras.extras.forecast.run_forecast import forecast
    from effdet_keras.runs.configuration import parse_settings

    given = parse_settings(settings, fields)
    options = {"time_budget": time_budget, "resume": resume, "overwrite": overwrite}
    found = forecast(data, out, percents=percents, **options, **given)
    print(f"\n{found}\nCharts: {out}/forecast.html")
