"""`effdet-keras train`: `fine_tune`, with fields of a run as flags."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict, Unpack

from effdet_keras._internal.optional_imports import keras
from effdet_keras._internal.processes import is_first_process
from effdet_keras.cli.arguments import (
    DatasetFormat,
    Flag,
    ImageSizeOrAuto,
    Settings,
    size_or_auto,
)


def _word(text):
    return None if text in ("none", "null") else text


def _names(text):
    return tuple(name.strip() for name in text.split(",") if name.strip())


Word = Annotated[str | None, Flag(type=_word)]


class Fields(TypedDict, total=False):
    """The fields of a run that have flags; any other is given by `--set`."""

    model: str
    weights: Word
    image_size: ImageSizeOrAuto
    precision: str
    recipe: str
    learning_rate: float
    freeze: Word
    quantize_aware: bool
    teacher: str
    epochs: int
    steps: int
    time_budget: str
    batch_size: Annotated[int | str, Flag(type=size_or_auto)]
    seed: int
    one_batch: bool
    evaluate_every: int
    profile: str
    train_file_pattern: Annotated[str, Flag(aliases=("--train_file_pattern",))]
    val_file_pattern: Annotated[str, Flag(aliases=("--val_file_pattern",))]
    format: DatasetFormat
    train_split: str
    validation_split: str
    test_split: Word
    augment: Annotated[tuple[str, ...], Flag(type=_names)]
    save_every_steps: int
    save_every_minutes: float
    distribute: Literal["mirrored", "multiworker", "jax"]
    deterministic: bool


def run(
    data: str | None = None,
    *,
    out: str,
    settings: Settings = (),
    config: str | None = None,
    hparams: str | None = None,
    pipeline_config: str | None = None,
    ignore_unknown: bool = False,
    resume: bool = False,
    find_rate: bool = False,
    overwrite: bool = False,
    **fields: Unpack[Fields],
) -> None:
    """train a detector on a dataset, evaluate it, keep the best checkpoint

    Trains a detector on a dataset, evaluates it after each epoch, keeps the best
    checkpoint, and evaluates that on the test split, or on the validation split if
    there is no test split. What is not given is chosen from the data, and printed.
    docs/train.md says what is written to FOLDER.

    Args:
        out (FOLDER): folder of the run: configuration, log, curves, checkpoints

    model:
        model (NAME): a preset, or the address or folder of a TF-Hub module
            (efficientdet-lite0)
        weights (WEIGHTS): what to start from: imagenet, coco, a file, a folder, an
            address, or none (imagenet where it can be had, or else none)
        image_size: the network's input size: one number, height and width, or auto,
            which fits it to the boxes (auto)
        precision (NAME): float32, mixed_bfloat16 or mixed_float16 (float32)

    training:
        recipe (NAME): auto, or reference for google/automl's (auto)
        learning_rate (RATE): the highest rate (chosen by the recipe)
        freeze (WHAT): backbone, backbone+fpn, a regular expression, or none (chosen by
            the recipe)
        quantize_aware: train for an int8 file; its options by --set, such as
            quantize_aware.delay=500
        teacher (MODEL): archive of a trained model of the same classes, from which this
            one learns beside the annotations (none)
        epochs (N): epochs (enough for 1,400 steps)
        steps (N): steps of the whole training, in the place of --epochs
        time_budget (TIME): time for the whole run, such as 90s, 20m or 1.5h, in the
            place of --epochs: steps and an evaluation are measured first
        batch_size (N): images per step, or auto, which measures the largest that fits
            (8)
        seed (N): random seed (0)
        one_batch: train one step on one batch, to see in a minute whether all parts
            work
        evaluate_every (N): epochs from one evaluation to the next; 0 only trains, for
            `eval --follow` in another process to evaluate (1)
        profile (STEPS): trace a step, or a first to a last one such as 10,20: where
            their time goes (none)

    data:
        train_file_pattern (PATTERN): in the place of DATA, files to train on, such as
            'data/train-*.tfrecord'
        val_file_pattern (PATTERN): with it, files to choose the best checkpoint by (a
            fifth of the training images)
        format: the format of DATA, if it holds several; detected by default
        train_split (NAME): the split to train on (train)
        validation_split (NAME): the split to choose the best checkpoint by (val, valid
            or validation, or else a fifth of the training images)
        test_split (NAME): the split to evaluate the best checkpoint on, or none (test)
        augment (NAMES): augmentations beside flip and scale jitter, such as mosaic,blur

    run:
        settings (FIELD=VALUE): any other field of a run, such as monitor=AP50 or
            model_config.max_level=5; values as in YAML; may be given several times; a
            field that a flag sets to another value is an error
        config (FILE): a YAML file with fields of a run, such as the configuration.yaml
            of another run; flags count more
        hparams (TEXT): hyper-parameters of google/automl: name=value,... or a YAML file
        pipeline_config (FILE): the pipeline.config of an EfficientDet of the TensorFlow
            Object Detection API; what has no place here is listed
        ignore_unknown: train although --hparams or --pipeline-config asks for something
            that changes the training and is not done here
        resume: go on with the run in FOLDER, with its configuration; or begin it, where
            there is none
        find_rate: test learning rates on up to 100 steps, print one that is suggested,
            write the curve to FOLDER, and train nothing
        save_every_steps (N): steps from one checkpoint to the next within an epoch (the
            ends of epochs alone)
        save_every_minutes (M): the same in minutes; both may be given
        distribute: mirrored: on all graphics cards of this machine, TensorFlow;
            multiworker: with the processes of a launcher, TensorFlow; jax: on all
            devices and with all processes, JAX (one device)
        deterministic: compute the same bits each time, which may be slower
    """
    keras.require("`effdet-keras train`")
    from effdet_keras.runs.configuration import parse_settings
    from effdet_keras.runs.fine_tune import fine_tune
    from effdet_keras.runs.run_folder import RunFolder

    flags: dict[str, Any] = {**fields} if data is None else {"data": data, **fields}
    given = parse_settings(settings, flags)
    files: dict[str, Any] = {"configuration": config, "hparams": hparams}
    files |= {"pipeline_config": pipeline_config, "ignore_unknown": ignore_unknown}
    if find_rate:
        from effdet_keras.extras.rate_test import find_rate

        find_rate(out, given, **files)
        return
    options = {"out": out, "resume": resume, "overwrite": overwrite, **files}
    try:
        result = fine_tune(given.pop("data", None), **options, **given)
    except KeyboardInterrupt:
        if RunFolder(out).archive.is_dir():
            print(f"\nTo resume: effdet-keras train --resume --out {out}")
        raise
    if is_first_process():
        _say(result, RunFolder(out))


def _say(result, folder):
    """Prints what it came to, and where what is."""
    if result.numbers:
        found = f"AP {result.numbers['AP']:.3f}, AP50 {result.numbers['AP50']:.3f}"
        print(f"\n{found} on '{result.split}'")
    names = sorted(path.name for path in folder.path.iterdir() if path.name[0] != ".")
    print(f"In {folder.path}: {', '.join(names)}")
    for name in ("best", "last"):
        path = folder.archive / f"{name}.keras"
        if path.exists():
            print(f"  {name} checkpoint: {path}")
