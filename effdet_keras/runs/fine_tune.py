"""`fine_tune`: trains and evaluates a detector on a dataset in one call."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from PIL import Image

from effdet_keras import visualize
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.processes import is_first_process, start
from effdet_keras._internal.whole_files import atomic_write
from effdet_keras.callbacks.tensorboard import TensorBoardWriter
from effdet_keras.data.dataset import DetectionDataset, count_of, what_to_expect
from effdet_keras.data.shared_images import shared_images
from effdet_keras.detect.evaluate import analyzed_images, diagnose_low_ap, in_one_line
from effdet_keras.errors import InvalidValueError, check_argument, printable
from effdet_keras.evaluate.evaluation import Evaluation, analyze_results
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.runs.components import (
    callbacks_of_run,
    check_monitor,
    choose_splits,
    datasets_in_memory,
    load_run_to_resume,
    make_model,
    num_epochs,
    training_batches,
    with_teacher,
    writes_tensorboard,
)
from effdet_keras.runs.configuration import RunConfiguration, range_of_steps
from effdet_keras.runs.exports import export_run, try_export
from effdet_keras.runs.requested import base_configuration, build_configuration, resumed
from effdet_keras.runs.run_folder import (
    RunFolder,
    RunLog,
    copy_from_first,
    describe_data,
    describe_environment,
    draw_chart,
    environment_facts,
    file_of_best,
    files_to_resume,
    history_of,
    read_rows,
    standard_output_kept,
)
from effdet_keras.runs.training_images import trained_on_too
from effdet_keras.train.resume import position_from_info
from effdet_keras.weights.archive import checkpoint_file, read_archive_info
from effdet_keras.weights.checkpoint_files import BEST_FILE, CONFIGURATION_FILE
from effdet_keras.weights.pretrained import (
    checkpoint_to_resume,
    resumed_from_another,
    set_aside_damaged,
)


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

    It does the same as `effdet-keras train`:

    1. It reads the splits of the data.
    2. It makes a model whose classes, image size and anchors suit the data, and
       compiles it with the recipe.
    3. It trains the model, evaluates it after each epoch, and keeps the best
       checkpoint.
    4. It evaluates this checkpoint on the test split, or on the validation split if
       there is no test split.

    docs/train.md lists the files that are then in `out`, and has an example that
    trains.

    `fields` override `hparams` and `pipeline_config`, and these override
    `configuration`.

    Args:
        data: path of the dataset, a `DetectionDataset`, or a dict of datasets by split,
            as `ek.data.load_splits` returns it. None for the path in `configuration`,
            or for the files of `train_file_pattern` and `val_file_pattern`.
        model: string, a preset, or the address or folder of a TF-Hub module. None is
            the model of `configuration`, by default "efficientdet-lite0".
        out: path of the folder to write to. None writes no files: only the returned
            result is kept.
        configuration: `RunConfiguration`, or the path of its YAML file.
        hparams: hyper-parameters of google/automl: a string such as
            "learning_rate=0.04,gamma=2.0", the path of a YAML file, or a dict
            (docs/train.md).
        pipeline_config: path of the config of an EfficientDet of the TensorFlow
            Object Detection API (docs/migrating_from_tfod.md).
        ignore_unknown: bool, whether to train although `hparams` or `pipeline_config`
            has options that change the training and are not supported here. If False,
            such options raise an error that lists all of them.
        resume: bool, whether to resume the run in `out` with its configuration. Only
            its length, when it saves, what it reports and exports, `verbose` and the
            path of its data may change. If there is no run yet, and `data` or
            `configuration` is given, a new run begins.
        overwrite: bool, whether to remove an earlier run in `out`.
        callbacks: further callbacks for `fit`, such as those of W&B or MLflow.
        **fields: fields of `RunConfiguration`, such as `epochs=20`, `batch_size=8`,
            `freeze="backbone"`, `seed=1`.

    Returns:
        `FineTuned`: the model, its metrics, the history and the folder.

    Raises:
        ValueError, TypeError: If a field or the data is invalid. The message says what
            is wrong and how to correct it.
        FileExistsError: If `out` has a run already, and neither `overwrite` nor
            `resume` is True, or if it has files that are not of a run.
        OSError: If data or weights do not exist, or `out` cannot be written to.
        RuntimeError: If another process uses `out`, or if a run to resume began with
            other data, or its checkpoint is gone.

    Example:
        >>> fine_tune("cells", epoch=20)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: A run has no field 'epoch'. Did you \
mean 'epochs'? It has: data, ...
    """
    if model is not None:
        fields["model"] = model
    datasets = datasets_in_memory(data)
    if data is not None and datasets is None:
        fields["data"] = os.fspath(data)
    if resume and (out is None or overwrite):
        raise InvalidValueError(
            "`resume=True` continues the run in a folder: name it with `out`, and "
            "leave `overwrite` out, which would remove it."
        )
    names_files = fields.get("train_file_pattern") is not None
    has_nothing_to_begin = data is None and configuration is None and not names_files
    if pipeline_config is not None and datasets is not None:
        # Datasets have class names of their own, which replace those of the label map.
        fields.setdefault("class_names", None)
    with contextlib.ExitStack() as stack:
        distribute = fields.get(
            "distribute", base_configuration(configuration).distribute
        )
        if resume and RunFolder(out).has_run:
            distribute = RunFolder(out).read_configuration().distribute
        if distribute is not None:
            start(distribute)  # before any computation
        keeps_folder = out is not None and is_first_process()
        folder = RunFolder(
            out if keeps_folder else stack.enter_context(tempfile.TemporaryDirectory())
        )
        copy_from_first(folder, files_to_resume(folder, resume=resume))
        text = stack.enter_context(standard_output_kept())
        resume = resume and (folder.has_run or has_nothing_to_begin)
        sources = (configuration, hparams, fields, pipeline_config)
        if resume:
            chosen = resumed(folder, *sources, ignore_unknown=ignore_unknown)
        else:
            folder.check_empty(overwrite=overwrite)
            chosen = build_configuration(*sources, ignore_unknown=ignore_unknown)
        if out is None and chosen.export is not None:
            raise InvalidValueError(
                "`export` writes to the folder of the run: name that with `out`, or "
                f"leave `export` out. Received: export={chosen.export!r}, out=None"
            )
        if not keeps_folder:  # nobody could look at these files
            chosen = chosen.replace(
                tensorboard=False,
                gradient_summary_every=None,
                input_summary_every=None,
                profile=None,
            )
        if datasets is not None and chosen.train_file_pattern is not None:
            raise InvalidValueError(
                "`data` is in memory, and `train_file_pattern` names files: give one "
                f"of the two. Received: {chosen.train_file_pattern!r}"
            )
        text.is_quiet = chosen.verbose == 0 or not is_first_process()
        splits = choose_splits(chosen, datasets)
        if not callbacks:  # callbacks of the caller may log more numbers
            check_monitor(chosen, splits.train.class_names)
        stack.enter_context(folder.lock())
        if not resume:  # another process may have begun a run here in the meantime
            folder.check_empty(overwrite=overwrite)
        options = {"started": time.monotonic(), "resume": resume}
        # This has to come before anything is placed on a graphics card.
        from effdet_keras.extras.batch_size import with_batch_size

        chosen = with_batch_size(chosen, splits, hparams, fields)
        result = _run_training(
            chosen, splits, folder, text, callbacks=callbacks, **options
        )
    return result if keeps_folder else dataclasses.replace(result, folder=None)


