"""`effdet-keras convert`."""

import argparse

from effdet_keras.cli.shared_arguments import DATASET_FORMATS, add_dataset_format


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    parser = commands.add_parser(
        "convert",
        help="write a dataset in another format",
        description="Reads a dataset in any known format and writes it to a new folder "
        "in another format: annotations and images, one split or all of them.",
    )
    parser.add_argument("data", metavar="DATA", help="file or folder of the dataset")
    parser.add_argument("out", metavar="OUT", help="folder to make; must not exist")
    parser.add_argument(
        "--to", required=True, choices=DATASET_FORMATS, help="the format to write"
    )
    add_dataset_format(parser)
    parser.add_argument(
        "--split",
        metavar="NAME",
        default=None,
        help="convert only this split, such as train",
    )
    parser.add_argument(
        "--num-shards",
        metavar="N",
        type=int,
        default=None,
        help="of tfrecord: how many files to write per split",
    )
    parser.add_argument(
        "--csv-format",
        choices=("tfod", "automl"),
        default=None,
        help="of csv: the columns of the TensorFlow Object Detection API (the "
        "default) or of Google AutoML",
    )
    parser.add_argument(
        "--skip-errors",
        action="store_true",
        help="leave out what is wrong in DATA instead of stopping",
    )
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    from effdet_keras.data import convert

    convert(
        arguments.data,
        arguments.out,
        arguments.to,
        split=arguments.split,
        format=arguments.format,
        num_shards=arguments.num_shards,
        csv_format=arguments.csv_format,
        on_error="skip" if arguments.skip_errors else "raise",
    )
    return 0
