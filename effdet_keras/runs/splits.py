"""Which images a run trains on, is judged by while it trains, and in the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from effdet_keras.data import DetectionDataset, load_splits
from effdet_keras.errors import InvalidValueError
from effdet_keras.runs.configuration import RunConfiguration

_TRAIN = ("train",)
_VALIDATION = ("val", "valid", "validation")
_TEST = ("test",)


@dataclasses.dataclass(frozen=True)
class Splits:
    """The datasets of a run, all of the same classes."""

    train: DetectionDataset
    validation: DetectionDataset
    test: DetectionDataset | None
    test_name: str | None

    @property
    def final(self) -> tuple[str, DetectionDataset]:
        """Name and images of the split that the trained model is evaluated on."""
        if self.test is None:
            return "validation", self.validation
        return self.test_name, self.test

    def by_role(self) -> dict[str, DetectionDataset]:
        """The datasets that there are, by what the run does with them."""
        every = {"train": self.train, "validation": self.validation, "test": self.test}
        return {role: dataset for role, dataset in every.items() if dataset is not None}

    def one_batch(self, batch_size: int) -> Splits:
        """The first images of each split, as many as one batch has."""
        test = None if self.test is None else self.test[:batch_size]
        return dataclasses.replace(
            self,
            train=self.train[:batch_size],
            validation=self.validation[:batch_size],
            test=test,
        )


def choose_splits(
    configuration: RunConfiguration,
    datasets: Mapping[str, DetectionDataset] | None = None,
) -> Splits:
    """Reads the data of a run, and chooses its splits.

    Without a validation split a part of the training images becomes one, at random,
    by the run's seed. A test split without a box is not evaluated on.

    Args:
        datasets: dict from name to `DetectionDataset`, the data itself; None to read
            `configuration.data`.
    """
    if datasets is None:
        datasets = load_splits(
            configuration.data,
            format=configuration.format,
            class_names=configuration.class_names,
            masks="segmentation" in configuration.model_config.get("heads", ()),
        )
    name = _name(configuration, "train_split", _TRAIN, datasets)
    if name is None and len(datasets) == 1:
        name = next(iter(datasets))  # data that is not divided
    if name is None:
        raise InvalidValueError(
            f"The data has the splits {', '.join(datasets)}, none of which is called "
            "'train': name the one to train on with `train_split` (--train-split)."
        )
    train = datasets[name]
    valid_name = _name(configuration, "validation_split", _VALIDATION, datasets)
    if valid_name is None:
        share = configuration.validation_fraction
        train, valid = train.split(1.0 - share, seed=configuration.seed)
        print(
            f"There is no validation split: {len(valid)} images of '{name}', chosen at "
            f"random, are kept for validation, and {len(train)} are trained on."
        )
    else:
        valid = datasets[valid_name]
    if configuration.train_on_crowds:
        train = train.with_crowds_as_objects()
    return Splits(train, valid, *_test(configuration, datasets))


def _test(configuration, datasets):
    """The split to evaluate on in the end, and its name; None where there is none."""
    if configuration.test_split is None:
        return None, None
    name = _name(configuration, "test_split", _TEST, datasets)
    if name is None:
        return None, None
    if not any(len(record.labels) for record in datasets[name].records):
        print(f"The split '{name}' has no boxes, and is not evaluated on.")
        return None, None
    return datasets[name], name


def _name(configuration, field, usual, datasets):
    """The name of the split that a field means; None where "auto" finds none."""
    asked = getattr(configuration, field)
    if asked == "auto":
        return next((name for name in usual if name in datasets), None)
    if asked not in datasets:
        raise InvalidValueError(
            f"`{field}` must be one of {list(datasets)}, the splits of the data. "
            f"Received: {field}={asked!r}"
        )
    return asked