# --- One run, from its splits to the metrics of its best checkpoint.

_SEGMENTED = 6  # number of images whose class maps the report shows


def _run_training(configuration, splits, folder, text, *, started, resume, callbacks):
    """Trains a model, keeps the best checkpoint in `folder`, and evaluates it."""
    if configuration.one_batch:
        splits = splits.one_batch(configuration.batch_size)
        print(
            f"One batch: {count_of(len(splits.train), 'image')} to train on, and "
            f"{len(splits.final[1])} of '{splits.final[0]}' to evaluate on."
        )
    described = describe_data(splits.by_role())
    checkpoint, damages = None, []
    if resume:
        read_rows(folder.log)  # raises an error before anything is written
        checkpoint, damages = checkpoint_to_resume(folder.archive)
        if checkpoint is None:
            folder.check_has_checkpoint()
            print("There is no checkpoint yet: the run begins with its first epoch.")
    position = None
    if checkpoint is not None:
        position = position_from_info(read_archive_info(checkpoint))
    if damages:
        print(resumed_from_another(checkpoint, damages))
    if position is not None:
        folder.check_same_data(described)
    has_length = position is not None or configuration.one_batch
    if configuration.time_budget is not None and not has_length:
        from effdet_keras.extras.time_budget import choose_length

        configuration = choose_length(configuration, splits, started=started)
    keras.utils.set_random_seed(configuration.seed)
    # On a CPU, the other backends are deterministic without a setting.
    if configuration.deterministic and keras.backend.backend() == "tensorflow":
        tf.config.experimental.enable_op_determinism()
    if position is not None:
        model = load_run_to_resume(configuration, checkpoint)
    else:
        model = make_model(configuration, splits.train)
        if configuration.export is not None and is_first_process():
            try_export(model, configuration.export, splits.train)
    batches = training_batches(model, configuration, splits.train)
    if position is None and not configuration.one_batch:
        _check_profile(configuration, len(batches), splits)
    with (
        with_teacher(model, configuration, batches) as batches,
        folder.earlier_run_kept(text),
    ):
        folder.begin(configuration, keeps_files=resume)
        text.keep_in(folder.text)
        if resume and is_first_process():
            set_aside_damaged(folder.archive)  # even if no epoch is left to train
        environment = {"seed": configuration.seed, **describe_environment()}
        folder.write_json("environment", environment)
        folder.write_json("data", {"path": _path_of_data(configuration), **described})
        log = RunLog(folder.log, position)
        try:
            _fit(
                model,
                batches,
                configuration,
                splits,
                folder=folder,
                log=log,
                position=position,
                callbacks=callbacks,
            )
        finally:
            if log.rows:  # also if the training was interrupted
                plot = functools.partial(visualize.plot_history, history_of(log.rows))
                draw_chart(folder.curves, plot)
    copy_from_first(folder, file_of_best(folder))  # all evaluate the same file
    result = _final_evaluation(configuration, splits, folder, log)
    if configuration.export is not None and is_first_process():
        export_run(result.model, configuration.export, folder.export, splits.train)
    folder.finish(len(log.rows))
    return result


