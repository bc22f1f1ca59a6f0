"""`effdet-keras train`."""

import argparse

from effdet_keras.cli.shared_arguments import (
    DATASET_FORMATS,
    add_image_size,
    add_overwrite,
    size_or_auto,
)

# The flags that are fields of a run by themselves; any other is given by `--set`.
FIELDS = (
    *("data", "format", "train_split", "validation_split", "test_split"),
    *("augment", "model", "weights", "image_size", "precision"),
    *("recipe", "learning_rate", "freeze", "epochs", "steps", "time_budget"),
    *("batch_size", "seed", "one_batch", "evaluate_every", "profile"),
    *("distribute", "deterministic", "save_every_steps", "save_every_minutes"),
    *("quantize_aware", "teacher"),
)


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    parser = commands.add_parser(
        "train",
        help="train a detector on a dataset, evaluate it, keep the best checkpoint",
        description="Trains a detector on a dataset, evaluates it after each epoch, "
        "keeps the best checkpoint, and evaluates that on the test split, or where "
        "there is none on the validation split. What is not given is chosen from the "
        "data, and printed. docs/train.md says what lands in FOLDER.",
        argument_default=argparse.SUPPRESS,  # what is not given is no field
    )
    parser.add_argument(
        "data", metavar="DATA", nargs="?", help="file or folder of the dataset"
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        required=True,
        help="folder of the run: configuration, log, curves, checkpoints",
    )
    _add_model(parser)
    _add_training(parser)
    _add_data(parser)
    _add_run(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    from effdet_keras.cli.run_train import run_train

    given = vars(arguments)
    run_train(
        arguments.out,
        fields={name: given[name] for name in FIELDS if name in given},
        settings=arguments.set,
        configuration=arguments.config,
        hparams=arguments.hparams,
        pipeline_config=arguments.pipeline_config,
        ignore_unknown=arguments.ignore_unknown,
        resume=arguments.resume,
        overwrite=arguments.overwrite,
        find_rate=arguments.find_rate,
    )
    return 0


def _add_model(parser):
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        metavar="NAME",
        help="a preset, or the address or folder of a TF-Hub module "
        "(efficientdet-lite0)",
    )
    group.add_argument(
        "--weights",
        metavar="WEIGHTS",
        type=_word,
        help="what to start from: imagenet, coco, a file, a folder, an address, or "
        "none (imagenet where it can be had, or else none)",
    )
    add_image_size(
        group,
        "the network's input size: one number, height and width, or auto, which fits "
        "it to the boxes (auto)",
        may_be_auto=True,
        default=argparse.SUPPRESS,
    )
    group.add_argument(
        "--precision",
        metavar="NAME",
        help="float32, mixed_bfloat16 or mixed_float16 (float32)",
    )


def _add_training(parser):
    group = parser.add_argument_group("training")
    group.add_argument(
        "--recipe", metavar="NAME", help="auto, or reference for google/automl's (auto)"
    )
    group.add_argument(
        "--learning-rate",
        metavar="RATE",
        type=float,
        help="the highest rate (chosen by the recipe)",
    )
    group.add_argument(
        "--freeze",
        metavar="WHAT",
        type=_word,
        help="backbone, backbone+fpn, a regular expression, or none (chosen by the "
        "recipe)",
    )
    group.add_argument(
        "--quantize-aware",
        action="store_true",
        help="train for an int8 file; its options by --set, such as "
        "quantize_aware.delay=500",
    )
    group.add_argument(
        "--teacher",
        metavar="MODEL",
        help="archive of a trained model of the same classes, from which this one "
        "learns beside the annotations (none)",
    )
    group.add_argument(
        "--epochs", metavar="N", type=int, help="epochs (enough for 1,000 steps)"
    )
    group.add_argument(
        "--steps",
        metavar="N",
        type=int,
        help="steps of the whole training, in the place of --epochs",
    )
    group.add_argument(
        "--time-budget",
        metavar="TIME",
        help="time for the whole run, such as 90s, 20m or 1.5h, in the place of "
        "--epochs: steps and an evaluation are measured first",
    )
    group.add_argument(
        "--batch-size",
        metavar="N",
        type=size_or_auto,
        help="images per step, or auto, which measures the largest that fits (8)",
    )
    group.add_argument("--seed", metavar="N", type=int, help="random seed (0)")
    group.add_argument(
        "--one-batch",
        action="store_true",
        help="train one step on one batch, to see in a minute whether all parts work",
    )
    group.add_argument(
        "--evaluate-every",
        metavar="N",
        type=int,
        help="epochs from one evaluation to the next; 0 only trains, for `eval "
        "--follow` in another process to evaluate (1)",
    )
    group.add_argument(
        "--profile",
        metavar="STEPS",
        help="trace a step, or a first to a last one such as 10,20: where their time "
        "goes (none)",
    )


