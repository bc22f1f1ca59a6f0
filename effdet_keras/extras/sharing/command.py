"""`effdet-keras share`: pushes a model to the Hugging Face Hub."""

from __future__ import annotations

import argparse

from effdet_keras._internal.optional_imports import keras

SUMMARY = "push a model to the Hugging Face Hub, with a model card"
DESCRIPTION = (
    "Uploads the best checkpoint of a run, or an archive, together with a model card "
    "that states the known facts about its data and metrics, in one commit. If the "
    "repository already has this model, the upload is a new commit."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command to its parser."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help=(
            "the model: a .keras file, the folder of a run of `train`, or a folder "
            "that CheckpointArchive wrote"
        ),
    )
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help="the repository on the hub, written as hf://owner/name",
    )
    parser.add_argument(
        "--license",
        metavar="NAME",
        help=(
            "licence of the weights as the hub spells it, such as apache-2.0 (default: "
            "the licence in the repository's model card)"
        ),
    )
    parser.add_argument(
        "--private",
        action="store_true",
        help="make the repository private if it is new",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="upload even if the repository has another model or other files",
    )


def run(
    model: str,
    address: str,
    *,
    license: str | None = None,
    private: bool = False,
    overwrite: bool = False,
) -> None:
    """Pushes a model to the Hugging Face Hub."""
    keras.require("`effdet-keras share`")
    from effdet_keras.extras.sharing.push import share_model

    options = {"license": license, "private": private or None, "overwrite": overwrite}
    url = share_model(model, address, **options)
    print(f"Pushed to {address}: commit {url}")
