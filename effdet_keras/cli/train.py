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

SUMMARY = "train a detector on a dataset, evaluate it, keep the best checkpoint"
DESCRIPTION = (
    "Trains a detector on a dataset, evaluates it after each epoch, keeps the best "
    "checkpoint, and evaluates that on the test split, or on the validation split if "
    "there is no test split. Options that are not given are chosen from the data, "
    "and printed. docs/train.md says what is written to FOLDER."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    add_data(parser, nargs="?")
    parser.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="folder of the run: configuration, log, curves, checkpoints",
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
            "a preset, or the address or folder of a TF-Hub module (efficientdet-lite0)"
        ),
    )
    model.add_argument(
        "--weights",
        type=_word,
        metavar="WEIGHTS",
        help=(
            "weights to start from: imagenet, coco, a file, a folder, an address, or "
            "none (imagenet if these weights can be loaded, or else none)"
        ),
    )
    model.add_argument(
        "--image-size",
        action=OneOrTwo,
        nargs="+",
        type=size_or_auto,
        metavar="PIXELS",
        help=(
            "the network's input size: one number, height and width, or auto, which "
            "fits it to the boxes (auto)"
        ),
    )
    model.add_argument(
        "--precision",
        metavar="NAME",
        help="float32, mixed_bfloat16 or mixed_float16 (float32)",
    )

    training = parser.add_argument_group("training", argument_default=not_given)
    training.add_argument(
        "--recipe",
        metavar="NAME",
        help=("auto, or reference for the recipe of google/automl (auto)"),
    )
    training.add_argument(
        "--learning-rate",
        type=float,
        metavar="RATE",
        help="the highest learning rate (chosen by the recipe)",
    )
    training.add_argument(
        "--freeze",
        type=_word,
        metavar="WHAT",
        help=(
            "backbone, backbone+fpn, all-but-new-classes to add classes to the "
            "detector of --weights, a regular expression, or none (chosen by the "
            "recipe)"
        ),
    )
    training.add_argument(
        "--quantize-aware",
        action="store_true",
        help=(
            "quantization-aware training, for an int8 export; its options are set "
            "with --set, such as quantize_aware.delay=500"
        ),
    )
    training.add_argument(
        "--teacher",
        metavar="MODEL",
        help=(
            "knowledge distillation: archive of the teacher, a trained model of the "
            "same classes (none)"
        ),
    )
    training.add_argument(
        "--epochs", type=int, metavar="N", help="epochs (enough for 1,400 steps)"
    )
    training.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="steps of the whole training, instead of --epochs",
    )
    training.add_argument(
        "--time-budget",
        metavar="TIME",
        help=(
            "time for the whole run, such as 90s, 20m or 1.5h, instead of --epochs: "
            "steps and an evaluation are measured first"
        ),
    )
    training.add_argument(
        "--batch-size",
        type=size_or_auto,
        metavar="N",
        help="images per step, or auto, which measures the largest that fits (8)",
    )
    training.add_argument("--seed", type=int, metavar="N", help="random seed (0)")
    training.add_argument(
        "--one-batch",
        action="store_true",
        help="train one step on one batch, to see in a minute whether all parts work",
    )
    training.add_argument(
        "--evaluate-every",
        type=int,
        metavar="N",
        help=(
            "epochs from one evaluation to the next; 0 only trains, so that `eval "
            "--follow` can evaluate in another process (1)"
        ),
    )
    training.add_argument(
        "--patience",
        type=int,
        metavar="N",
        help=(
            "end the training after N evaluations without a better AP; for a "
            "constant learning rate (none)"
        ),
    )
    training.add_argument(
        "--profile",
        metavar="STEPS",
        help=(
            "profile a step, or steps from a first to a last one, such as 10,20, for "
            "TensorBoard (none)"
        ),
    )

    training.add_argument(
        "--export",
        choices=tuple(TARGETS),
        metavar="TARGET",
        help=(
            "export the untrained model before the first epoch, so that an export "
            "that fails is known at once, and the best checkpoint at the end "
            f"({', '.join(TARGETS)})"
        ),
    )

    data = parser.add_argument_group("data", argument_default=not_given)
    data.add_argument(
        "--train-file-pattern",
        metavar="PATTERN",
        help="instead of DATA, files to train on, such as 'data/train-*.tfrecord'",
    )
    # The spelling of google/automl.
    data.add_argument("--train_file_pattern", metavar="PATTERN", help=argparse.SUPPRESS)
    data.add_argument(
        "--val-file-pattern",
        metavar="PATTERN",
        help=(
            "with --train-file-pattern, files to choose the best checkpoint by (a "
            "fifth of the training images)"
        ),
    )
    data.add_argument("--val_file_pattern", metavar="PATTERN", help=argparse.SUPPRESS)
    add_format(data)
    add_unlabelled(data)
    add_on_error(data)
    add_reader_options(data)
    data.add_argument(
        "--train-split", metavar="NAME", help="the split to train on (train)"
    )
    data.add_argument(
        "--validation-split",
        metavar="NAME",
        help=(
            "the split to choose the best checkpoint by (val, valid or validation, "
            "or else a fifth of the training images)"
        ),
    )
    data.add_argument(
        "--validation-fraction",
        type=float,
        metavar="SHARE",
        help=(
            "without a validation split, the fraction of the training images that is "
            "kept for validation (0.2)"
        ),
    )
    data.add_argument(
        "--split-by",
        type=str.lower,
        choices=("auto", "hash", "name", "folder", "image"),
        help=(
            "without a validation split, which images are kept together when one is "
            "made: auto for near-duplicates and recordings, hash for "
            "near-duplicates, name for names that differ in a trailing number, "
            "folder, or image to choose each image by itself (auto)"
        ),
    )
    data.add_argument(
        "--test-split",
        type=_word,
        metavar="NAME",
        help="the split to evaluate the best checkpoint on, or none (test)",
    )
    data.add_argument(
        "--balance",
        type=_number_or_word,
        metavar="SHARE",
        help=(
            "train on images of rare classes more often: auto, or the share of images "
            "below which a class is rare, such as 0.3 (none)"
        ),
    )
    data.add_argument(
        "--augment",
        type=_names,
        metavar="NAMES",
        help=(
            "augmentations in addition to flip and scale jitter, such as "
            "mosaic,blur, or none (mosaics in long trainings)"
        ),
    )

    run = parser.add_argument_group("run", argument_default=not_given)
    run.add_argument(
        "--set",
        dest="settings",
        action="append",
        metavar="FIELD=VALUE",
        help=(
            "any other field of a run, such as monitor=AP50 or "
            "model_config.max_level=5; values as in YAML; may be given several "
            "times; a field that a flag sets to another value is an error"
        ),
    )
    run.add_argument(
        "--config",
        metavar="FILE",
        help=(
            "a YAML file with fields of a run, such as the configuration.yaml of "
            "another run; flags override the file"
        ),
    )
    run.add_argument(
        "--hparams",
        metavar="TEXT",
        help="hyper-parameters of google/automl: name=value,... or a YAML file",
    )
    run.add_argument(
        "--pipeline-config",
        metavar="FILE",
        help=(
            "the pipeline.config of an EfficientDet of the TensorFlow Object "
            "Detection API; unsupported options are listed"
        ),
    )
    run.add_argument(
        "--ignore-unknown",
        action="store_true",
        help=(
            "train although --hparams or --pipeline-config has options that change "
            "the training and are not supported"
        ),
    )
    run.add_argument(
        "--resume",
        action="store_true",
        help=(
            "resume the run in FOLDER with its configuration, or start it if there "
            "is none"
        ),
    )
    run.add_argument(
        "--find-rate",
        action="store_true",
        help=(
            "learning-rate range test: try learning rates in up to 100 steps, print "
            "a suggestion, write the curve to FOLDER, and train nothing"
        ),
    )
    run.add_argument(
        "--save-every-steps",
        type=int,
        metavar="N",
        help=(
            "steps from one checkpoint to the next within an epoch (none: only at "
            "the end of each epoch)"
        ),
    )
    run.add_argument(
        "--save-every-minutes",
        type=float,
        metavar="M",
        help=(
            "minutes from one checkpoint to the next within an epoch; both may be "
            "given (none)"
        ),
    )
    run.add_argument(
        "--distribute",
        choices=("mirrored", "multiworker", "jax"),
        help=(
            "mirrored: on all graphics cards of this machine, TensorFlow; "
            "multiworker: with the processes of a launcher, TensorFlow; jax: on all "
            "devices and with all processes, JAX (one device)"
        ),
    )
    run.add_argument(
        "--deterministic",
        action="store_true",
        help="bit-identical results in every run, which may be slower",
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