def _add_data(parser):
    group = parser.add_argument_group("data")
    group.add_argument(
        "--format",
        choices=DATASET_FORMATS,
        help="the format of DATA, if it holds several; found out by default",
    )
    group.add_argument(
        "--train-split", metavar="NAME", help="the split to train on (train)"
    )
    group.add_argument(
        "--validation-split",
        metavar="NAME",
        help="the split to choose the best checkpoint by (val, valid or validation, or "
        "else a fifth of the training images)",
    )
    group.add_argument(
        "--test-split",
        metavar="NAME",
        type=_word,
        help="the split to evaluate the best checkpoint on, or none (test)",
    )
    group.add_argument(
        "--augment",
        metavar="NAMES",
        type=_names,
        help="augmentations beside flip and scale jitter, such as mosaic,blur",
    )


def _add_run(parser):
    group = parser.add_argument_group("run")
    group.add_argument(
        "--set",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="any other field of a run, such as monitor=AP50 or "
        "model_config.max_level=5; values as in YAML; may be given several times",
    )
    group.add_argument(
        "--config",
        metavar="FILE",
        default=None,
        help="a YAML file with fields of a run, such as the configuration.yaml of "
        "another run; flags count more",
    )
    group.add_argument(
        "--hparams",
        metavar="TEXT",
        default=None,
        help="hyper-parameters of google/automl: name=value,... or a YAML file",
    )
    group.add_argument(
        "--pipeline-config",
        metavar="FILE",
        default=None,
        help="the pipeline.config of an EfficientDet of the TensorFlow Object "
        "Detection API; what has no place here is listed",
    )
    group.add_argument(
        "--ignore-unknown",
        action="store_true",
        default=False,
        help="train although --hparams or --pipeline-config asks for something that "
        "changes the training and is not done here",
    )
    group.add_argument(
        "--resume",
        action="store_true",
        default=False,
        help="go on with the run in FOLDER, with its configuration; or begin it, where "
        "there is none",
    )
    group.add_argument(
        "--find-rate",
        action="store_true",
        default=False,
        help="test learning rates on up to 100 steps, print one that is suggested, "
        "write the curve to FOLDER, and train nothing",
    )
    group.add_argument(
        "--save-every-steps",
        metavar="N",
        type=int,
        help="steps from one checkpoint to the next within an epoch (the ends of "
        "epochs alone)",
    )
    group.add_argument(
        "--save-every-minutes",
        metavar="M",
        type=float,
        help="the same in minutes; both may be given",
    )
    group.add_argument(
        "--distribute",
        metavar="HOW",
        choices=("mirrored", "multiworker", "jax"),
        help="mirrored: on all graphics cards of this machine, TensorFlow; "
        "multiworker: with the processes of a launcher, TensorFlow; jax: on all "
        "devices and with all processes, JAX (one device)",
    )
    group.add_argument(
        "--deterministic",
        action="store_true",
        help="compute the same bits each time, which may be slower",
    )
    parser.set_defaults(overwrite=False)
    add_overwrite(parser)


def _word(text):
    return None if text in ("none", "null") else text


def _names(text):
    return tuple(name.strip() for name in text.split(",") if name.strip())