def _check_profile(configuration, steps_of_epoch, splits):
    """Raises `InvalidValueError` if the training ends before a step to profile."""
    if configuration.steps is not None:
        steps_of_epoch = min(steps_of_epoch, configuration.steps)
    steps = steps_of_epoch * num_epochs(configuration, splits.train)
    if configuration.profile is not None:
        is_right = range_of_steps(configuration.profile)[0] <= steps
        expected = f"within the {count_of(steps, 'step')} of the training"
        check_argument(is_right, "profile", configuration.profile, expected)


def _fit(model, batches, configuration, splits, *, folder, log, position, callbacks):
    """Trains for the remaining epochs, or prints that the run is complete."""
    if configuration.steps is not None and configuration.steps < len(batches):
        batches = batches.take(configuration.steps)
    epochs = num_epochs(configuration, splits.train)
    done = 0 if position is None else position.epoch
    if done >= epochs or (position is not None and position.is_stopped):
        print(f"Run is complete ({done} of {count_of(epochs, 'epoch')}).")
        return
    if position is None:
        _draw_first_batch(model, configuration, splits.train, folder)
    lines = [splits.train.summary(), *what_to_expect(splits.train)]
    print(printable("\n".join(lines)))
    print(
        f"Training {model.name} at {'x'.join(map(str, model.config.image_size))} with "
        f"{model.count_params():,} parameters for {count_of(epochs, 'epoch')} of "
        f"{count_of(len(batches), 'step')}."
    )
    if not (configuration.run_eagerly or configuration.one_batch):
        print("Compiling the training step; the first step takes 10 to 60 s.")
    # Keras' progress bar (1) needs a terminal. In a file, print a line per epoch (2).
    needs_lines = configuration.verbose == 1 and not sys.stdout.isatty()
    model.fit(
        batches,
        epochs=epochs,
        initial_epoch=done,
        verbose=2 if needs_lines else configuration.verbose,
        callbacks=callbacks_of_run(configuration, splits, folder, log, callbacks),
    )


def _final_evaluation(configuration, splits, folder, log):
    """Evaluates the best checkpoint on the test split, or on the validation split."""
    path = checkpoint_file(folder.archive, BEST_FILE)
    epoch, model = read_archive_info(path)["epoch"], EfficientDet.from_archive(path)
    which = "best" if path.name == BEST_FILE else "last"
    checkpoint = f"The {which} checkpoint, of epoch {epoch},"
    history = history_of(log.rows)
    if not configuration.evaluate_every:
        print(f"{checkpoint} was not evaluated.")
        return FineTuned(model, {}, None, None, history, folder.path)
    name, dataset = splits.final
    print(f"{checkpoint} on the {count_of(len(dataset), 'image')} of '{name}':")
    # The progress bar counts images. It uses carriage returns, so it needs a terminal.
    has_bar = sys.stdout.isatty() and configuration.verbose != 0
    options = {"batch_size": configuration.batch_size, "verbose": has_bar}
    results, found = analyzed_images(model, dataset, **options)
    of_pixels = found.segmentation
    evaluation = analyze_results(results, dataset.class_names)
    why = trained_on_too(splits.train, dataset)
    if why is not None and not configuration.one_batch:
        evaluation = dataclasses.replace(evaluation, diagnosis=why)
    elif not configuration.one_batch:
        found_out = results, evaluation.coco["AP50"], dataset.num_classes
        why = diagnose_low_ap(model, *found_out, splits.train, configuration.batch_size)
        evaluation = dataclasses.replace(evaluation, diagnosis=why)
    print(evaluation)
    if of_pixels:
        print(in_one_line(of_pixels, 3))
    numbers = {**evaluation.coco, **of_pixels}
    folder.write_json("numbers", {"split": name, "epoch": epoch, **numbers})
    judged = FineTuned(model, numbers, name, evaluation, history, folder.path)
    if not is_first_process():
        return judged
    from effdet_keras.extras.report.evaluation_report import EvaluationReport

    report = EvaluationReport(
        f"{model.name} on {_path_of_data(configuration) or 'data in memory'}, {name}",
        evaluation,
        results,
        dataset,
        facts=_facts(configuration, splits, log, model, f"{which}, of epoch {epoch}"),
        history=history,
        configuration=(folder.path / CONFIGURATION_FILE).read_text("utf-8"),
        segmentation=of_pixels or None,
        class_maps=_class_maps(model, dataset) if of_pixels else {},
    )
    report.save(folder.report)
    return judged


