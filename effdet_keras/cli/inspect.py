"""`effdet-keras inspect`: what is wrong with a dataset."""

import argparse

from effdet_keras.cli.shared_arguments import (
    add_dataset_format,
    add_image_size,
    add_overwrite,
)


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    parser = commands.add_parser(
        "inspect",
        help="say what is wrong with a dataset",
        description="Reads a dataset as training does, names what is wrong with it, "
        "and says how well the anchors of a model cover its boxes. The exit status is "
        "1 if there are errors, and 0 if there are none. For a file of weights, see "
        "`effdet-keras inspect-weights`.",
    )
    parser.add_argument("data", metavar="DATA", help="file or folder of the dataset")
    parser.add_argument(
        "--split",
        metavar="NAME",
        default=None,
        help="inspect only this split, such as train",
    )
    add_dataset_format(parser)
    parser.add_argument(
        "--model",
        metavar="NAME",
        default="efficientdet-d0",
        help="the model whose anchors are meant (efficientdet-d0)",
    )
    add_image_size(
        parser,
        "the network's input size: one number, or height and width (the model's own)",
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        default=None,
        help="write a report of all splits, with sample images",
    )
    parser.add_argument(
        "--augment",
        metavar="NAMES",
        nargs="?",
        const="",
        default=None,
        help="draw images as training sees them, with these augmentations, such as "
        "mosaic,blur; without a name, with flip and scale jitter alone",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        default="augmented.png",
        help="where --augment writes its image; one file per split (augmented.png)",
    )
    parser.add_argument(
        "--anchors",
        action="store_true",
        help="fit the anchors to the boxes of the training split, and say what that "
        "gains and how to use it",
    )
    parser.add_argument(
        "--no-decode",
        dest="decode",
        action="store_false",
        help="read only the headers of the images, which is faster",
    )
    add_overwrite(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    from effdet_keras.cli.inspect_data import inspect_data

    is_fit = inspect_data(
        arguments.data,
        split=arguments.split,
        format=arguments.format,
        model=arguments.model,
        image_size=arguments.image_size,
        html=arguments.html,
        augment=arguments.augment,
        out=arguments.out,
        anchors=arguments.anchors,
        decode=arguments.decode,
        overwrite=arguments.overwrite,
    )
    return 0 if is_fit else 1
