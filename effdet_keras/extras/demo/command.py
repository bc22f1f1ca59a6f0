"""`effdet-keras demo`."""

from __future__ import annotations

from effdet_keras._internal.optional_imports import keras


def run(
    *,
    out: str = "demo",
    epochs: int = 12,
    images: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """train a detector on a small dataset, evaluate, archive, draw

    Shows the whole way in 5 minutes on two CPU cores: it trains a detector on 205
    images of blood cells, which come with the package, evaluates it on 72 others (AP
    0.50 to 0.52, AP50 0.85 to 0.87, by the processor), saves it, and draws what it
    finds. With the extra `imagenet-lite` the training starts from
    an ImageNet backbone.

    Args:
        out (FOLDER): folder to write to
        epochs (N): epochs to train
        images (N): images to train on (all 205)
        seed (N): random seed
    """
    keras.require("`effdet-keras demo`")
    from effdet_keras.extras.demo.run_demo import run_demo

    options = {"num_train": images, "epochs": epochs, "seed": seed}
    run_demo(out, overwrite=overwrite, **options)
