"""One run, from its configuration and data to the best checkpoint and its numbers."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence

import keras

from effdet_keras import visualize
from effdet_keras._internal.whole_files import replacing
from effdet_keras.data.summary import count_of
from effdet_keras.errors import MissingPackageError
from effdet_keras.evaluation.evaluation import analyze_results
from effdet_keras.inference.image_results import image_results
from effdet_keras.models import EfficientDet
from effdet_keras.report.evaluation_report import EvaluationReport
from effdet_keras.runs.batch_size import choose_batch_size
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.environment import describe_environment, environment_facts
from effdet_keras.runs.fine_tuned import FineTuned
from effdet_keras.runs.fingerprint import describe_data
from effdet_keras.runs.first_batch import draw_first_batch
from effdet_keras.runs.fitting import callbacks_of_run, training_batches
from effdet_keras.runs.make_model import load_to_resume, make_model
from effdet_keras.runs.run_folder import RunFolder
from effdet_keras.runs.run_log import RunLog, history_of
from effdet_keras.runs.splits import Splits
from effdet_keras.runs.text_log import TextLog
from effdet_keras.runs.time_budget import choose_length
from effdet_keras.training import auto_recipe
from effdet_keras.weights.archive import BEST_FILE, LAST_FILE, read_archive_info


def train(
    configuration: RunConfiguration,
    splits: Splits,
    folder: RunFolder,
    text: TextLog,
    *,
    resume: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> FineTuned:
    """Trains, keeps the best checkpoint, and evaluates it.

    Args:
        configuration: `RunConfiguration`.
        splits: `Splits`.
        folder: `RunFolder`, which is this process' alone. What is in it is replaced
            once the model is made.
        text: `TextLog`, which is kept there.
        resume: bool, whether to go on from the last checkpoint in the folder.
        callbacks: more callbacks of `fit`, behind those of the run.

    Returns:
        `FineTuned`.
    """
    started = time.monotonic()
    if configuration.batch_size == "auto":  # before anything is on a graphics card
        size = choose_batch_size(configuration, splits)
        configuration = configuration.replace(batch_size=size)
    if configuration.one_batch:
        splits = splits.one_batch(configuration.batch_size)
    described = describe_data(splits.by_role())
    last = folder.archive / LAST_FILE
    done = read_archive_info(last)["epoch"] if resume and last.exists() else 0
    if done:
        folder.check_same_data(described)
    has_length = done or configuration.one_batch
    if configuration.time_budget is not None and not has_length:
        configuration = choose_length(configuration, splits, started=started)
    # So that a run that goes on does not see the order of its first epochs again.
    keras.utils.set_random_seed(configuration.seed + done)
    if done:
        model = load_to_resume(configuration, folder.archive)
        print(f"The run goes on after epoch {done}.")
    else:
        model = make_model(configuration, splits.train)
    folder.begin(configuration, keeps_files=resume)
    text.keep_in(folder.text)
    environment = {"seed": configuration.seed, **describe_environment()}
    folder.write_json("environment", environment)
    folder.write_json("data", {"path": configuration.data, **described})
    log = RunLog(folder.log, done)
    try:
        _fit(model, configuration, splits, folder, log, done, callbacks)
    finally:
        _draw_curves(log, folder)
    return _judge(configuration, splits, folder, log)


def _fit(model, configuration, splits, folder, log, done, more):
    batches = training_batches(model, configuration, splits.train)
    if configuration.steps is not None and configuration.steps < len(batches):
        batches = batches.take(configuration.steps)
    epochs = _num_epochs(configuration, splits.train, len(batches))
    if done >= epochs:
        print(f"All is done: {count_of(epochs, 'epoch')}.")
        return
    if not done:
        draw_first_batch(model, configuration, splits.train, folder)
    print(splits.train.summary())
    print(
        f"Training {model.name} at {'x'.join(map(str, model.config.image_size))} with "
        f"{model.count_params():,} parameters for {count_of(epochs, 'epoch')} of "
        f"{count_of(len(batches), 'step')}. The first step takes longer ..."
    )
    model.fit(
        batches,
        epochs=epochs,
        initial_epoch=done,
        verbose=_verbose(configuration),
        callbacks=[*callbacks_of_run(configuration, splits, folder, log), *more],
    )


def _num_epochs(configuration, dataset, steps_per_epoch):
    if configuration.one_batch:
        return 1
    if configuration.epochs is not None:
        return configuration.epochs
    if configuration.steps is not None:
        return math.ceil(configuration.steps / steps_per_epoch)
    return auto_recipe.num_epochs(len(dataset), configuration.batch_size)


def _verbose(configuration):
    """Keras' progress bar, 1, is for terminals: in a file a line per epoch, 2."""
    if configuration.verbose == 1 and not sys.stdout.isatty():
        return 2
    return configuration.verbose


def _draw_curves(log, folder):
    """Draws what was trained so far, also of a run that was stopped."""
    if not log.rows:
        return
    try:
        visualize.require_matplotlib()
    except MissingPackageError as error:
        print(f"There is no {folder.curves.name}: {error}")
        return
    with replacing(folder.curves) as partial:
        visualize.plot_history(history_of(log.rows), partial)


def _judge(configuration, splits, folder, log):
    """Evaluates the best checkpoint on images on which nothing was trained."""
    has_best = (folder.archive / BEST_FILE).exists()
    checkpoint = folder.archive / (BEST_FILE if has_best else LAST_FILE)
    epoch = read_archive_info(checkpoint)["epoch"]
    model = EfficientDet.from_archive(checkpoint)
    name, dataset = splits.final
    which = "best" if has_best else "last"
    print(
        f"The {which} checkpoint, of epoch {epoch}, on the {len(dataset)} images of "
        f"'{name}':"
    )
    # A bar counts the images, on terminals alone: it is made of carriage returns.
    has_bar = sys.stdout.isatty() and configuration.verbose != 0
    results = image_results(
        model, dataset, batch_size=configuration.batch_size, verbose=has_bar
    )
    evaluation = analyze_results(results, dataset.class_names)
    print(evaluation)
    folder.write_json("numbers", {"split": name, "epoch": epoch, **evaluation.coco})
    history = history_of(log.rows)
    report = EvaluationReport(
        f"{model.name} on {configuration.data or 'data in memory'}, {name}",
        evaluation,
        results,
        dataset,
        facts=_facts(configuration, splits, log, model, f"{which}, of epoch {epoch}"),
        history=history,
        configuration=folder.configuration_text(),
    )
    report.save(folder.report)
    return FineTuned(model, evaluation.coco, name, evaluation, history, folder.path)


def _facts(configuration, splits, log, model, checkpoint):
    """What the report says of the run beside its numbers."""
    name, dataset = splits.final
    height, width = model.config.image_size
    minutes = sum(row["seconds"] for row in log.rows) / 60
    return {
        "model": f"{model.name}, {model.count_params():,} parameters",
        "network's input": f"{height} x {width}",
        "weights at the start": configuration.weights or "random",
        "checkpoint": checkpoint,
        "trained on": f"{len(splits.train):,} images",
        "evaluated on": f"{len(dataset):,} images of '{name}'",
        "training": f"{minutes:.1f} minutes for {count_of(len(log.rows), 'epoch')}",
        **environment_facts(describe_environment()),
    }
