"""A program: one of the processes that train a small detector on JAX.

    JAX_PROCESS_ID=0 JAX_NUM_PROCESSES=2 JAX_COORDINATOR_ADDRESS=127.0.0.1:1234 \\
        python tests/support/jax_process.py DATA RUN RESULT [DIE_BEFORE_STEP]

It trains on DATA, with an evaluation at the end of each epoch and checkpoints in RUN,
from which it goes on. What its weights and numbers are in the end goes to RESULT. It
kills itself before the step of that number.
"""

import json
import os
import pathlib
import signal
import sys

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np
from support.tiny import tiny_model

import effdet_keras as ek
from effdet_keras import distribution
from effdet_keras.distribution import jax as engine_of_jax

BATCH_SIZE, EPOCHS = 4, 2
STEPS = 5  # of an epoch
IMAGES = 5  # to evaluate: the last batch is not full


class Killer(keras.callbacks.Callback):
    """Ends the process before a step, counted from 1 over all epochs."""

    def __init__(self, step):
        super().__init__()
        self._left = step

    def on_train_batch_begin(self, batch, logs=None):
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


def main(data, run, result, die_before=None):
    jax.config.update("jax_num_cpu_devices", int(os.environ.get("DEVICES", "1")))
    engine_of_jax.HEARTBEAT_TIMEOUT = 10
    if os.environ.get("DISTRIBUTE", "jax") == "jax":
        distribution.start("jax")
    keras.utils.set_random_seed(1)
    splits = ek.data.load_splits(data)
    if pathlib.Path(run, "last.keras").exists():
        model = ek.EfficientDet.from_archive(run, resume=True)
    else:
        model = tiny_model(
            class_names=splits["train"].class_names,
            postprocess=ek.postprocess.Postprocess(max_detections=5),
        )
        sgd = keras.optimizers.SGD(0.01, momentum=0.9)
        model.compile(sgd, recipe="reference")
    evaluation = ek.callbacks.COCOEvaluation(
        splits["valid"], batch_size=2, losses=True, verbose=False
    )
    callbacks = [
        evaluation,
        ek.callbacks.CheckpointArchive(run, save_every_steps=2, verbose=False),
    ]
    if die_before:
        callbacks.insert(0, Killer(int(die_before)))
    batches = model.batches(splits["train"], BATCH_SIZE, training=True, seed=5)
    history = model.fit(batches, epochs=EPOCHS, callbacks=callbacks, verbose=2)
    numbers = {k: [float(x) for x in v] for k, v in history.history.items()}
    numbers["devices"] = len(jax.devices())
    pathlib.Path(f"{result}.json").write_text(json.dumps(numbers))
    model.averages.restore()
    arrays = [keras.ops.convert_to_numpy(v) for v in model.weights]
    np.savez(f"{result}.npz", *arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
