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

SUMMARY = "forecast how much AP would rise with twice as many images"
DESCRIPTION = (
    "Trains on parts of a dataset, by default three, each of which contains the "
    "smaller ones. From the AP of the parts, a power law forecasts the AP with all "
    "images and with twice as many, also for each class. The dataset must have 40 "
    "images or more. A forecast takes as long as three trainings."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    add_data(parser)
    parser.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="folder for the trainings, forecast.json and forecast.html",
    )
    parser.add_argument(
        "--percents",
        nargs="+",
        type=int,
        default=[12, 25, 50],
        metavar="P",
        help=(
            "the parts of the dataset to train on, in percent of the images; 100 is "
            "all images (default: 12 25 50)"
        ),
    )
    parser.add_argument(
        "--time-budget",
        metavar="TIME",
        help=(
            "time for all trainings, such as 40m or 2h; each part gets a quarter of "
            "it, and if a quarter is left, the model is also trained on all images"
        ),
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the forecast in FOLDER, and keep what was measured",
    )
    add_overwrite(parser)
    fields = add_training_fields(
        parser, "number of steps of each training (default: 1,400)"
    )
    fields.add_argument(
        "--model",
        metavar="NAME",
        help="a preset, as in `train` (default: efficientdet-lite0)",
    )
    fields.add_argument(
        "--image-size",
        action=OneOrTwo,
        nargs="+",
        type=size_or_auto,
        metavar="PIXELS",
        help=(
            "the network's input size, as in `train` (default: fitted to the boxes of "
            "all images)"
        ),
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
