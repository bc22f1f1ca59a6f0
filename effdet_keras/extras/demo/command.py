"""`effdet-keras demo`."""

from __future__ import annotations

from typing import Literal


def run(
    *,
    data: Literal["blood-cells", "shapes"] = "blood-cells",
    out: str = "demo",
    epochs: int | None = None,
    images: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """train a detector on a small dataset, evaluate, archive, draw

    Shows the whole way in 5 minutes on two CPU cores: it trains a detector on 205
    images of blood cells, which come with the package, evaluates it on 72 others, saves
    it, and draws what it finds. With the extra `imagenet-lite` the training starts from
    an ImageNet backbone.

    Args:
        data: real images of blood cells, or generated images of shapes, on which a
            smaller detector is trained from random weights
        out (FOLDER): folder to write to
        epochs (N): epochs to train (12; shapes: 4)
        images (N): images to train on (all 205; shapes: 1800)
        seed (N): random seed
    """
    from effdet_keras.extras.demo.run_demo import run_demo

    options = {"num_train": images, "epochs": epochs, "seed": seed}
    run_demo(out, data=data, overwrite=overwrite, **options)
