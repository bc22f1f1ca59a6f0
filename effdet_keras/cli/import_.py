"""`effdet-keras import`."""

import argparse

from effdet_keras.cli.shared_arguments import add_raw


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    parser = commands.add_parser(
        "import",
        help="read weights of any known kind, write them as another",
        description="Reads weights of google/automl, PyTorch effdet, Keras "
        "Applications or this package. The ending of OUT says what is written: "
        ".keras (an archive), .weights.h5, .pth or .safetensors (PyTorch effdet); any "
        "other OUT is the prefix of a TensorFlow 1 checkpoint of google/automl.",
    )
    parser.add_argument(
        "source", metavar="SOURCE", help="file, folder or address of the weights"
    )
    parser.add_argument("out", metavar="OUT", help="what to write; must not exist")
    parser.add_argument(
        "--model",
        metavar="NAME",
        default=None,
        help="the model that the weights belong to, if that is not clear",
    )
    parser.add_argument(
        "--class-names",
        metavar="NAME",
        nargs="+",
        default=None,
        help="names of the classes, in the order of the labels",
    )
    parser.add_argument(
        "--skip-mismatch",
        action="store_true",
        help="leave weights of the model random if the file has none that fit",
    )
    add_raw(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    from effdet_keras.cli.import_weights import import_weights

    import_weights(
        arguments.source,
        arguments.out,
        model_name=arguments.model,
        class_names=arguments.class_names,
        averages=arguments.averages,
        skip_mismatch=arguments.skip_mismatch,
    )
    return 0
