"""`effdet-keras selftest`: can this model learn this dataset, and if not, why not?"""

import argparse

from effdet_keras.cli.shared_arguments import add_dataset_format, add_image_size


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    parser = commands.add_parser(
        "selftest",
        help="say at which stage a training loses its boxes",
        description="For a training that does not learn: follows the boxes of a "
        "dataset through reading, letterbox, matching and encoding, scores what is "
        "left after each, and has the model learn four images by heart. The exit "
        "status is 1 if a stage fails. docs/selftest.md says what each stage means.",
    )
    parser.add_argument("data", metavar="DATA", help="file or folder of the dataset")
    parser.add_argument(
        "archive",
        metavar="MODEL",
        nargs="?",
        default=None,
        help="a .keras file, a run or a folder of CheckpointArchive (a new model)",
    )
    parser.add_argument(
        "--split",
        metavar="NAME",
        default=None,
        help="the split to test with (train, or else the only one)",
    )
    add_dataset_format(parser)
    parser.add_argument(
        "--model",
        metavar="NAME",
        default=None,
        help="a preset, in the place of MODEL; made as `effdet-keras train` makes it "
        "(efficientdet-lite0)",
    )
    add_image_size(
        parser,
        "the input size of --model: one number, or height and width (fitted to the "
        "boxes)",
    )
    parser.add_argument(
        "--set",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="any other field of a run, as of `effdet-keras train`, such as "
        "model_config.anchor_scale=3",
    )
    parser.add_argument(
        "--num-images",
        metavar="N",
        type=int,
        default=None,
        help="follow the boxes of so many images, drawn at random (all)",
    )
    parser.add_argument(
        "--no-training",
        dest="training",
        action="store_false",
        help="leave out the last stage, which takes minutes",
    )
    parser.add_argument(
        "--steps",
        metavar="N",
        type=int,
        default=400,
        help="steps of the last stage at most (400)",
    )
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    from effdet_keras.extras.selftest.selftest_data import selftest_data

    return 0 if selftest_data(arguments) else 1
