"""`fine_tune`: a detector for a dataset, in one call."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from effdet_keras.data import DetectionDataset
from effdet_keras.distribution.processes import is_first_process
from effdet_keras.distribution.starting import start
from effdet_keras.errors import InvalidTypeError, InvalidValueError
from effdet_keras.runs.asked import configured, going_on
from effdet_keras.runs.batch_size import with_batch_size
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.fine_tuned import FineTuned
from effdet_keras.runs.run_folder import RunFolder
from effdet_keras.runs.shared_files import OF_A_RUN, copy_from_first
from effdet_keras.runs.splits import choose_splits
from effdet_keras.runs.text_log import standard_output_kept
from effdet_keras.runs.train import train


def fine_tune(
    data: str
    | os.PathLike
    | DetectionDataset
    | Mapping[str, DetectionDataset]
    | None = None,
    model: str | None = None,
    *,
    out: str | os.PathLike | None = None,
    configuration: RunConfiguration | str | os.PathLike | None = None,
    hparams: str | os.PathLike | Mapping[str, Any] | None = None,
    pipeline_config: str | os.PathLike | None = None,
    ignore_unknown: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    **fields: Any,
) -> FineTuned:
    """Trains a detector on a dataset, and evaluates its best checkpoint.

    It does what `effdet-keras train` does: reads the splits of the data, makes the
    model with classes, image size and anchors for it, compiles it with the recipe,
    trains it with an evaluation after each epoch, keeps the best checkpoint, and
    evaluates that on the test split, or where there is none on the validation split.

    In `out` are then the configuration, the environment, what the data was, the log as
    text and as lines of JSON, the curves, files for TensorBoard, and the checkpoints
    (docs/train.md).

    Where several say the same, `fields` count more than `hparams` or
    `pipeline_config`, and these more than `configuration`.

    Args:
        data: path of the dataset; or a `DetectionDataset`; or a dict of them by split,
            as `ek.data.load_splits` returns. None for the path in `configuration`.
        model: string, a preset, or the address or folder of a TF-Hub module. None is
            that of `configuration`, "efficientdet-lite0" by default.
        out: path of the folder to write to; None keeps nothing but the result.
        configuration: `RunConfiguration`, or the path of its YAML file.
        hparams: hyper-parameters of google/automl: a string such as
            "learning_rate=0.04,gamma=2.0", the path of a YAML file, or a dict
            (docs/train.md).
        pipeline_config: path of the config of an EfficientDet of the TensorFlow
            Object Detection API (docs/migrating_from_tfod.md).
        ignore_unknown: bool, whether to train although `hparams` or `pipeline_config`
            asks for something that changes the training and is not done here. Without
            it that is an error, which lists all of it.
        resume: bool, whether to go on with the run in `out`, with its configuration;
            only its length, when it saves, `verbose` and the path of its data may
            change. The arguments with which it began may be given again, and what
            was measured for them stays. Where there is no run yet, and `data` or
            `configuration` is given, it begins.
        overwrite: bool, whether to remove the run that is in `out`.
        callbacks: more callbacks of `fit`, such as those of W&B or MLflow.
        **fields: fields of `RunConfiguration`, such as `epochs=20`, `batch_size=8`,
            `freeze="backbone"`, `seed=1`.

    Returns:
        `FineTuned`: the model, its numbers, the history and the folder.

    Raises:
        ValueError, TypeError: If a field or the data has something that cannot be
            right; the message says what and the cure.
        FileExistsError: If there is a run in `out` already.
        OSError: If data or weights are not there, or `out` cannot be written to.
        RuntimeError: If another process has `out`, or a run that is to go on has other
            data than it began with.

    Example:
        >>> fine_tune("cells", epoch=20)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: A run has no field 'epoch'. Did you \