def _path_of_data(configuration):
    """Returns the path or pattern of a run's data; None for data in memory."""
    return configuration.data or configuration.train_file_pattern


def _class_maps(model, dataset):
    """Returns the class maps of a few evenly spaced images, by image id."""
    count = min(_SEGMENTED, len(dataset))
    places = [i * len(dataset) // count for i in range(count)]
    found = model.detect([dataset[i]["image"] for i in places], verbose=0)
    ids = [dataset.image_ids[i] for i in places]
    return {image_id: one.class_map for image_id, one in zip(ids, found)}


def _shared_images(splits):
    """Returns how many evaluated images were trained on, as text; "" for none."""
    shared = len(shared_images(splits.train.records, splits.final[1].records))
    return f", {shared:,} of which were trained on" if shared else ""


def _facts(configuration, splits, log, model, checkpoint):
    """Returns the facts about a run that the report lists beside its metrics."""
    name, dataset = splits.final
    height, width = model.config.image_size
    minutes = sum(row["seconds"] for row in log.rows) / 60
    images = count_of(len(dataset), "image")
    return {
        "model": f"{model.name}, {model.count_params():,} parameters",
        "network's input": f"{height} x {width}",
        "weights at the start": _start(configuration),
        "checkpoint": checkpoint,
        "trained on": count_of(len(splits.train), "image"),
        "evaluated on": f"{images} of '{name}'{_shared_images(splits)}",
        "training": f"{minutes:.1f} minutes for {count_of(len(log.rows), 'epoch')}",
        **environment_facts(describe_environment()),
    }


def _start(configuration):
    """Returns the initial weights of a run, as text."""
    if configuration.is_hub_module:
        return f"TF-Hub module {configuration.model}"
    return configuration.weights or "random"


# --- `FineTuned`: the result of a run.


@dataclasses.dataclass(frozen=True)
class FineTuned:
    """The result of `fine_tune`.

    Attributes:
        model: `EfficientDet`, the best checkpoint. For a run with `evaluate_every=0`,
            it is the last checkpoint, unless a loss chose the best one.
        numbers: dict from name to float, metrics of `model` on `split`: COCO's, and for
            a model with a segmentation head the mean IoU and that of each class. Empty
            if the run does not evaluate.
        split: string, the split on which `model` was evaluated. For the test split,
            this is its name in the data. Otherwise it is "validation", the split that
            also chose the checkpoint. None if the run does not evaluate.
        evaluation: `Evaluation`, the whole analysis of that split; its `coco` has
            COCO's metrics. None if the run does not evaluate.
        history: dict from name to a list of floats, one per epoch. NaN stands for an
            epoch without such a number. `ek.visualize.plot_history` draws it.
        folder: `pathlib.Path`, the folder of the run. None if no folder was given, and
            in all processes but the first.
    """

    model: EfficientDet
    numbers: dict[str, float]
    split: str | None
    evaluation: Evaluation | None
    history: dict[str, list[float]]
    folder: pathlib.Path | None


# --- An image of the first training batch: what the training step receives.


def _draw_first_batch(model, configuration, dataset, folder):
    """Draws a first batch with the run's seed, for its folder and TensorBoard."""
    batches = training_batches(model, configuration, dataset)
    images, truth = next(iter(batches.take(1)))
    truth = {name: np.asarray(truth[name]) for name in ("boxes", "labels")}
    names = model.class_names or dataset.class_names
    grid = visualize.batch_grid(images, truth, names, model.seg_class_names)
    with atomic_write(folder.first_batch) as partial:
        Image.fromarray(grid).save(partial, format="PNG")
    if writes_tensorboard(configuration):
        writer = TensorBoardWriter(folder.tensorboard)
        writer.images("first batch", [grid], step=0)
        writer.close()
