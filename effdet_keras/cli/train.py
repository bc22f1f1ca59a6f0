"""`effdet-keras train`: calls `fine_tune`, with flags for fields of a run."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Any

from effdet_keras._internal.optional_imports import keras
from effdet_keras._internal.processes import is_first_process
from effdet_keras.cli.arguments import (
    OneOrTwo,
    add_data,
    add_format,
    add_on_error,
    add_overwrite,
    add_reader_options,
    add_unlabelled,
    size_or_auto,
)
from effdet_keras.cli.closed_output import outliving_output
from effdet_keras.errors import InvalidValueError
from effdet_keras.export.registry import TARGETS
from effdet_keras.weights.checkpoint_files import (
    ARCHIVE_FOLDER,
    BEST_FILE,
    LAST_FILE,
)

SUMMARY = "train a detector on a dataset, evaluate it and keep the best checkpoint"
DESCRIPTION = (
    "Trains a detector on a dataset, evaluates it after each epoch and keeps the best "
    "checkpoint. At the end, evaluates this checkpoint on the test split, or on the "
    "validation split if there is no test split. The command chooses options that are "
    "not given to suit the data, and prints them. docs/train.md explains the files in "
    "FOLDER."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    add_data(parser, nargs="?")
    parser.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="folder of the run, for its configuration, log, curves and checkpoints",
    )
    add_overwrite(parser)

    # Most flags are fields of a `RunConfiguration`; `--set` sets the other fields.
    # `run` receives only the flags that were given; the configuration has the defaults.
    not_given = argparse.SUPPRESS
    model = parser.add_argument_group("model", argument_default=not_given)
    model.add_argument(
        "--model",
        metavar="NAME",
        help=(
            "a preset, or the address or folder of a TF-Hub module (default: "
            "efficientdet-lite0)"
        ),
    )
    model.add_argument(
        "--weights",
        type=_word,
        metavar="WEIGHTS",
        help=(
            "weights to start from: imagenet, coco, a file, a folder, an address, or "
            "none (default: imagenet if these weights can be loaded, otherwise none)"
        ),
    )
    model.add_argument(
        "--image-size",
        action=OneOrTwo,
        nargs="+",
        type=size_or_auto,
        metavar="PIXELS",
        help=(
            "the network's input size: one number, or height and width, or auto, which "
            "fits the size to the boxes (default: auto)"
        ),
    )
    model.add_argument(
        "--precision",
        metavar="NAME",
        help=(
            "precision of the training: float32, mixed_bfloat16 or mixed_float16 "
            "(default: float32)"
        ),
    )

    training = parser.add_argument_group("training", argument_default=not_given)
    training.add_argument(
        "--recipe",
        metavar="NAME",
        help="auto, or reference for the recipe of google/automl (default: auto)",
    )
    training.add_argument(
        "--learning-rate",
        type=float,
        metavar="RATE",
        help="the highest learning rate (default: chosen by the recipe)",
    )
    training.add_argument(
        "--freeze",
        type=_word,
        metavar="WHAT",
        help=(
            "which weights to freeze: backbone, backbone+fpn, all-but-new-classes (to "
            "add classes to the detector of --weights), a regular expression for their "
            "names, or none (default: chosen by the recipe)"
        ),
    )
    training.add_argument(
        "--quantize-aware",
        action="store_true",
        help=(
            "use quantization-aware training, for an int8 export; set its options with "
            "--set, such as quantize_aware.delay=500"
        ),
    )
    training.add_argument(
        "--teacher",
        metavar="MODEL",
        help=(
            "use knowledge distillation: MODEL is the archive of the teacher, a "
            "trained model with the same classes (default: none)"
        ),
    )
    training.add_argument(
        "--epochs",
        type=int,
        metavar="N",
        help="number of epochs (default: enough for 1,400 steps)",
    )
    training.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="number of steps of the whole training, instead of --epochs",
    )
    training.add_argument(
        "--time-budget",
        metavar="TIME",
        help=(
            "time for the whole run, such as 90s, 20m or 1.5h, instead of --epochs; "
            "the run first measures some steps and an evaluation"
        ),
    )
    training.add_argument(
        "--batch-size",
        type=size_or_auto,
        metavar="N",
        help=(
            "number of images per step, or auto, which measures the largest batch that "
            "fits into memory (default: 8)"
        ),
    )
    training.add_argument(
        "--seed", type=int, metavar="N", help="random seed (default: 0)"
    )
    training.add_argument(
        "--one-batch",
        action="store_true",
        help=(
            "train only one step on one batch, to see within a minute whether all "
            "parts work"
        ),
    )
    training.add_argument(
        "--evaluate-every",
        type=int,
        metavar="N",
        help=(
            "number of epochs from one evaluation to the next; with 0, the run does "
            "not evaluate, and `eval --follow` can do it in another process (default: "
            "1)"
        ),
    )
    training.add_argument(
        "--patience",
        type=int,
        metavar="N",
        help=(
            "end the training after N evaluations without a better AP (or value of "
            "what `--set monitor=` names); useful with a constant learning rate "
            "(default: never)"
        ),
    )
    training.add_argument(
        "--profile",
        metavar="STEPS",
        help=(
            "steps to profile for TensorBoard: one step, or the first and the last "
            "one, such as 10,20 (default: none)"
        ),
    )

    training.add_argument(
        "--export",
        choices=tuple(TARGETS),
        metavar="TARGET",
        help=(
            "export the best checkpoint for this target at the end, and the untrained "
            "model before the first epoch, so that a failure shows at once: "
            f"{', '.join(TARGETS)} (default: none)"
        ),
    )

    data = parser.add_argument_group("data", argument_default=not_given)
    data.add_argument(
        "--train-file-pattern",
        metavar="PATTERN",
        help="files to train on, instead of DATA, such as 'data/train-*.tfrecord'",
    )
    # The spelling of google/automl.
    data.add_argument("--train_file_pattern", metavar="PATTERN", help=argparse.SUPPRESS)
    data.add_argument(
        "--val-file-pattern",
        metavar="PATTERN",
        help=(
            "with --train-file-pattern: files to choose the best checkpoint by "
            "(default: a fifth of the training images is used for this)"
        ),
    )
    data.add_argument("--val_file_pattern", metavar="PATTERN", help=argparse.SUPPRESS)
    add_format(data)
    add_unlabelled(data)
    add_on_error(data)
    add_reader_options(data)
    data.add_argument(
        "--train-split", metavar="NAME", help="the split to train on (default: train)"
    )
    data.add_argument(
        "--validation-split",
        metavar="NAME",
        help=(
            "the split to choose the best checkpoint by (default: val, valid or "
            "validation, or if there is none, a fifth of the training images)"
        ),
    )
    data.add_argument(
        "--validation-fraction",
        type=float,
        metavar="SHARE",
        help=(
            "if there is no validation split: the fraction of the training images to "
            "keep for validation (default: 0.2)"
        ),
    )
    data.add_argument(
        "--split-by",
        type=str.lower,
        choices=("auto", "hash", "name", "folder", "image"),
        help=(
            "if there is no validation split: which images stay together when the "
            "training images are divided: auto for near-duplicates and recordings, "
            "hash for near-duplicates, name for images whose names differ only in a "
            "trailing number, folder for images of one folder, image to choose each "
            "image by itself (default: auto)"
        ),
    )
    data.add_argument(
        "--test-split",
        type=_word,
        metavar="NAME",
        help=(
            "the split to evaluate the best checkpoint on at the end, or none "
            "(default: test)"
        ),
    )
    data.add_argument(
        "--balance",
        type=_number_or_word,
        metavar="SHARE",
        help=(
            "train on images of rare classes more often: auto, or the share of images "
            "below which a class is rare, such as 0.3 (default: none)"
        ),
    )
    data.add_argument(
        "--augment",
        type=_names,
        metavar="NAMES",
        help=(
            "augmentations in addition to flip and scale jitter, such as mosaic,blur, "
            "or none (default: mosaic in long trainings)"
        ),
    )

    run = parser.add_argument_group("run", argument_default=not_given)
    run.add_argument(
        "--set",
        dest="settings",
        action="append",
        metavar="FIELD=VALUE",
        help=(
            "set any other field of a run, such as monitor=AP50 or "
            "model_config.max_level=5; the value is written as in YAML; may be given "
            "several times; it is an error if another flag gives the same field "
            "another value"
        ),
    )
    run.add_argument(
        "--config",
        metavar="FILE",
        help=(
            "a YAML file with fields of a run, such as the configuration.yaml of "
            "another run; flags override its values"
        ),
    )
    run.add_argument(
        "--hparams",
        metavar="TEXT",
        help=(
            "hyper-parameters of google/automl: a text such as name=value,name=value, "
            "or a YAML file"
        ),
    )
    run.add_argument(
        "--pipeline-config",
        metavar="FILE",
        help=(
            "the pipeline.config of an EfficientDet of the TensorFlow Object Detection "
            "API; the command lists options that are not supported"
        ),
    )
    run.add_argument(
        "--ignore-unknown",
        action="store_true",
        help=(
            "train even if --hparams or --pipeline-config has options that are not "
            "supported and would change the training"
        ),
    )
    run.add_argument(
        "--resume",
        action="store_true",
        help=(
            "resume the run in FOLDER with its own configuration, or start a run if "
            "there is none"
        ),
    )
    run.add_argument(
        "--find-rate",
        action="store_true",
        help=(
            "do a learning-rate range test instead of a training: try learning rates "
            "in up to 100 steps, print a suggestion, and write the curve to FOLDER"
        ),
    )
    run.add_argument(
        "--save-every-steps",
        type=int,
        metavar="N",
        help=(
            "number of steps from one checkpoint to the next within an epoch (default: "
            "checkpoints only at the end of each epoch)"
        ),
    )
    run.add_argument(
        "--save-every-minutes",
        type=float,
        metavar="M",
        help=(
            "number of minutes from one checkpoint to the next within an epoch; may be "
            "combined with --save-every-steps (default: none)"
        ),
    )
    run.add_argument(
        "--distribute",
        choices=("mirrored", "multiworker", "jax"),
        help=(
            "mirrored trains on all graphics cards of this machine, with TensorFlow; "
            "multiworker trains with the processes of a launcher, with TensorFlow; jax "
            "trains on all devices and with all processes, with JAX (default: one "
            "device)"
        ),
    )
    run.add_argument(
        "--deterministic",
        action="store_true",
        help="give bit-identical results in every run, which may be slower",
    )


def _word(text):
    """Returns a word; None for "none" and "null"."""
    return None if text in ("none", "null") else text


def _number_or_word(text):
    """Returns a number, or a word as `_word` reads it."""
    try:
        return float(text)
    except ValueError:
        return _word(text)


def _names(text):
    """Returns the names between commas; no names for "none"."""
    if _word(text) is None:
        return ()
    return tuple(name.strip() for name in text.split(",") if name.strip())


def run(
    data: str | None = None,
    *,
    out: str,
    settings: Sequence[str] = (),
    config: str | None = None,
    hparams: str | None = None,
    pipeline_config: str | None = None,
    ignore_unknown: bool = False,
    resume: bool = False,
    find_rate: bool = False,
    overwrite: bool = False,
    **fields: Any,
) -> None:
    """Trains a detector; `fields` are fields of a `RunConfiguration`."""
    keras.require("`effdet-keras train`")
    from effdet_keras.runs.configuration import parse_settings
    from effdet_keras.runs.fine_tune import fine_tune
    from effdet_keras.runs.run_folder import RunFolder

    flags: dict[str, Any] = {**fields} if data is None else {"data": data, **fields}
    given = parse_settings(settings, flags)
    files: dict[str, Any] = {"configuration": config, "hparams": hparams}
    files |= {"pipeline_config": pipeline_config, "ignore_unknown": ignore_unknown}
    if find_rate:
        if overwrite or resume:
            raise InvalidValueError(
                "--find-rate tests learning rates before a run begins, and neither "
                "replaces nor continues a run: leave --overwrite and --resume out, "
                "and give a folder without a run."
            )
        from effdet_keras.extras.rate_test import find_rate

        find_rate(out, given, **files)
        return
    options = {"out": out, "resume": resume, "overwrite": overwrite, **files}
    message = (
        "the program that read this output has ended. The training continues and "
        f"writes to '{out}'"
    )
    with outliving_output(message):
        try:
            result = fine_tune(given.pop("data", None), **options, **given)
        except KeyboardInterrupt:
            # The network may be down, so an address is not asked for its files.
            run = RunFolder(out, fetches=False)
            # A complete run is there if the new one ended before its first checkpoint.
            if run.archive.is_dir() and not run.finished.is_file():
                folder = shlex.quote(out)
                print(f"\nTo resume: effdet-keras train --resume --out {folder}")
            raise
        if is_first_process():
            _print_result(result)


def _print_result(result):
    """Prints the AP, the files in the folder, and the paths of the checkpoints."""
    if result.numbers:
        found = f"AP {result.numbers['AP']:.3f}, AP50 {result.numbers['AP50']:.3f}"
        print(f"\n{found} on '{result.split}'")
    names = sorted(path.name for path in result.folder.iterdir())
    names = [name for name in names if not name.startswith(".")]
    print(f"In {result.folder}: {', '.join(names)}")
    for name in (BEST_FILE, LAST_FILE):
        path = result.folder / ARCHIVE_FOLDER / name
        if path.exists():
            print(f"  {path.stem} checkpoint: {path}")
