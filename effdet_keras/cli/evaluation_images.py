"""Chooses the images to evaluate models on: preferably none that they trained on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from effdet_keras.cli.files import EVALUATION_SPLITS, DatasetSource, is_published
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.formats.dataset_files import role_of_split
from effdet_keras.data.known_formats import FORMATS
from effdet_keras.errors import printable
from effdet_keras.runs.training_images import (
    configuration_of_run,
    run_of_model,
    splits_of_run,
    trained_on_too,
)


class EvaluationImages(NamedTuple):
    """The result of `evaluation_images`.

    Attributes:
        split: string, the name of the split; "validation" for images that a run held
            out.
        dataset: `DetectionDataset` to evaluate on.
        caution: string, the reason why metrics on it may be too good; None if no reason
            is known.
        trained_on: `DetectionDataset`, the images that a run trained on, if `dataset`
            is the part that this run held out; otherwise None.
    """

    split: str
    dataset: DetectionDataset
    caution: str | None
    trained_on: DetectionDataset | None


def evaluation_images(
    data: DatasetSource, models: Sequence[str] = ()
) -> EvaluationImages:
    """Reads the images to evaluate models on.

    These are the images of the requested split, or of the first of `EVALUATION_SPLITS`
    that the data has. If the data has none of them, and a run has divided it, they are
    the part that this run held out. The function prints this choice, and a caution if
    models were trained on these images.

    Args:
        data: `DatasetSource`, the dataset, and the split if one is requested.
        models: paths or names of the models to evaluate.

    Returns:
        `EvaluationImages`.
    """
    split = data.chosen_split(EVALUATION_SPLITS)
    folders = {model: run_of_model(model) for model in models}
    data = read_as_trained(data, models)
    is_for_evaluation = role_of_split(split) in ("validation", "test")
    of_data = {
        model: splits_of_run(folder, data.path, data.format)
        for model, folder in folders.items()
        if folder is not None
    }
    divided = [model for model in of_data if of_data[model] is not None]
    dataset, trained_on = None, None
    if data.split is None and not is_for_evaluation and divided:
        run, split = divided[0], "validation"
        dataset, trained_on = of_data[run].validation, of_data[run].train
        print(
            printable(
                f"'{data.path}' has no test or validation split. The evaluation uses "
                f"the {len(dataset):,} images that '{run}' held out to choose its "
                f"best checkpoint, and not the {len(trained_on):,} that it was "
                "trained on."
            )
        )
    if dataset is None:
        dataset = data.load((split,))
    cautions = []
    for model in models:
        splits = of_data.get(model)
        if splits is None and folders[model] is not None:
            splits = splits_of_run(folders[model])
        if splits is not None:
            cautions.append(trained_on_too(splits.train, dataset))
        elif not is_for_evaluation and not is_published(model):
            cautions.append(
                f"'{split}' is not a test or validation split: if '{model}' was "
                "trained on these images, the metrics are too good and say nothing "
                "about other images."
            )
    caution = " ".join(dict.fromkeys(filter(None, cautions))) or None
    if caution is not None:
        print(printable(caution), flush=True)
    return EvaluationImages(split, dataset, caution, trained_on)


def read_as_trained(data: DatasetSource, models: Sequence[str]) -> DatasetSource:
    """Returns a source that reads data as the first run did, unless flags override it.

    Args:
        data: `DatasetSource`, the dataset.
        models: paths or names of models, of which some may be in the folder of a run.
    """
    run = next(filter(None, map(run_of_model, models)), None)
    configuration = None if run is None else configuration_of_run(run)
    if configuration is None:
        return data
    as_trained = {}
    if data.on_error is None and configuration.on_error != "auto":
        as_trained["on_error"] = configuration.on_error
    known = configuration.unlabelled
    if data.unlabelled is None and known is not None and takes_unlabelled(data):
        as_trained["unlabelled"] = known
    known = configuration.reader_options
    if data.reader_options is None and known and data.takes(known):
        as_trained["reader_options"] = known
    if not as_trained:
        return data
    said = ", ".join(f"{name}={value!r}" for name, value in as_trained.items())
    print(printable(f"The dataset is read as in the training of '{run.path}': {said}."))
    return dataclasses.replace(data, **as_trained)


def takes_unlabelled(data: DatasetSource) -> bool:
    """Returns whether readers of the source's format take `unlabelled`."""
    return FORMATS[data.found.format].has_unlabelled
