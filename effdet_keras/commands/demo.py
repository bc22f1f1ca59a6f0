"""`effdet-keras demo`."""

import argparse


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    parser = commands.add_parser(
        "demo",
        help="make a small dataset, train on it, evaluate, archive, draw",
        description="Shows the whole way on generated images of shapes, in 5 minutes: "
        "it makes a dataset, trains a detector on it, evaluates the detector, saves "
        "it, and draws what it finds.",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", default="demo", help="folder to write to (demo)"
    )
    parser.add_argument(
        "--epochs", metavar="N", type=int, default=None, help="epochs to train (4)"
    )
    parser.add_argument(
        "--images",
        metavar="N",
        type=int,
        default=None,
        help="images to train on (1800)",
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, default=0, help="random seed (0)"
    )
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    from effdet_keras.commands.run_demo import run_demo

    options = {"epochs": arguments.epochs, "num_train": arguments.images}
    given = {name: value for name, value in options.items() if value is not None}
    run_demo(arguments.out, seed=arguments.seed, **given)
    return 0
