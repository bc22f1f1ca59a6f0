"""The data of one `fit`: in batches, checked, and with the length of the training."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.train import auto_recipe, inputs
from effdet_keras.train.repeat import repeat
from effdet_keras.train.resume import TrainingPosition

DEFAULT_BATCH_SIZE = 8  # of a `DetectionDataset`


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingData:
    """The data and the length of one `fit`.

    Attributes:
        x, y, validation_data, batch_size, shuffle: what `keras.Model.fit` takes.
        epochs: int, as in `keras.Model.fit`: the last epoch, counted from 1.
        initial_epoch: int, how many epochs were trained before.
        steps_per_epoch: int, or None where an epoch is one pass over the data.
        dataset: the `DetectionDataset` that `fit` was given and `x` is made of, or
            None.
        position: where the training is resumed, or None.
        auto_fields: the names of the arguments that `fit` chose by itself, of
            "scale_jitter", "augment", "batch_size" and "epochs".
    """

    x: Any
    y: Any
    validation_data: Any
    batch_size: int | None
    shuffle: bool | str
    epochs: int
    initial_epoch: int
    steps_per_epoch: int | None
    dataset: DetectionDataset | None
    position: TrainingPosition | None
    auto_fields: tuple[str, ...]

    @property
    def epochs_to_train(self) -> int:
        """The number of epochs that are left."""
        return self.epochs - self.initial_epoch

    @property
    def steps_before(self) -> int:
        """How many steps of the epoch that is resumed are done; else 0."""
        return 0 if self.position is None else self.position.step


def prepare_training_data(
    model: Any,
    x: Any,
    y: Any,
    *,
    batch_size: int | None,
    epochs: int | None,
    validation_data: Any,
    validation_split: float,
    shuffle: bool | str | None,
    initial_epoch: int | None,
    steps_per_epoch: int | None,
) -> TrainingData:
    """Makes batches of datasets, checks all data, and finds where the training begins.

    The model takes names and ids of the classes from the data, where it has none.

    Args:
        model: `EfficientDet`.
        x, y, batch_size, epochs, validation_data, validation_split, shuffle,
            initial_epoch, steps_per_epoch: arguments of `EfficientDet.fit`.

    Raises:
        ValueError, TypeError: If the model cannot be trained on the data.
    """
    steps_per_epoch = _in_whole_executions(model, steps_per_epoch)
    if validation_split and validation_data is None:
        x, y, validation_data = inputs.split_validation(x, y, validation_split)
    if validation_data is not None:
        inputs.require_single_process("`validation_data`")
        validation_data, _ = in_batches(model, validation_data, batch_size)
    dataset = x if isinstance(x, DetectionDataset) else None
    auto_fields = _auto_fields(dataset, batch_size, epochs)
    if epochs is None:
        epochs = _default_epochs(model, dataset, batch_size, steps_per_epoch)
    position = model.position_to_resume(initial_epoch)
    batches, batch_size = in_batches(
        model,
        x,
        batch_size,
        training=True,
        seed=None if position is None else position.seed,
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
    )
    inputs.check_data(model, batches, y, trains=True)
    _check_validation_data(model, validation_data)
    inputs.adopt_classes(model, x)
    if shuffle is None:
        shuffle = not hasattr(batches, "element_spec")  # Keras cannot shuffle `tf.data`
    if position is not None:
        initial_epoch = position.epoch
    return TrainingData(
        x=batches,
        y=y,
        validation_data=validation_data,
        batch_size=batch_size,
        shuffle=shuffle,
        epochs=epochs,
        initial_epoch=initial_epoch or 0,
        steps_per_epoch=steps_per_epoch,
        dataset=dataset,
        position=position,
        auto_fields=auto_fields,
    )


def repeat_for_steps(data: TrainingData) -> TrainingData:
    """Data that does not end before `steps_per_epoch` steps, where these are given."""
    if data.steps_per_epoch is None:
        return data
    x, y = repeat(
        data.x,
        data.y,
        batch_size=data.batch_size,
        shuffle=data.shuffle,
        first_step=data.initial_epoch * data.steps_per_epoch,
    )
    return dataclasses.replace(data, x=x, y=y, shuffle=False)


def in_batches(
    model: Any,
    data: Any,
    batch_size: int | None,
    *,
    training: bool = False,
    **options: Any,
) -> tuple[Any, int | None]:
    """A `DetectionDataset` in batches for the model; any other data as it is.

    Args:
        model: `EfficientDet`.
        data: what `fit`, `evaluate` or `predict` was given.
        batch_size: int; None for 8 images of a dataset, and Keras' own of arrays.
        training: bool, whether images are shuffled and augmented.
        **options: of `EfficientDet.batches`.

    Returns:
        The data, and the batch size for Keras: None where the data is in batches.
    """
    if not isinstance(data, DetectionDataset):
        return data, batch_size
    size = DEFAULT_BATCH_SIZE if batch_size is None else batch_size
    return model.batches(data, size, training=training, **options), None


def _in_whole_executions(model, steps_per_epoch):
    """`steps_per_epoch` as Keras trains it: a multiple of `steps_per_execution`."""
    group = model.steps_per_execution
    if steps_per_epoch is None or steps_per_epoch % group == 0:
        return steps_per_epoch
    whole = -(-steps_per_epoch // group) * group
    warnings.warn(
        f"An epoch has {whole} steps, not `steps_per_epoch={steps_per_epoch}`: Keras "
        f"trains `steps_per_execution={group}` at once. Pass a multiple of it.",
        stacklevel=4,
    )
    return whole


def _auto_fields(dataset, batch_size, epochs):
    """The names of the arguments that `fit` chooses, because it makes the batches."""
    if dataset is None:
        return ()
    names = ["scale_jitter", "augment"]
    if batch_size is None:
        names.append("batch_size")
    if epochs is None:
        names.append("epochs")
    return tuple(names)


def _default_epochs(model, dataset, batch_size, steps_per_epoch):
    """The number of epochs where none is given: Keras' 1, or what fits the dataset."""
    is_auto = (
        model.settings is not None and model.settings.requested_recipe.has_auto_fields
    )
    if dataset is None or not is_auto:
        return 1
    return auto_recipe.num_epochs(
        len(dataset), batch_size or DEFAULT_BATCH_SIZE, steps_per_epoch
    )


def _check_validation_data(model, validation_data):
    if isinstance(validation_data, (tuple, list)):
        inputs.check_data(model, *(validation_data[:2] or (None,)))
        for sample_weight in validation_data[2:]:
            inputs.refuse_sample_weight(sample_weight)
    elif validation_data is not None:
        inputs.check_data(model, validation_data)
