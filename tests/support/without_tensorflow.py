"""A program: trainings on a dataset where TensorFlow is not installed.

    python tests/support/without_tensorflow.py FOLDER

It prints as JSON what was seen: losses and AP, and the image ids of each step.
"""

import sys

if __name__ == "__main__":  # in a process of its own, in which no import finds it
    sys.modules["tensorflow"] = None

import contextlib
import io
import json
import pathlib

import keras
import numpy as np
from support.tiny import tiny_model, values, without_stochastic_depth

import effdet_keras as ek
from effdet_keras.callbacks import CheckpointArchive, COCOEvaluation

EPOCHS, STEPS, BATCH_SIZE = 2, 2, 2  # a pass over six images ends within an epoch
SETTINGS = {"optimizer": "momentum", "learning_rate": 0.01, "ema_decay": 0.9}


def new_model(dataset):
    keras.utils.set_random_seed(0)
    model = tiny_model(class_names=dataset.class_names)
    model.postprocess = ek.Postprocess(max_detections=5)
    without_stochastic_depth(model).compile(**SETTINGS)
    return model


class Steps(keras.callbacks.Callback):
    """Collects the losses of steps."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


class EndAt(keras.callbacks.Callback):
    def __init__(self, epoch, step):
        super().__init__()
        self.end, self._epoch = (epoch, step), 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self._epoch, batch + 1) == self.end:
            raise KeyboardInterrupt


def trained_in_one_go(train, valid):
    """A training with everything: the model, the losses of its steps, the numbers."""
    model, seen = new_model(train), Steps()
    history = model.fit(
        model.batches(train, BATCH_SIZE, training=True, seed=1),
        epochs=EPOCHS,
        steps_per_epoch=STEPS,
        callbacks=[COCOEvaluation(valid, batch_size=2, verbose=False), seen],
        validation_data=model.batches(valid, 2),
        verbose=0,
    )
    return model, seen.losses, history.history


def resumed(train, folder):
    """The same training, ended within its second epoch, and resumed."""
    model, seen = new_model(train), Steps()
    checkpoints = CheckpointArchive(folder, save_every_steps=1, verbose=False)
    options = {"epochs": EPOCHS, "steps_per_epoch": STEPS, "verbose": 0}
    with contextlib.suppress(KeyboardInterrupt):
        batches = model.batches(train, BATCH_SIZE, training=True, seed=1)
        model.fit(batches, callbacks=[checkpoints, EndAt(1, 1)], **options)
    model = ek.EfficientDet.from_archive(folder / "last.keras", resume=True)
    without_stochastic_depth(model)
    batches = model.batches(train, BATCH_SIZE, training=True, seed=1)
    model.fit(batches, callbacks=[seen], **options)
    return model, seen.losses


def difference(first, second):
    pairs = zip(values(first.weights), values(second.weights), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def reports(model, train):
    """How often an unreadable image is reported, by an epoch and a validation."""
    pathlib.Path(train[0]["path"]).write_bytes(b"no image")
    with contextlib.redirect_stderr(io.StringIO()) as text:
        model.fit(
            train, batch_size=2, epochs=EPOCHS + 1, initial_epoch=EPOCHS, verbose=0
        )
        model.evaluate(train, batch_size=2, verbose=0)
    text = text.getvalue()
    return text.count("replaced by other images"), text.count("counted as empty")


def main(folder):
    folder = pathlib.Path(folder)
    train, valid = ek.data.write_shapes(
        folder / "data", num_train=6, num_valid=2, image_size=64
    )
    whole, losses, history = trained_in_one_go(train, valid)
    rest, rest_losses = resumed(train, folder / "run")
    evaluated = whole.evaluate(valid, batch_size=2, verbose=0, return_dict=True)
    seen = {
        "losses": losses,
        "rest": rest_losses,
        "difference": difference(whole, rest),
        "history": {key: list(map(float, x)) for key, x in history.items()},
        "evaluated": float(evaluated["loss"]),
        "reports": reports(whole, train),
        "backend": keras.backend.backend(),
    }
    assert sys.modules["tensorflow"] is None
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1])
