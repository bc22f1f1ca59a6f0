"""What is one setting of a training worth: statistics, matching, anchors, batches?

    python benchmarks/ablation.py matching --seeds 0 1 2
    python benchmarks/ablation.py statistics --steps 51 204 1020
    python benchmarks/ablation.py anchors --data BCCD_Dataset/BCCD --judge test

Lite0 is trained on the split `train` of the blood cells that come with the package,
from an ImageNet backbone, by the default recipe. The cases of a group differ from this
as `GROUPS` says. The weights after the last step are evaluated on the split `--judge`.
Prints a JSON line for each case, number of steps and seed. benchmarks/RESULTS.md has
the results.
"""

import argparse
import json
import pathlib
import time

import keras
import numpy as np

import effdet_keras as ek

BLOOD_CELLS = pathlib.Path(ek.data.__file__).parent / "blood_cells"
BY_HAND = {"max_level": 5, "anchor_scale": 2.0}  # the smallest anchor: 16 pixels
REFERENCE = ek.matching.IoUMatching()
HUBER = ek.DetectionLoss()
UPPER = "efficientnet-.*/(stem|blocks_[0-4]/)"


def boxes_by(kind, weight):
    return ek.DetectionLoss(iou_loss_type=kind, iou_loss_weight=weight)


# The cases of each group, and how each case differs from the default: arguments of
# `compile`, of the model (`model`), and of `fit` (`batch_size`).
GROUPS = {
    "matching": {
        "the recipe": {},
        "reference's matching and loss": {"matching": REFERENCE, "loss": HUBER},
        "reference's matching, Huber and CIoU": {"matching": REFERENCE},
        "ATSS, 9 places, Huber": {"loss": HUBER},
        "ATSS, 15 places, Huber": {
            "matching": ek.matching.ATSSMatching(top_k=15),
            "loss": HUBER,
        },
        "ATSS, Huber and CIoU of weight 10": {"loss": boxes_by("ciou", 10.0)},
    },
    "statistics": {"warm-up": {}, "momentum 0.99": {"batch_norm_warmup": False}},
    "batches": {
        f"batches of {size}, {name}": {"batch_size": size, **settings}
        for size in (1, 2)
        for name, settings in (
            ("warm-up", {}),
            ("momentum 0.99", {"batch_norm_warmup": False}),
        )
    },
    "accumulation": {
        f"batches of 1, 4 for each update, {name}": {
            "batch_size": 1,
            "optimizer": "adamw",
            "accumulate_steps": 4,
            "learning_rate": 5e-3,
            **settings,
        }
        for name, settings in (
            ("warm-up", {}),
            ("momentum 0.99", {"batch_norm_warmup": False}),
        )
    },
    "anchors": {
        "by hand": {},
        "auto": {"model": {"anchors": "auto"}},
        "of the preset": {"model": {}},
        "of the preset, scale 2.0": {"model": {"anchor_scale": 2.0}},
        "of the preset, scale 2.5": {"model": {"anchor_scale": 2.5}},
    },
    "averages": {"none": {"ema_decay": None}, "0.98": {"ema_decay": 0.98}},
    "freezing": {
        "all but stem and blocks 0 to 4 train": {"freeze": UPPER},
        "everything trains": {"freeze": None},
    },
}
# Groups that are also evaluated with re-estimated statistics of batch normalization.
REESTIMATED = ("statistics", "batches", "accumulation")


def main():
    options = read_options()
    splits = ek.data.load_splits(options.data)
    train, judge = splits["train"], splits[options.judge]
    for steps in options.steps:
        for seed in options.seeds:
            for name, case in GROUPS[options.group].items():
                if options.cases and name not in options.cases:
                    continue
                for line in run(dict(case), train, judge, steps, seed, options):
                    facts = {"case": name, "seed": seed, "judge": options.judge}
                    print(json.dumps({**facts, **line}), flush=True)


def run(case, train, judge, steps, seed, options):
    """Trains; yields a line of metrics, and another with re-estimated statistics."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)
    start = time.process_time()
    batch_size = case.pop("batch_size", options.batch_size)
    model = ek.EfficientDet.from_preset(
        "efficientdet-lite0",
        "imagenet",
        dataset=train,
        image_size=tuple(options.image_size),
        verbose=0,
        **case.pop("model", BY_HAND),
    )
    model.compile(**case)
    epochs = max(round(steps * batch_size / len(train)), 1)
    model.fit(train, batch_size=batch_size, epochs=epochs, verbose=0)
    facts = {"batch_size": batch_size, "steps": int(model.optimizer.iterations.numpy())}
    evaluation = ek.callbacks.COCOEvaluation(judge, batch_size=16, verbose=False)

    def line(statistics):
        numbers = evaluation.evaluate(model)
        minutes = (time.process_time() - start) / 60
        return {
            **facts,
            "statistics": statistics,
            **{key: round(float(numbers[key]), 4) for key in ("AP", "AP50")},
            "cpu_minutes": round(minutes, 2),
        }

    yield line("of training")
    if options.group in REESTIMATED:
        reestimate_statistics(model, train)
        yield line("re-estimated on 96 images")


def reestimate_statistics(model, train, num_images=96, batch_size=4):
    """Precise batch norm (https://arxiv.org/abs/2105.07576, section 3) where it trains.

    After one batch, a statistic that starts at zero is that of the batch times
    `1 - momentum`.
    """
    statistics = {
        id(variable): (variable, layer.momentum, [])
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
        for variable in (layer.moving_mean, layer.moving_variance)
    }
    batches = model.batches(train, batch_size, training=True, seed=1)
    for images, _ in batches.take(num_images // batch_size):
        for variable, _, _ in statistics.values():
            variable.assign(np.zeros(variable.shape, "float32"))
        model(images, training=True)
        for variable, momentum, values in statistics.values():
            values.append(variable.numpy() / (1 - momentum))
    for variable, _, values in statistics.values():
        variable.assign(np.mean(values, axis=0))


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("group", choices=GROUPS)
    add("--cases", nargs="+", metavar="CASE", help="only these of the group")
    add("--data", default=BLOOD_CELLS, help="a dataset with splits")
    add("--judge", default="val", help="the split that judges")
    add("--seeds", nargs="+", type=int, default=[0])
    add("--steps", nargs="+", type=int, default=[408], help="rounded to whole epochs")
    add("--batch-size", type=int, default=4)
    add("--image-size", nargs=2, type=int, default=[192, 256])
    return parser.parse_args()


if __name__ == "__main__":
    main()
