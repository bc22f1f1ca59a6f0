"""What do `balance="auto"` and class weights gain if a class has few boxes?

    python benchmarks/balance.py DATA --seeds 0 1
    python benchmarks/balance.py DATA --steps 400 --kinds none balance

The boxes of the first two classes, by name, are removed from `train` with a probability
of 0.9. The images stay, so removed objects become background. The default recipe trains
on four fifths of `train`. The last fifth, with all its boxes, is used for evaluation.
The weight of a class is the square root of the number of boxes of the most frequent
class divided by its own. Prints a JSON line for each training: AP of the rare classes
and of the others.
"""

import argparse
import dataclasses
import json
import pathlib

import numpy as np
from default_training import cpu_seconds, new_model, num_epochs

import effdet_keras as ek
from effdet_keras.evaluate.image_result import mean_of_measured
from effdet_keras.train.auto_recipe import BOX_LOSS

KINDS = ("none", "balance", "class weights", "both")
LEFT_OUT = 0.9


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("data", nargs="+")
    add("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    add("--seeds", nargs="+", type=int, default=[0])
    add("--steps", type=int, default=1400)
    add("--batch-size", type=int, default=8)
    add("--image-size", type=int, nargs=2, help="in place of the one that fits")
    options = parser.parse_args()
    for name in options.data:
        train, judge = ek.data.load(name, "train").split(0.8, groups="image")
        rare = np.argsort(train.class_names, kind="stable")[:2]
        for seed in options.seeds:
            thinned = thin(train, rare, seed)
            for kind in options.kinds:
                line = {"dataset": pathlib.Path(name).name, "kind": kind, "seed": seed}
                line |= measure(kind, thinned, judge, rare, seed, options)
                print(json.dumps(line), flush=True)


def thin(dataset, rare, seed):
    """Returns the dataset without most boxes of the rare classes."""
    random = np.random.default_rng(seed)
    records = []
    for record in dataset.records:
        is_left_out = random.random(len(record.labels)) < LEFT_OUT
        keep = ~(np.isin(record.labels, rare) & is_left_out)
        records.append(record.select(keep))
    return ek.data.DetectionDataset(records, dataset.class_names, dataset.category_ids)


def measure(kind, train, judge, rare, seed, options):
    """Trains a model once, and evaluates it."""
    counts = np.bincount(
        np.concatenate([record.labels for record in train.records]),
        minlength=train.num_classes,
    )
    model = new_model(train, seed, options.image_size)
    if kind in ("class weights", "both"):
        weights = np.sqrt(counts.max() / np.maximum(counts, 1)).round(2)
        weights = tuple(weights.tolist())
        model.compile(loss=dataclasses.replace(BOX_LOSS, class_weights=weights))
    else:
        model.compile()
    epochs = num_epochs(train, options.steps, options.batch_size)
    balance = "auto" if kind in ("balance", "both") else None
    batches = model.batches(
        train, options.batch_size, training=True, epochs=epochs, balance=balance
    )
    before = cpu_seconds()
    model.fit(batches, epochs=epochs, verbose=0)
    seconds = cpu_seconds() - before
    evaluation = ek.callbacks.COCOEvaluation(judge, verbose=False)
    numbers = evaluation.evaluate(model)
    aps = np.array([numbers[f"AP/{name}"] for name in train.class_names])
    others = np.setdiff1d(np.arange(train.num_classes), rare)
    return {
        "steps": int(model.optimizer.iterations),
        "boxes": counts.tolist(),
        "AP_of_rare": round(mean_of_measured(aps[rare]), 4),
        "AP_of_others": round(mean_of_measured(aps[others]), 4),
        "AP_of_classes": aps.round(4).tolist(),
        "cpu_minutes": round(seconds / 60, 2),
    }


if __name__ == "__main__":
    main()
