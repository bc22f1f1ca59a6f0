"""Runs a self-test as the flags of `effdet-keras selftest` say."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence

from effdet_keras.data import load
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.load import load_splits, split_names
from effdet_keras.errors import InvalidValueError
from effdet_keras.extras.selftest.overfitting import STEPS
from effdet_keras.extras.selftest.self_test import self_test
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.runs.configuration import RunConfiguration, parse_settings
from effdet_keras.runs.make_model import make_model


def selftest_data(
    data: str | os.PathLike[str],
    *,
    archive: str | None = None,
    preset: str | None = None,
    split: str | None = None,
    format: str | None = None,
    image_size: int | Sequence[int] | None = None,
    settings: Sequence[str] = (),
    num_images: int | None = None,
    training: bool = True,
    steps: int | None = None,
) -> bool:
    """Reads a dataset, opens or makes a model, and tests one with the other."""
    made_only = [name for name, given in _of_new_model(preset, image_size, settings)]
    if archive is not None and made_only:
        raise InvalidValueError(
            f"{made_only[0]} is for a model that is made new, and MODEL, '{archive}', "
            "is one that is there: leave one of the two out."
        )
    dataset = _read(data, split, format)
    if archive is not None:
        model = EfficientDet.from_archive(archive)
    else:
        model = _new_model(dataset, preset, image_size, settings, training)
    height, width = model.config.image_size
    print(f"{model.config.name} at {height}x{width} on {dataset!r}")
    report = self_test(
        dataset,
        model,
        training=training,
        num_images=num_images,
        steps=STEPS if steps is None else steps,
        run_eagerly=bool(parse_settings(settings).get("run_eagerly", False)),
    )
    return report.ok


def _of_new_model(preset, image_size, settings):
    given = {"--model": preset, "--image-size": image_size, "--set": settings}
    return [(name, value) for name, value in given.items() if value]


def _read(data, split, format):
    """The images to test with; what is wrong with them is told by the stages."""
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


def _new_model(
    dataset: DetectionDataset, preset, image_size, settings, training: bool
) -> EfficientDet:
    """A model as a run would make it for this dataset."""
    fields = {**parse_settings(settings)}
    if preset is not None:
        fields["model"] = preset
    if image_size is not None:
        fields["image_size"] = image_size
    if not training:
        fields.setdefault("weights", None)
    if all(record.usable().is_crowd.all() for record in dataset.records):
        # Nothing to fit them to; the first stage says so.
        fields.setdefault("image_size", None)
        fields.setdefault("anchors", None)
    return make_model(RunConfiguration.from_dict(fields), dataset)
