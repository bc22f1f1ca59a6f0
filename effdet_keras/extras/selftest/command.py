"""`effdet-keras selftest`: tests whether a model can learn a dataset, or why not."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from effdet_keras._internal.optional_imports import keras
from effdet_keras.cli.arguments import (
    OneOrTwo,
    add_data,
    add_format,
    add_reader_options,
    add_settings,
    add_unlabelled,
)
from effdet_keras.errors import InvalidValueError

SUMMARY = "find out why a training does not learn"
DESCRIPTION = (
    "Finds the stage at which a training loses its boxes: follows the boxes of a "
    "dataset through reading, letterbox, matching and encoding, and measures the AP of "
    "the boxes that are left after each stage. Then trains the model to memorize four "
    "images. The exit status is 1 if a stage fails. docs/selftest.md explains each "
    "stage."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    add_data(parser)
    parser.add_argument(
        "archive",
        nargs="?",
        metavar="MODEL",
        help=(
            "the model: a .keras file, the folder of a run of `train`, or a folder "
            "that CheckpointArchive wrote (default: a new model)"
        ),
    )
    parser.add_argument(
        "--split",
        metavar="NAME",
        help="the split to test with (default: train, or else the only one)",
    )
    add_format(parser)
    add_unlabelled(parser)
    add_reader_options(parser)
    parser.add_argument(
        "--model",
        metavar="NAME",
        help=(
            "a preset, instead of MODEL, from which a new model is built as in `train` "
            "(default: efficientdet-lite0)"
        ),
    )
    parser.add_argument(
        "--image-size",
        action=OneOrTwo,
        nargs="+",
        type=int,
        metavar="PIXELS",
        help=(
            "the network's input size, for a new model: one number, or height and "
            "width (default: fitted to the boxes, as in `train`)"
        ),
    )
    add_settings(
        parser,
        "set any other field of a run, as in `train`, such as "
        "model_config.anchor_scale=3; may be given several times",
    )
    parser.add_argument(
        "--num-images",
        type=int,
        metavar="N",
        help=(
            "follow only the boxes of N images, which are chosen at random (default: "
            "all images)"
        ),
    )
    parser.add_argument(
        "--no-training",
        dest="training",
        action="store_false",
        help="leave out the last stage, the training, which takes minutes",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=400,
        metavar="N",
        help="the most steps of the last stage, the training (default: %(default)s)",
    )


def run(
    data: str,
    archive: str | None = None,
    *,
    split: str | None = None,
    format: str | None = None,
    unlabelled: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
    model: str | None = None,
    image_size: int | tuple[int, int] | None = None,
    settings: Sequence[str] = (),
    num_images: int | None = None,
    training: bool = True,
    steps: int = 400,
) -> int:
    """Tests a training stage by stage; returns 1 if a stage fails, else 0."""
    keras.require("`effdet-keras selftest`")
    from effdet_keras.extras.selftest.self_test import check_numbers, self_test
    from effdet_keras.model.efficientdet import EfficientDet
    from effdet_keras.runs.components import make_model
    from effdet_keras.runs.configuration import RunConfiguration, parse_settings

    check_numbers(num_images, steps)  # before a model is made, which takes a while
    flags = {"model": model, "image_size": image_size}
    flags = {name: value for name, value in flags.items() if value is not None}
    fields = parse_settings(settings, flags)
    of_new_model = {"--model": model, "--image-size": image_size, "--set": settings}
    made_only = [flag for flag, value in of_new_model.items() if value]
    if archive is not None and made_only:
        raise InvalidValueError(
            f"{made_only[0]} describes a new model, but MODEL, '{archive}', is an "
            "existing one: leave one of the two out."
        )
    configuration = RunConfiguration().replace(**fields)
    has_segmentation = "segmentation" in configuration.model_config.get("heads", ())
    if archive is not None:
        tested = EfficientDet.from_archive(archive)
        has_segmentation = tested.config.has_segmentation
    how = {"unlabelled": unlabelled, "reader_options": reader_options}
    dataset = _read(data, split, format, has_segmentation, how)
    if archive is None:  # make the model as a run would for this dataset
        if not training:
            fields.setdefault("weights", None)
        if all(record.usable().is_crowd.all() for record in dataset.records):
            # There are no boxes to fit them to; the first stage reports that.
            fields = {"image_size": None, "anchors": None, **fields}
        tested = make_model(RunConfiguration().replace(**fields), dataset)
    height, width = tested.config.image_size
    print(f"{tested.config.name} at {height}x{width} on {dataset!r}")
    is_eager = bool(fields.get("run_eagerly", False))
    options = {"training": training, "num_images": num_images, "steps": steps}
    report = self_test(dataset, tested, run_eagerly=is_eager, **options)
    return 0 if report.ok else 1


def _read(data, split, format, masks, how):
    """Returns the images to test with; the stages report their problems."""
    from effdet_keras.data.any_format import load_splits
    from effdet_keras.data.find_dataset import find
    from effdet_keras.data.formats.reading import chosen_split
    from effdet_keras.data.known_formats import FORMATS

    with warnings.catch_warnings(action="ignore"):
        found = find(data, format, how["reader_options"])
        options = {"masks": masks and FORMATS[found.format].has_masks, **how}
        # Read all splits, so that labels are those of a training on the whole dataset.
        splits = load_splits(data, format=format, on_error="skip", **options)
    if split is None and len(splits) > 1:
        split = "train"
    return splits[chosen_split(splits, split, data)]
