"""One run, from its configuration and data to the best checkpoint and its numbers."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from PIL import Image

from effdet_keras import visualize
from effdet_keras._internal.extras import extra
from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.processes import is_first_process
from effdet_keras._internal.whole_files import is_remote, replacing
from effdet_keras.callbacks.tensorboard import TensorBoardWriter
from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.data.record import Record
from effdet_keras.detect.evaluate import analyzed_images, segmentation_text
from effdet_keras.errors import MissingPackageError
from effdet_keras.evaluate.evaluation import Evaluation, analyze_results
from effdet_keras.images import EncodedImage
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.parts import (
    Splits,
    callbacks_of_run,
    load_to_resume,
    make_model,
    training_batches,
    with_teacher,
    writes_tensorboard,
)
from effdet_keras.runs.run_folder import CHECKPOINTS, RunFolder, copy_from_first
from effdet_keras.runs.run_log import (
    RunLog,
    TextLog,
    describe_environment,
    environment_facts,
    history_of,
)
from effdet_keras.train import auto_recipe
from effdet_keras.train.resume import place_in
from effdet_keras.weights.archive import checkpoint_file, read_archive_info
from effdet_keras.weights.checkpoint_files import BEST_FILE
from effdet_keras.weights.pretrained import (
    checkpoint_to_resume,
    going_on_from_another,
    set_aside_damaged,
)

_SEGMENTED = 6  # images whose class maps a report shows


def train(
    configuration: RunConfiguration,
    splits: Splits,
    folder: RunFolder,
    text: TextLog,
    *,
    started: float,
    resume: bool = False,
    requested: RunConfiguration | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> FineTuned:
    """Trains, keeps the best checkpoint, and evaluates it; `folder` is this run's."""
    if configuration.one_batch:
        splits = splits.one_batch(configuration.batch_size)
    described = describe_data(splits.by_role())
    checkpoint, damages = None, []
    if resume:
        checkpoint, damages = checkpoint_to_resume(folder.archive)
    place = None if checkpoint is None else place_in(read_archive_info(checkpoint))
    if damages:
        print(going_on_from_another(checkpoint, damages))
    if place is not None:
        folder.check_same_data(described)
    has_length = place is not None or configuration.one_batch
    if configuration.time_budget is not None and not has_length:
        choose_length = extra("time_budget:choose_length")
        configuration = choose_length(configuration, splits, started=started)
    keras.utils.set_random_seed(configuration.seed)
    if configuration.deterministic:
        _compute_the_same_bits()
    if place is not None:
        model = load_to_resume(configuration, checkpoint)
        print(f"The run goes on after {place}.")
    else:
        model = make_model(configuration, splits.train)
    batches = training_batches(model, configuration, splits.train)
    with with_teacher(model, configuration, batches) as batches:
        folder.begin(configuration, requested=requested, keeps_files=resume)
        text.keep_in(folder.text)
        if resume and is_first_process():
            set_aside_damaged(folder.archive)  # also where nothing is left to train
        environment = {"seed": configuration.seed, **describe_environment()}
        folder.write_json("environment", environment)
        folder.write_json("data", {"path": configuration.data, **described})
        log = RunLog(folder.log, place)
        try:
            _fit(model, batches, configuration, splits, folder, log, place, callbacks)
        finally:
            _draw_curves(log, folder)
    copy_from_first(folder, CHECKPOINTS)  # what is the best, alike in all processes
    if configuration.evaluate_every:
        result = _judge(configuration, splits, folder, log)
    else:
        result = _not_judged(folder, log)
    folder.finish(len(log.rows))
    return result


def _compute_the_same_bits():
    """Sets TensorFlow so; the other backends do on a processor."""
    if keras.backend.backend() == "tensorflow":
        tf.config.experimental.enable_op_determinism()


