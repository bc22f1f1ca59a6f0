"""`effdet-keras inspect-weights`: which model weights are of, what would be loaded."""

import argparse

from effdet_keras.cli.shared_arguments import add_raw


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    parser = commands.add_parser(
        "inspect-weights",
        help="say which model a file of weights belongs to",
        description="Reads weights of any known kind, and says which model they belong "
        "to and what would be loaded into it.",
    )
    parser.add_argument(
        "weights",
        metavar="WEIGHTS",
        help="file, folder or address of weights; or the key of published weights, "
        "such as coco, together with --model",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        default=None,
        help="the model to load them into (by default, the one that fits)",
    )
    parser.add_argument("--all", action="store_true", help="list every array")
    add_raw(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    from effdet_keras.cli.describe_source import describe_source

    print(
        describe_source(
            arguments.weights,
            arguments.model,
            averages=arguments.averages,
            list_all=arguments.all,
        )
    )
    return 0
