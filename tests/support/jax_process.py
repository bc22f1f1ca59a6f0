"""A program: one of the processes that train a small detector on JAX, and may die.

    KERAS_BACKEND=jax JAX_PROCESS_ID=0 JAX_NUM_PROCESSES=2 \\
        JAX_COORDINATOR_ADDRESS=127.0.0.1:1234 \\
        python tests/support/jax_process.py RUN RESULT

It writes checkpoints to RUN, from which it goes on, and its weights to RESULT-0.npz,
RESULT-1.npz. The process VICTIM kills itself before the step DIE_BEFORE_STEP, which are
variables of the environment.
"""

import os
import pathlib
import signal
import sys

import keras
import numpy as np
from support.tiny import tiny_model
from support.trained_by_several import dataset_of

from effdet_keras import callbacks, distribution
from effdet_keras.model.efficientdet import EfficientDet

BATCH_SIZE, STEPS = 4, 5


class Killer(keras.callbacks.Callback):
    """Ends the process before a step, counted from 1."""

    def __init__(self, step):
        super().__init__()
        self._step = step

    def on_train_batch_begin(self, batch, logs=None):
        if batch + 1 == self._step:
            os.kill(os.getpid(), signal.SIGKILL)


def main(run, result):
    from effdet_keras.extras.multiprocess import jax as engine_of_jax  # needs JAX

    engine_of_jax.HEARTBEAT_TIMEOUT = 10
    index = distribution.start("jax").processes.index
    is_victim = os.environ.get("VICTIM") == str(index)
    keras.utils.set_random_seed(1)
    if pathlib.Path(run, "last.keras").exists():
        model = EfficientDet.from_archive(run, resume=True)
    else:
        model = tiny_model()
        model.compile("momentum", learning_rate=0.01, ema_decay=0.9)
    step = int(os.environ.get("DIE_BEFORE_STEP", "0"))
    train = dataset_of(STEPS * BATCH_SIZE, seed=0)
    archive = callbacks.CheckpointArchive(run, monitor=None, save_every_steps=2)
    model.fit(
        model.batches(train, BATCH_SIZE, training=True, seed=5),
        epochs=1,
        callbacks=[Killer(step if is_victim else 0), archive],
    )
    model.averages.restore()
    arrays = [keras.ops.convert_to_numpy(v) for v in model.weights]
    np.savez(f"{result}-{index}.npz", *arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