def _fit(model, batches, configuration, splits, folder, log, place, more):
    if configuration.steps is not None and configuration.steps < len(batches):
        batches = batches.take(configuration.steps)
    epochs = _num_epochs(configuration, splits.train, len(batches))
    done = 0 if place is None else place.epoch
    if done >= epochs or (place is not None and place.is_stopped):
        print(f"All is done: {count_of(done, 'epoch')}.")
        return
    if place is None:
        draw_first_batch(model, configuration, splits.train, folder)
    print(splits.train.summary())
    delay = (configuration.quantization or {}).get("delay", 0)
    if delay >= epochs * len(batches):
        print(
            f"`quantize_aware` has a delay of {delay:,} steps, and the training "
            f"{epochs * len(batches):,}: no step rounds, and an int8 file will need "
            "`calibration`. Set a smaller `quantize_aware.delay`."
        )
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
        callbacks=callbacks_of_run(configuration, splits, folder, log, more),
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
    if log.rows:
        history = history_of(log.rows)
        draw_chart(folder.curves, functools.partial(visualize.plot_history, history))


def _not_judged(folder, log):
    """What a run that does not evaluate comes to: mostly the last checkpoint."""
    which, epoch, model = _checkpoint(folder)
    print(f"The {which} checkpoint, of epoch {epoch}, was not evaluated.")
    return FineTuned(model, {}, None, None, history_of(log.rows), folder.path)


def _checkpoint(folder):
    """Which checkpoint counts, "best" or "last", its epoch and its model."""
    path = checkpoint_file(folder.archive, BEST_FILE)
    which = "best" if path.name == BEST_FILE else "last"
    return which, read_archive_info(path)["epoch"], EfficientDet.from_archive(path)


def _judge(configuration, splits, folder, log):
    """Evaluates the best checkpoint on images on which nothing was trained."""
    which, epoch, model = _checkpoint(folder)
    name, dataset = splits.final
    print(
        f"The {which} checkpoint, of epoch {epoch}, on the {len(dataset)} images of "
        f"'{name}':"
    )
    # A bar counts the images, on terminals alone: it is made of carriage returns.
    has_bar = sys.stdout.isatty() and configuration.verbose != 0
    results, found = analyzed_images(
        model, dataset, batch_size=configuration.batch_size, verbose=has_bar
    )
    of_pixels = found.segmentation
    evaluation = analyze_results(results, dataset.class_names)
    print(evaluation)
    if of_pixels:
        print(segmentation_text(of_pixels))
    numbers = {**evaluation.coco, **of_pixels}
    folder.write_json("numbers", {"split": name, "epoch": epoch, **numbers})
    history = history_of(log.rows)
    judged = FineTuned(model, numbers, name, evaluation, history, folder.path)
    if not is_first_process():
        return judged
    report = extra("analysis.report:EvaluationReport")(
        f"{model.name} on {configuration.data or 'data in memory'}, {name}",
        evaluation,
        results,
        dataset,
        facts=_facts(configuration, splits, log, model, f"{which}, of epoch {epoch}"),
        history=history,
        configuration=folder.configuration_text(),
        segmentation=of_pixels or None,
        class_maps=_class_maps(model, dataset) if of_pixels else {},
    )
    report.save(folder.report)
    return judged


