"""`effdet-keras share`."""

import argparse


def add_parser(commands: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Adds the command and its flags."""
    parser = commands.add_parser(
        "share",
        help="push a model to the Hugging Face Hub, with a model card",
        description="Uploads the best checkpoint of a run, or an archive, and a model "
        "card made of what is known of its data and metrics, in one commit. A "
        "repository that has this model already gets a new commit.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="the folder of a run, a folder of CheckpointArchive or a .keras file",
    )
    parser.add_argument("address", metavar="ADDRESS", help="hf://owner/name")
    parser.add_argument(
        "--license",
        metavar="NAME",
        default=None,
        help="licence of the weights as the hub spells it, such as apache-2.0 (by "
        "default, the one that the card there names)",
    )
    parser.add_argument(
        "--private",
        action="store_const",
        const=True,
        default=None,
        help="make a new repository a private one",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="push to a repository that has another model or other files, too",
    )
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; returns its exit status."""
    from effdet_keras.extras.sharing.push import share_model

    url = share_model(
        arguments.model,
        arguments.address,
        license=arguments.license,
        private=arguments.private,
        overwrite=arguments.overwrite,
    )
    print(f"Pushed to {arguments.address}: commit {url}")
    return 0
