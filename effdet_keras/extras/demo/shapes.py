"""The demo on generated images: a small detector, trained from random weights."""

import keras

from effdet_keras.data.shapes import write_shapes
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train.schedules import WarmupCosine

EPOCHS = 4

_NUM_TRAIN = 1800
_NUM_HELD_OUT = 100  # for each of validation and test
_IMAGE_SIZE = 128
_BATCH_SIZE = 8
_LEARNING_RATE = 3e-3


def make_data(folder, *, num_train, seed):
    """Writes images of shapes; returns the datasets `(train, valid, test)`."""
    num_train = _NUM_TRAIN if num_train is None else num_train
    print(f"Making {num_train + 2 * _NUM_HELD_OUT} images of shapes ...")
    options = {"num_valid": _NUM_HELD_OUT, "image_size": _IMAGE_SIZE}
    train, valid = write_shapes(
        folder / "data", num_train=num_train, seed=seed, **options
    )
    _, test = write_shapes(folder / "unseen", num_train=1, seed=seed + 1, **options)
    return train, valid, test


def new_model(train):
    """EfficientDet-D0 cut down for small images: three levels, nothing repeated."""
    return EfficientDet.from_preset(
        "efficientdet-d0",
        class_names=train.class_names,
        category_ids=train.category_ids,
        image_size=_IMAGE_SIZE,
        max_level=5,
        fpn_cell_repeats=1,
        head_repeats=1,
        # A thousand steps are few for statistics that forget 1 % per step.
        batch_norm_momentum=0.9,
    )


def fit(model, train, *, epochs, seed, callbacks):
    """Trains, and returns the history."""
    batches = model.batches(
        train, _BATCH_SIZE, training=True, scale_jitter=(1.0, 1.0), seed=seed
    )
    schedule = WarmupCosine(
        _LEARNING_RATE,
        total_steps=epochs * len(batches),
        warmup_steps=min(50, len(batches)),
    )
    model.compile(keras.optimizers.Adam(schedule), weight_decay=0.0)
    return model.fit(batches, epochs=epochs, callbacks=callbacks)