def _class_maps(model, dataset):
    """The class maps of some images, spread over a dataset, by image id."""
    count = min(_SEGMENTED, len(dataset))
    places = [i * len(dataset) // count for i in range(count)]
    found = model.detect([dataset[i]["image"] for i in places], verbose=0)
    ids = [dataset.image_ids[i] for i in places]
    return {image_id: one.class_map for image_id, one in zip(ids, found)}


def _facts_of_teaching(configuration):
    facts = {"teacher": configuration.teacher}
    facts["quantization-aware training"] = configuration.quantize_aware or None
    return {name: str(value) for name, value in facts.items() if value is not None}


def _facts(configuration, splits, log, model, checkpoint):
    """What the report says of the run beside its numbers."""
    name, dataset = splits.final
    height, width = model.config.image_size
    minutes = sum(row["seconds"] for row in log.rows) / 60
    return {
        "model": f"{model.name}, {model.count_params():,} parameters",
        "network's input": f"{height} x {width}",
        "weights at the start": configuration.weights or "random",
        **_facts_of_teaching(configuration),
        "checkpoint": checkpoint,
        "trained on": f"{len(splits.train):,} images",
        "evaluated on": f"{len(dataset):,} images of '{name}'",
        "training": f"{minutes:.1f} minutes for {count_of(len(log.rows), 'epoch')}",
        **environment_facts(describe_environment()),
    }


# --- `FineTuned`: what a run came to.


@dataclasses.dataclass(frozen=True)
class FineTuned:
    """What `fine_tune` returns.

    Attributes:
        model: `EfficientDet`, the best checkpoint; the last one of a run with
            `evaluate_every=0`.
        numbers: dict from name to float, COCO's numbers of `model` on `split`; empty
            where the run does not evaluate.
        split: string, the split that it was evaluated on: by its name in the data for
            the test split, or else "validation", by which the checkpoint was chosen;
            None where the run does not evaluate.
        evaluation: `Evaluation`, all that was found out on that split; `numbers` is
            its `coco`. None where the run does not evaluate.
        history: dict from name to a list of floats, one per epoch, NaN where an epoch
            has no such number. `ek.visualize.plot_history` draws it.
        folder: `pathlib.Path` of the run; None where no folder was asked for.
    """

    model: EfficientDet
    numbers: dict[str, float]
    split: str | None
    evaluation: Evaluation | None
    history: dict[str, list[float]]
    folder: pathlib.Path | None


# --- The first batch of a training as an image: what the steps really see.


def draw_first_batch(
    model: EfficientDet,
    configuration: RunConfiguration,
    dataset: DetectionDataset,
    folder: RunFolder,
) -> None:
    """Writes it to the folder of a run, and to TensorBoard; the seed makes it again."""
    batches = training_batches(model, configuration, dataset)
    images, truth = next(iter(batches.take(1)))
    truth = {name: np.asarray(truth[name]) for name in ("boxes", "labels")}
    names = model.class_names or dataset.class_names
    grid = visualize.batch_grid(images, truth, names, model.seg_class_names)
    with replacing(folder.first_batch) as partial:
        Image.fromarray(grid).save(partial, format="PNG")
    if writes_tensorboard(configuration):
        writer = TensorBoardWriter(folder.tensorboard)
        writer.images("first batch", [grid], step=0)
        writer.close()


# --- What data a run had: a digest that tells whether it is still the same.


def describe_data(datasets: Mapping[str, DetectionDataset]) -> dict[str, Any]:
    """The classes and splits of a run, each split with its digest."""
    first = next(iter(datasets.values()))
    return {
        "class_names": list(first.class_names),
        "category_ids": list(first.category_ids),
        "splits": {
            name: {
                "images": len(dataset),
                "boxes": sum(len(record.labels) for record in dataset.records),
                "sha256": fingerprint(dataset),
            }
            for name, dataset in datasets.items()
        },
    }


def fingerprint(dataset: DetectionDataset) -> str:
    """SHA-256 over classes, names of image files, their bytes' number, and boxes.

    Files of images are not read: of COCO's 118,000 that would take minutes. Of one at
    an address the name alone counts.
    """
    digest = hashlib.sha256()
    classes = [list(dataset.class_names), list(dataset.category_ids)]
    digest.update(json.dumps(classes).encode())
    for record in dataset.records:
        digest.update(_described(record))
    return digest.hexdigest()


def _described(record: Record) -> bytes:
    head = json.dumps([record.file_name, list(map(int, record.image_size))])
    arrays = (record.boxes_xywh, record.labels, record.is_crowd)
    return b"".join([head.encode(), _content(record.image), *map(_bytes, arrays)])


def _content(image) -> bytes:
    """What stands for the pixels of an image."""
    if isinstance(image, np.ndarray):
        return hashlib.sha256(_bytes(image)).digest()
    if isinstance(image, EncodedImage):
        return str(image.length).encode()
    if is_remote(image):
        return b"remote"
    try:
        return str(os.path.getsize(image)).encode()
    except OSError:  # training names the images that are not there
        return b"missing"


def _bytes(array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


# --- Charts in the folder of a run, where matplotlib is installed.


def draw_chart(path: pathlib.Path, draw: Callable[[pathlib.Path], object]) -> None:
    """Has a chart drawn into a file, or says why there is none."""
    try:
        visualize.require_matplotlib()
    except MissingPackageError as error:
        print(f"There is no {path.name}: {error}")
        return
    with replacing(path) as partial:
        draw(partial)
