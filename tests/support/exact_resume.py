"""A program: a training, and one that goes on from within its second epoch, compared.

    python tests/support/exact_resume.py CASE FOLDER

It prints as JSON from where the second went on, how many variables were compared, and
the paths of those that differ in a bit.
"""

import contextlib
import json
import pathlib
import shutil
import sys

import keras
import numpy as np
from keras import ops
from support.tiny import batch, tiny_model

from effdet_keras import AdvProp
from effdet_keras.callbacks import CheckpointArchive
from effdet_keras.data import from_arrays
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.weights.archive import read_archive_info

EPOCHS, STEPS = 2, 4
PLAIN = {
    "optimizer": "momentum",
    "learning_rate": 0.01,
    "ema_decay": 0.9,
    "loss": DetectionLoss(positives_momentum=0.9),
}
CASES = {
    "eager": {"run_eagerly": True},
    "graph": {},
    "several steps": {"steps_per_execution": 2},
    "float16": {},
    "two devices": {},
    "adversarial": {"adversarial": AdvProp(epsilon=4.0, random_start=True)},
    "accumulation": {"accumulate_steps": 4, "loss": DetectionLoss()},
    "quantized": {},
    "part epochs": {},
}
# Epochs that end within a pass over the data, whose next one goes on from there.
STEPS_PER_EPOCH = {"part epochs": 3}
POSITION = (1, 2)  # epoch and step from which it goes on


class Copying(keras.callbacks.Callback):
    """Copies the checkpoint of `POSITION`: skipped steps do not count in names."""

    def __init__(self, folder):
        super().__init__()
        self._folder = folder

    def on_train_batch_end(self, batch, logs=None):
        last = self._folder / "last.keras"
        position = read_archive_info(last)["training_position"]
        if (position["epoch"], position["step"]) == POSITION:
            shutil.copy(last, self._folder / "copy.keras")


def data(model):
    images, truth = batch(2 * STEPS)
    images = images.astype("uint8")
    dataset = from_arrays(images, truth["boxes"], truth["labels"], model.class_names)
    return model.batches(dataset, 2, training=True, seed=3)


def train(model, folder, case):
    archive = CheckpointArchive(folder, None, verbose=False, save_every_steps=1)
    callbacks = [archive, Copying(folder)]
    history = model.fit(
        data(model),
        epochs=EPOCHS,
        steps_per_epoch=STEPS_PER_EPOCH.get(case),
        callbacks=callbacks,
        verbose=0,
    )
    return history.history


def values(model):
    groups = [model.variables, model.optimizer.variables, model.averages.variables]
    groups += [kept.variables for kept in model._kept_beside()]
    return {
        f"{number}/{place}/{variable.name}": np.array(ops.convert_to_numpy(variable))
        for number, group in enumerate(groups)
        for place, variable in enumerate(group)
    }


def main(case, folder):
    folder = pathlib.Path(folder)
    scope = contextlib.nullcontext
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
        if case == "two devices":
            device, cpu = tf.config.LogicalDeviceConfiguration(), "CPU"
            (physical,) = tf.config.list_physical_devices(cpu)
            tf.config.set_logical_device_configuration(physical, [device] * 2)
            scope = tf.distribute.MirroredStrategy([f"{cpu}:0", f"{cpu}:1"]).scope
    if case == "float16":
        keras.config.set_dtype_policy("mixed_float16")
    keras.utils.set_random_seed(0)
    with scope():
        model = tiny_model()
        model.compile(**{**PLAIN, **CASES[case]})
        if case == "quantized":
            model.quantize_aware(delay=3, batch_norm_steps=4, range_steps=7)
    history = train(model, folder / "whole", case)
    (folder / "rest").mkdir()
    source = folder / "whole" / "copy.keras"
    shutil.copy(source, folder / "rest" / "last.keras")
    with scope():
        rest = EfficientDet.from_archive(folder / "rest", resume=True)
    rest_history = train(rest, folder / "rest", case)
    one, other = values(model), values(rest)
    assert one.keys() == other.keys()
    different = [name for name in one if not np.array_equal(one[name], other[name])]
    different += [n for n in history if history[n][1:] != rest_history[n]]
    position = read_archive_info(source)["training_position"]
    print()
    print(
        json.dumps(
            {
                "epoch": position["epoch"],
                "step": position["step"],
                "steps": position["total_steps"],
                "compared": len(one),
                "different": different,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
