"""`effdet-keras demo`."""

import argparse

from effdet_keras.cli.shared_arguments import add_overwrite

DATASETS = ("blood-cells", "shapes")


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    parser = commands.add_parser(
        "demo",
        help="train a detector on a small dataset, evaluate, archive, draw",
        description="Shows the whole way in 5 minutes on two CPU cores: it trains a "
        "detector on 205 images of blood cells, which come with the package, evaluates "
        "it on 72 others, saves it, and draws what it finds. With the extra "
        "`imagenet-lite` the training starts from an ImageNet backbone.",
    )
    parser.add_argument(
        "--data",
        choices=DATASETS,
        default=DATASETS[0],
        help="real images of blood cells, or generated images of shapes, on which a "
        "smaller detector is trained from random weights (blood-cells)",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", default="demo", help="folder to write to (demo)"
    )
    parser.add_argument(
        "--epochs",
        metavar="N",
        type=int,
        default=None,
        help="epochs to train (12; shapes: 4)",
    )
    parser.add_argument(
        "--images",
        metavar="N",
        type=int,
        default=None,
        help="images to train on (all 205; shapes: 1800)",
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, default=0, help="random seed (0)"
    )
    add_overwrite(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    from effdet_keras.extras.demo.run_demo import run_demo

    run_demo(
        arguments.out,
        data=arguments.data,
        num_train=arguments.images,
        epochs=arguments.epochs,
        seed=arguments.seed,
        overwrite=arguments.overwrite,
    )
    return 0
