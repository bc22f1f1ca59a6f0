"""How much do trainings with other seeds differ, and does another average help?

    python benchmarks/seed_variance.py DATA blood-cells --seeds 0 1 2 3
    python benchmarks/seed_variance.py DATA --batch-size 4 --steps 600

Trains by the default recipe on four fifths of `train`; the last fifth is for
evaluation. Each training is evaluated with several weights: the moving averages that
`fit` keeps, the weights after the last step, and their means over the last steps. So
all of these come from the same trainings. Prints a JSON line for each training, and at
the end a table of mean and standard deviation over the seeds.
"""

import argparse
import json
import pathlib
import statistics

import keras
import numpy as np
from default_training import cpu_seconds, new_model, num_epochs

import effdet_keras as ek
from effdet_keras.detect.evaluate import evaluate
from effdet_keras.network.build import copied

BLOOD_CELLS = pathlib.Path(ek.data.__file__).parent / "blood_cells"
SHARES = (0.05, 0.1, 0.2, 0.4)  # fractions of the training, from its end


class LastWeights(keras.callbacks.Callback):
    """Sums the weights over the last steps of a training, for each of `SHARES`."""

    def __init__(self, num_steps):
        super().__init__()
        self.step, self.last = 0, None
        lengths = [max(round(num_steps * share), 1) for share in SHARES]
        self.first = [num_steps - length for length in lengths]
        self.sums, self.counts = [None] * len(SHARES), [0] * len(SHARES)

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        if self.step <= min(self.first):
            return
        self.last = [np.array(weight) for weight in self.model.weights]
        for k, first in enumerate(self.first):
            if self.step > first:
                old = self.sums[k] or [0.0] * len(self.last)
                self.sums[k] = [a + b for a, b in zip(old, self.last)]
                self.counts[k] += 1

    def all(self):
        """Returns the weights by their names in the table."""
        means = {
            f"mean of the last {share:.0%}": [value / count for value in values]
            for share, values, count in zip(SHARES, self.sums, self.counts)
        }
        return {"last step": self.last, **means}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("data", nargs="+", help="`blood-cells`, or paths")
    add("--seeds", nargs="+", type=int, default=[0, 1, 2, 3])
    add("--steps", type=int, default=600)
    add("--batch-size", type=int, default=4)
    add("--image-size", type=int, help="in place of the one that fits the boxes")
    options = parser.parse_args()
    lines = []
    for name in options.data:
        splits = ek.data.load_splits(BLOOD_CELLS if name == "blood-cells" else name)
        train, judge = splits["train"].split(0.8, groups="image")
        for seed in options.seeds:
            line = {"dataset": pathlib.Path(name).name, "seed": seed}
            line |= measure(train, judge, seed, options)
            print(json.dumps(line), flush=True)
            lines.append(line)
    print()
    print(table(lines))


def measure(train, judge, seed, options):
    """Trains once; returns AP on `judge` with each of the weights."""
    before = cpu_seconds()
    model = new_model(train, seed, options.image_size)
    model.compile()
    epochs = num_epochs(train, options.steps, options.batch_size)
    last = LastWeights(epochs * (len(train) // options.batch_size))
    model.fit(
        train,
        batch_size=options.batch_size,
        epochs=epochs,
        verbose=0,
        callbacks=[last],
    )
    seconds = cpu_seconds() - before
    aps = {"moving averages": evaluate(model, judge, verbose=False)["AP"]}
    other = copied(model)
    for name, values in last.all().items():
        other.set_weights(values)
        aps[name] = evaluate(other, judge, verbose=False)["AP"]
    return {
        "steps": last.step,
        "AP": {name: round(float(ap), 4) for name, ap in aps.items()},
        "cpu_minutes": round(seconds / 60, 2),
    }


def table(lines):
    """Returns mean and standard deviation over the seeds, by dataset and weights."""
    datasets = list(dict.fromkeys(line["dataset"] for line in lines))
    rows = [f"| weights | {' | '.join(datasets)} |", "|---" * (len(datasets) + 1) + "|"]
    for name in lines[0]["AP"]:
        cells = [name]
        for dataset in datasets:
            aps = [line["AP"][name] for line in lines if line["dataset"] == dataset]
            deviation = statistics.stdev(aps) if len(aps) > 1 else float("nan")
            cells.append(f"{statistics.mean(aps):.3f}, {deviation:.3f}")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
