"""`effdet-keras share`."""

from __future__ import annotations

from effdet_keras._internal.optional_imports import keras


def run(
    model: str,
    address: str,
    *,
    license: str | None = None,
    private: bool = False,
    overwrite: bool = False,
) -> None:
    """push a model to the Hugging Face Hub, with a model card

    Uploads the best checkpoint of a run, or an archive, and a model card made of what
    is known of its data and metrics, in one commit. A repository that has this model
    already gets a new commit.

    Args:
        model (MODEL): the folder of a run, a folder of CheckpointArchive or a .keras
            file
        address (ADDRESS): hf://owner/name
        license (NAME): licence of the weights as the hub spells it, such as apache-2.0
            (by default, the one that the card there names)
        private: make a new repository a private one
        overwrite: push to a repository that has another model or other files, too
    """
    keras.require("`effdet-keras share`")
    from effdet_keras.extras.sharing.push import share_model

    options = {"license": license, "private": private or None, "overwrite": overwrite}
    url = share_model(model, address, **options)
    print(f"Pushed to {address}: commit {url}")
