"""Which preset and size has the best AP after some CPU minutes of training?

    python benchmarks/preset_by_minutes.py DATA --minutes 10 30
    python benchmarks/preset_by_minutes.py DATA --models lite0:256 lite2:256

Trains each candidate by the default recipe from an ImageNet backbone, on four fifths of
`train`, for as many whole epochs as fit into the minutes. The CPU seconds of a step are
measured in an epoch before, with weights that are thrown away. The last fifth is used
for evaluation. Batches have eight images. Prints a JSON line for each training. Minutes
are those of this machine; `steps` is the number of steps.
"""

import argparse
import json
import pathlib

import keras
from default_training import cpu_seconds, new_model

import effdet_keras as ek
from effdet_keras.detect.evaluate import evaluate

BLOOD_CELLS = pathlib.Path(ek.data.__file__).parent / "blood_cells"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("data", nargs="+", help="`blood-cells`, or paths")
    add("--models", nargs="+", default=["lite0:256", "lite2:256"], metavar="NAME:SIZE")
    add("--minutes", nargs="+", type=float, default=[30])
    add("--batch-size", type=int, default=8)
    add("--seeds", nargs="+", type=int, default=[0])
    options = parser.parse_args()
    for name in options.data:
        splits = ek.data.load_splits(BLOOD_CELLS if name == "blood-cells" else name)
        train, judge = splits["train"].split(0.8, groups="image")
        for model in options.models:
            seconds_of_epoch = time_epoch(train, model, options.batch_size)
            for minutes in options.minutes:
                epochs = max(round(minutes * 60 / seconds_of_epoch), 1)
                for seed in options.seeds:
                    line = {"dataset": pathlib.Path(name).name, "model": model}
                    line |= {"minutes": minutes, "seed": seed, "epochs": epochs}
                    line |= measure(train, judge, model, seed, epochs, options)
                    print(json.dumps(line), flush=True)


def compiled(train, model, seed):
    """Returns a candidate, such as "lite0:256", compiled with the default recipe."""
    preset, size = model.split(":")
    model = new_model(train, seed, int(size), preset=f"efficientdet-{preset}")
    model.compile()
    return model


class TwoEpochs(keras.callbacks.Callback):
    """Ends a training after two epochs, and records their times."""

    def on_train_begin(self, logs=None):
        self.times = []

    def on_epoch_end(self, epoch, logs=None):
        self.times.append(cpu_seconds())
        self.model.stop_training = len(self.times) == 2


def time_epoch(train, model, batch_size):
    """Returns CPU seconds of a long training's epoch, not the first, which traces."""
    model, two = compiled(train, model, seed=0), TwoEpochs()
    options = {"batch_size": batch_size, "verbose": 0, "callbacks": [two]}
    model.fit(train, epochs=1000, **options)
    return two.times[1] - two.times[0]


def measure(train, judge, model, seed, epochs, options):
    """Trains a model once, and evaluates its moving averages."""
    before = cpu_seconds()
    model = compiled(train, model, seed)
    model.fit(train, batch_size=options.batch_size, epochs=epochs, verbose=0)
    seconds = cpu_seconds() - before
    numbers = evaluate(model, judge, verbose=False)
    return {
        "image_size": model.config.image_size,
        "steps": int(model.optimizer.iterations.numpy()),
        "AP": round(float(numbers["AP"]), 4),
        "AP50": round(float(numbers["AP50"]), 4),
        "cpu_minutes": round(seconds / 60, 2),
    }


if __name__ == "__main__":
    main()
