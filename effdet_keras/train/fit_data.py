"""Prepares the data of one `fit`: makes batches, checks them, and sets the length."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.train import auto_recipe, inputs
from effdet_keras.train.repeat import repeat
from effdet_keras.train.resume import TrainingPosition

DEFAULT_BATCH_SIZE = 8  # for a `DetectionDataset`


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingData:
    """The data and the length of one `fit`.

    Attributes:
        x, y, validation_data, batch_size, shuffle: arguments for `keras.Model.fit`.
        epochs: int, as in `keras.Model.fit`: the last epoch, counted from 1.
        initial_epoch: int, the number of epochs that were trained before.
        steps_per_epoch: int, or None if an epoch is one pass over the data.
        dataset: the `DetectionDataset` that `fit` received, and from which `x` is made,
            or None.
        position: the position from which the training is resumed, or None.
        auto_fields: the arguments that `fit` chose itself, out of "scale_jitter",
            "augment", "batch_size" and "epochs".
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
        """The number of epochs that are left to train."""
        return self.epochs - self.initial_epoch


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
    validation_steps: int | None,
) -> TrainingData:
    """Makes batches of datasets, checks all data, and finds where the training begins.

    A model without class names or category ids takes those of the data.

    Args:
        model: `EfficientDet`.
        x, y, batch_size, epochs, validation_data, validation_split, shuffle,
            initial_epoch, steps_per_epoch, validation_steps: arguments of
            `EfficientDet.fit`.

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
    inputs.require_end(batches, "steps_per_epoch", steps_per_epoch)
    _check_validation_data(model, validation_data)
    inputs.require_end(validation_data, "validation_steps", validation_steps)
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
    """Returns data that repeats without end, if `steps_per_epoch` is given."""
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
    """Returns a `DetectionDataset` in batches for the model, and other data unchanged.

    Args:
        model: `EfficientDet`.
        data: the data that `fit`, `evaluate` or `predict` received.
        batch_size: int or None. None is 8 for a dataset, and Keras' default for arrays.
        training: bool, whether images are shuffled and augmented.
        **options: arguments of `EfficientDet.batches`.

    Returns:
        Tuple of the data and the batch size for Keras, which is None for a dataset that
        is now in batches.
    """
    if not isinstance(data, DetectionDataset):
        return data, batch_size
    size = DEFAULT_BATCH_SIZE if batch_size is None else batch_size
    return model.batches(data, size, training=training, **options), None


def _in_whole_executions(model, steps_per_epoch):
    """Returns `steps_per_epoch`, rounded up to a multiple of `steps_per_execution`.

    Keras trains whole groups of steps. If the number changes, a warning is given.
    """
    group = model.steps_per_execution
    if steps_per_epoch is None or steps_per_epoch % group == 0:
        return steps_per_epoch
    whole = -(-steps_per_epoch // group) * group
    warnings.warn(
        f"Each epoch has {whole} steps, not `steps_per_epoch={steps_per_epoch}`, "
        f"because Keras runs `steps_per_execution={group}` steps at once. Pass a "
        f"multiple of {group} as `steps_per_epoch`.",
        stacklevel=4,
    )
    return whole


def _auto_fields(dataset, batch_size, epochs):
    """Returns the names of the arguments that `fit` chooses for its batches."""
    if dataset is None:
        return ()
    names = ["scale_jitter", "augment"]
    if batch_size is None:
        names.append("batch_size")
    if epochs is None:
        names.append("epochs")
    return tuple(names)


def _default_epochs(model, dataset, batch_size, steps_per_epoch):
    """Returns the default number of epochs.

    It is Keras' 1, or with `recipe="auto"` a number for the size of the dataset.
    """
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
