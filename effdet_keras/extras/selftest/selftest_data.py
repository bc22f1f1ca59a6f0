"""Runs a self-test as the flags of `effdet-keras selftest` say."""

from __future__ import annotations

import argparse
import warnings

from effdet_keras.data import load
from effdet_keras.data.load import load_splits, split_names
from effdet_keras.errors import InvalidValueError
from effdet_keras.extras.selftest.self_test import self_test
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.runs.configuration import RunConfiguration, parse_settings
from effdet_keras.runs.make_model import make_model


def selftest_data(arguments: argparse.Namespace) -> bool:
    """Reads a dataset, opens or makes a model, and tests one with the other."""
    archive, settings = arguments.archive, parse_settings(arguments.set)
    of_new_model = {
        "--model": arguments.model,
        "--image-size": arguments.image_size,
        "--set": arguments.set,
    }
    made_only = [name for name, value in of_new_model.items() if value]
    if archive is not None and made_only:
        raise InvalidValueError(
            f"{made_only[0]} is for a model that is made new, and MODEL, '{archive}', "
            "is one that is there: leave one of the two out."
        )
    dataset = _read(arguments.data, arguments.split, arguments.format)
    if archive is not None:
        model = EfficientDet.from_archive(archive)
    else:
        model = _new_model(dataset, arguments, settings)
    height, width = model.config.image_size
    print(f"{model.config.name} at {height}x{width} on {dataset!r}")
    report = self_test(
        dataset,
        model,
        training=arguments.training,
        num_images=arguments.num_images,
        steps=arguments.steps,
        run_eagerly=bool(settings.get("run_eagerly", False)),
    )
    return report.ok


def _read(data, split, format):
    """The images to test with; the stages say what is wrong with them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if split is None and "train" in split_names(data, format=format):
            split = "train"
        if split is None:
            return load(data, format=format, on_error="skip")
        # With the others, so that labels are those of a training on all of it.
        splits = load_splits(data, format=format, on_error="skip")
    if split not in splits:
        raise InvalidValueError(
            f"`--split` must be one of {list(splits)}, the splits of '{data}'. "
            f"Received: {split!r}"
        )
    return splits[split]


def _new_model(dataset, arguments, settings):
    """A model as a run would make it for this dataset."""
    fields = dict(settings)
    if arguments.model is not None:
        fields["model"] = arguments.model
    if arguments.image_size is not None:
        fields["image_size"] = arguments.image_size
    if not arguments.training:
        fields.setdefault("weights", None)
    if all(record.usable().is_crowd.all() for record in dataset.records):
        # Nothing to fit them to; the first stage says so.
        fields.setdefault("image_size", None)
        fields.setdefault("anchors", None)
    return make_model(RunConfiguration.from_dict(fields), dataset)
