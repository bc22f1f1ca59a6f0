"""For how long does training wait between two epochs, with `tf.data`'s autotuning?

Lite0 at 128x128 trains on 64 images of blood cells, in batches of 4, once with the
pipeline of `DetectionDataset.batches` and once with `tf.data`'s autotuning added to it.
Prints a JSON line for each: the seconds of the steps of all epochs but the first, the
seconds from the beginning of these epochs to their first step, and in how many epochs
that took longer than half a second.
"""

import argparse
import json
import pathlib
import time

import keras
import tensorflow as tf

import effdet_keras as ek

BLOOD_CELLS = pathlib.Path(ek.data.__file__).parent / "blood_cells"
LONG = 0.5  # seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=11)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    options = parser.parse_args()
    train = ek.data.load(BLOOD_CELLS, "train").subset(range(8 if options.quick else 64))
    for has_autotuning in (False, True):
        model = ek.EfficientDet.from_preset(
            "efficientdet-lite0", dataset=train, image_size=128, verbose=0
        )
        model.compile()
        batches = train.batches(4, image_size=128, training=True, seed=0)
        if has_autotuning:
            autotuned = tf.data.Options()
            autotuned.autotune.enabled = True
            batches = batches.with_options(autotuned)
        timer = Timer()
        epochs = 3 if options.quick else options.epochs
        model.fit(batches, epochs=epochs, verbose=0, callbacks=[timer])
        line = {
            "case": "with autotuning" if has_autotuning else "ours",
            "epochs": epochs - 1,
            "steps_seconds": round(sum(timer.steps[1:]), 1),
            "waited_seconds": round(sum(timer.waited[1:]), 1),
            "epochs_that_waited": sum(x > LONG for x in timer.waited[1:]),
        }
        print(json.dumps(line), flush=True)


class Timer(keras.callbacks.Callback):
    """Records for each epoch the seconds before its first step, and of its steps."""

    def on_train_begin(self, logs=None):
        self.waited, self.steps = [], []

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.perf_counter()

    def on_train_batch_begin(self, batch, logs=None):
        if len(self.waited) == len(self.steps):
            self._first = time.perf_counter()
            self.waited.append(self._first - self._start)

    def on_epoch_end(self, epoch, logs=None):
        self.steps.append(time.perf_counter() - self._first)


if __name__ == "__main__":
    main()
