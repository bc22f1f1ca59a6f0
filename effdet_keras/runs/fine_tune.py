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

from effdet_keras._internal.extras import extra
from effdet_keras._internal.processes import is_first_process, start
from effdet_keras._internal.whole_files import is_remote
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.errors import InvalidTypeError, InvalidValueError
from effdet_keras.runs.configuration import LENGTHS, RunConfiguration, refuse_undone
from effdet_keras.runs.parts import choose_splits
from effdet_keras.runs.run_folder import OF_A_RUN, RunFolder, copy_from_first
from effdet_keras.runs.run_log import standard_output_kept
from effdet_keras.runs.train import FineTuned, train
from effdet_keras.train.schedules import REFERENCE_BATCH_SIZE


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
        requested = None  # what is asked for by files and fields
        if not resume or any(file is not None for file in files):
            requested = configured(
                *(configuration, hparams, fields, pipeline_config),
                ignore_unknown=ignore_unknown,
            )
            if pipeline_config is not None and datasets is not None:
                # Datasets have names of their own, in the place of its label map's.
                requested = requested.replace(class_names=fields.get("class_names"))
        if resume:
            requested, chosen = resumed(folder, requested, fields)
        else:
            chosen = requested
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
        with_batch_size = extra("batch_size:with_batch_size")
        chosen = with_batch_size(chosen, splits, hparams, fields)
        options: dict[str, Any] = {"started": started, "resume": resume}
        options |= {"requested": requested, "callbacks": callbacks}
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


# --- What files and fields request of a run, and whether one that exists is that.

# What may change when a run goes on: how long it is, what it says, where its data is.
_FREE_ON_RESUME = {
    *("epochs", "steps", "verbose", "data", "tensorboard", "profile"),
    *("save_every_steps", "save_every_minutes", "keep", "keep_every_hours"),
}
# Fields of which one name can be given, and the others stay.
_MAPPINGS = ("model_config", "loss", "postprocess", "gradient_multipliers")


def resumed(
    folder: RunFolder, requested: RunConfiguration | None, fields: Mapping[str, Any]
) -> tuple[RunConfiguration, RunConfiguration]:
    """The configuration of a run that goes on.

    What is asked for is held against what was asked for when the run began, not against
    what was then measured or chosen: so the command of then can be given again.
    """
    run, before = folder.read_configuration(), folder.read_asked()
    now = requested or before.replace(**_merged(before.to_dict(), fields))
    if now.data is None:
        now = now.replace(data=before.data)
    if now.time_budget is not None and now.time_budget != before.time_budget:
        raise InvalidValueError(
            "A time is for a whole run, and is not measured again for one that goes "
            f"on. Received: time_budget={now.time_budget!r}, but it began with "
            f"{before.time_budget!r}. Give `epochs` or `steps` for another length."
        )
    changed = {
        name: value
        for name, value in vars(now).items()
        if value not in (getattr(before, name), getattr(run, name))
    }
    for name, value in sorted(changed.items()):
        if name not in _FREE_ON_RESUME:
            raise InvalidValueError(
                f"A run that goes on keeps its configuration. Received: {name}="
                f"{value!r}, but it began with {getattr(before, name)!r}. These may "
                f"change: {', '.join(sorted(_FREE_ON_RESUME))}"
            )
    names = {n for n in _FREE_ON_RESUME if getattr(now, n) != getattr(before, n)}
    if names & set(LENGTHS):
        names |= set(LENGTHS)
    changes = {name: getattr(now, name) for name in names}
    return before.replace(**changes), run.replace(**changes)


def configured(
    configuration, hparams, fields, pipeline_config=None, *, ignore_unknown=False
):
    """The configuration of a new run, from all that says something of it."""
    if configuration is None:
        configuration = RunConfiguration()
    elif isinstance(configuration, (str, os.PathLike)):
        configuration = RunConfiguration.read(configuration)
    elif not isinstance(configuration, RunConfiguration):
        raise InvalidTypeError(
            "`configuration` must be a `RunConfiguration`, or the path of its YAML "
            f"file. Received: {configuration!r}"
        )
    if hparams is not None and pipeline_config is not None:
        raise InvalidValueError(
            "`hparams` is google/automl's, `pipeline_config` the Object Detection "
            "API's: give one of the two."
        )
    if pipeline_config is not None:
        read = extra("tfod.pipeline_config:read_pipeline_config")(pipeline_config)
        if not ignore_unknown:
            refuse_undone(f"'{os.fspath(pipeline_config)}'", read.undone)
        title = f"No place here, or another one, of '{os.fspath(pipeline_config)}':"
        print("\n  ".join([title, *read.notes]))
        theirs = read.fields
        if "freeze" not in fields:
            theirs = theirs | extra("tfod.checkpoint:freezing_of")(read)
        _check_start(pipeline_config, theirs, fields)
        if fields.get("weights", theirs["weights"]) in (None, "auto"):
            theirs = {n: v for n, v in theirs.items() if n != "checkpoint_type"}
        fields = _merged(theirs, fields)
    if hparams is not None:
        batch_size = fields.get("batch_size", configuration.batch_size)
        known = REFERENCE_BATCH_SIZE if batch_size == "auto" else batch_size
        read = extra("hparams:read_hparams")(hparams, batch_size=known)
        if not ignore_unknown:
            refuse_undone("`hparams`", read.undone)
        print("\n".join(["google/automl's hyper-parameters:", *read.notes]))
        fields = _merged(read.fields, fields)
    return configuration.replace(**_merged(configuration.to_dict(), fields))


def _check_start(path, theirs, fields):
    """Raises an error if the file names weights that are not there, and no one else."""
    start = theirs["weights"]
    if start is None or "weights" in fields or is_remote(start):
        return
    if not (os.path.exists(start) or os.path.exists(f"{start}.index")):
        raise FileNotFoundError(
            f"'{os.fspath(path)}': there is no `fine_tune_checkpoint` at '{start}'. "
            "Name the one to start from with `weights` (--weights), 'none' for random "
            "weights."
        )


def _merged(fields, more):
    """Fields, of which those in `more` count; in mappings, name by name."""
    if any(more.get(name) is not None for name in LENGTHS):
        fields = {**fields, **dict.fromkeys(set(LENGTHS) & set(fields))}
    both = {name: value for name, value in fields.items() if name in more}
    inner = {
        name: {**value, **more[name]}
        for name, value in both.items()
        if name in _MAPPINGS and isinstance(more[name], Mapping)
    }
    return {**fields, **more, **inner}