mean 'epochs'? It has: data, format, ...

        docs/train.md has one that trains.
    """
    if model is not None:
        fields["model"] = model
    datasets = _in_memory(data)
    if data is not None and datasets is None:
        fields["data"] = os.fspath(data)
    if resume and out is None:
        raise InvalidValueError(
            "`resume=True` goes on with a run in a folder: name it with `out`."
        )
    if resume and overwrite:
        raise InvalidValueError(
            "`resume` goes on with the run in `out`, and `overwrite` removes it: give "
            "one of the two."
        )
    with contextlib.ExitStack() as stack:
        distribute = _distribute(configuration, fields, out if resume else None)
        if distribute is not None:
            start(distribute)  # before anything is computed
        if out is None or not is_first_process():
            folder = RunFolder(stack.enter_context(tempfile.TemporaryDirectory()))
        else:
            folder = RunFolder(out)
        copy_from_first(folder, OF_A_RUN)
        text = stack.enter_context(standard_output_kept())
        has_nothing_to_begin = data is None and configuration is None
        resume = resume and (folder.has_run or has_nothing_to_begin)
        if resume:
            folder.check_run()
        else:
            folder.check_free(overwrite=overwrite)
        files = (configuration, hparams, pipeline_config)
        asked = None  # what is asked for by files and fields
        if not resume or any(file is not None for file in files):
            asked = configured(
                *(configuration, hparams, fields, pipeline_config),
                ignore_unknown=ignore_unknown,
            )
            if pipeline_config is not None and datasets is not None:
                # Datasets have names of their own, in the place of its label map's.
                asked = asked.replace(class_names=fields.get("class_names"))
        if resume:
            asked, chosen = going_on(folder, asked, fields)
        else:
            chosen = asked
        if out is None or not is_first_process():
            chosen = chosen.replace(tensorboard=False)  # nobody could look at it
            if chosen.profile is not None and out is None:
                raise InvalidValueError(
                    "`profile` writes a trace to the folder of the run: name it with "
                    f"`out`. Received: profile={chosen.profile!r}"
                )
        _check_data(chosen, datasets)
        text.is_quiet = chosen.verbose == 0 or not is_first_process()
        splits = choose_splits(chosen, datasets)
        stack.enter_context(folder.taken())
        if not resume:  # another process may have taken it meanwhile
            folder.check_free(overwrite=overwrite)
        started = time.monotonic()
        # Before anything is on a graphics card.
        chosen = with_batch_size(chosen, splits, hparams, fields)
        options: dict[str, Any] = {"started": started, "resume": resume}
        options |= {"asked": asked, "callbacks": callbacks}
        result = train(chosen, splits, folder, text, **options)
    keeps_folder = out is not None and is_first_process()
    return result if keeps_folder else dataclasses.replace(result, folder=None)


def _distribute(configuration, fields, out):
    """On which devices and processes the run trains; see `RunConfiguration`."""
    if out is not None and RunFolder(out).has_run:
        return RunFolder(out).read_configuration().distribute
    if "distribute" in fields:
        return fields["distribute"]
    if isinstance(configuration, (str, os.PathLike)):
        configuration = RunConfiguration.read(configuration)
    return getattr(configuration, "distribute", None)


def _in_memory(data):
    """Datasets by split, where they were given and are not to be read; else None."""
    if isinstance(data, DetectionDataset):
        return {"train": data}
    if not isinstance(data, Mapping):
        return None
    for split, dataset in data.items():
        if not isinstance(dataset, DetectionDataset):
            raise InvalidTypeError(
                "`data` must be a path, a `DetectionDataset`, or a dict of these by "
                f"split. Received: {type(dataset).__name__} for {split!r}"
            )
    return dict(data)


def _check_data(configuration, datasets):
    if datasets is None and configuration.data is None:
        raise InvalidValueError(
            "There is nothing to train on: give `data`, the path of a dataset or a "
            "`DetectionDataset`."
        )
    if datasets is not None:
        for name in ("format", "class_names"):
            if getattr(configuration, name) is not None:
                raise InvalidValueError(
                    f"`{name}` is for data that is read from a path. Received: "
                    f"{name}={getattr(configuration, name)!r} and datasets in memory"
                )
