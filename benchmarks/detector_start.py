"""How to fine-tune a detector, compared with an ImageNet backbone for the same steps.

    python benchmarks/detector_start.py DATA DATA DATA blood-cells --folds blood-cells
    python benchmarks/detector_start.py ... --steps 50 200 600 --trained-by reference
    python benchmarks/detector_start.py ... --judge test --recipes "ImageNet" "default"
    python benchmarks/detector_start.py DATA --same-classes --detector-steps 300

README begins with a detector that was trained on COCO. Its weights are not available
everywhere, so this script trains such a detector itself: for each dataset in `--folds`,
on the training images of all other datasets, with all their classes side by side. Then
it fine-tunes that detector on the dataset of the fold by each recipe, and an ImageNet
backbone by the default recipe, at one image size.

`--trained-by` selects how the detector itself was trained: `auto` is our default (ATSS
and a CIoU term), and `reference` has the matching and the loss of the published
weights. With `--detector-freeze backbone`, the detector keeps the ImageNet backbone: a
short training on a few hundred images would narrow it, unlike a training on COCO. With
`--same-classes`, the detector is one of the dataset itself, trained on half of the
images that are trained on afterwards.

Without `--judge test`, four fifths of `train` are trained on, and the last fifth is
used for evaluation: make choices with that. Prints a JSON line for each training. With
`--keep FOLDER`, the detectors are kept there, and used again.
"""

import argparse
import json
import pathlib
import tempfile
import time

import keras
from default_training import cpu_seconds, num_epochs
from frozen_backbone import _BLOOD_CELLS

import effdet_keras as ek
from effdet_keras.train.auto_recipe import BOX_LOSS, _first_blocks

ATSS = {"matching": ek.matching.ATSSMatching(), "loss": BOX_LOSS}
IOU = {"matching": ek.matching.IoUMatching(), "loss": ek.DetectionLoss()}
ALL = {"freeze": None, "learning_rate_multipliers": {"^": 1.0}}
PART = {
    "freeze": _first_blocks("efficientnet-lite0"),
    "learning_rate_multipliers": {"^efficientnet": 0.2},
}
# Ways to fine-tune: arguments of `compile`, and the rate for batches of 8.
RECIPES = {
    "ImageNet": None,
    "default": {},
    # The default until 2026-11-28.
    "all trains, rate 1e-3, IoU": {"rate": 1e-3, **ALL, **IOU},
    "all trains, rate 1e-3, ATSS": {"rate": 1e-3, **ALL, **ATSS},
    "all trains, rate 2.5e-3, ATSS": {"rate": 2.5e-3, **ALL, **ATSS},
    "frozen, rate 1e-3, IoU": {"freeze": "backbone", "rate": 1e-3, **IOU},
    "frozen, rate 1e-3, ATSS": {"freeze": "backbone", "rate": 1e-3, **ATSS},
    "frozen, rate 5e-3, ATSS": {"freeze": "backbone", "rate": 5e-3, **ATSS},
    "frozen, rate 2.5e-3, ATSS": {"freeze": "backbone", "rate": 2.5e-3, **ATSS},
    "frozen, rate 1e-2, ATSS": {"freeze": "backbone", "rate": 1e-2, **ATSS},
    "frozen, rate 2e-2, ATSS": {"freeze": "backbone", "rate": 2e-2, **ATSS},
    "first blocks frozen, rate 1e-3, ATSS": {"rate": 1e-3, **PART, **ATSS},
    "first blocks frozen, rate 2.5e-3, ATSS": {"rate": 2.5e-3, **PART, **ATSS},
    "first blocks frozen, rate 5e-3, ATSS": {"rate": 5e-3, **PART, **ATSS},
    "first blocks frozen, rate 1e-2, ATSS": {"rate": 1e-2, **PART, **ATSS},
}


def main():
    options = read_options()
    data = {name: read(name) for name in options.data}
    folder = pathlib.Path(options.keep or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    for fold in options.folds or data:
        train, judge = data[fold]["train"], data[fold].get("test")
        if options.judge == "held-out":
            train, judge = train.split(0.8, groups="image")
        archive = detector(fold, data, train, folder, options)
        for steps in options.steps:
            for name in options.recipes:
                line = {"dataset": pathlib.Path(fold).name, "recipe": name}
                line |= {"trained_by": options.trained_by, "judge": options.judge}
                line |= {"detector_freeze": options.detector_freeze}
                line |= fine_tuned(RECIPES[name], archive, train, judge, steps, options)
                print(json.dumps(line), flush=True)


def read(name):
    return ek.data.load_splits(_BLOOD_CELLS if name == "blood-cells" else name)


def detector(fold, data, train, folder, options):
    """Returns the archive of the detector to load; trains it unless it exists."""
    kind = "half_of" if options.same_classes else "without"
    name = f"{pathlib.Path(fold).name}_{options.trained_by}_{options.detector_steps}"
    if options.detector_freeze:
        name += f"_frozen_{options.detector_freeze}"
    archive = folder / f"{kind}_{name}.keras"
    if archive.exists():
        return archive
    anchors = None  # the published weights have the anchors of the model
    if options.same_classes:
        (train, _), anchors = train.split(0.5, groups="image"), "auto"
    else:
        train = all_but_one(data, fold)
    keras.utils.set_random_seed(0)
    model = ek.EfficientDet.from_preset(
        options.model,
        "imagenet",
        dataset=train,
        image_size=options.image_size,
        anchors=anchors,
    )
    # Only the rest is the reference's: our optimizer and schedule fit the length.
    recipe = dict(IOU) if options.trained_by == "reference" else {}
    if options.detector_freeze:
        recipe["freeze"] = options.detector_freeze
    fit(model, train, options.detector_steps, recipe, options)
    model.save(archive)
    return archive


def all_but_one(data, fold):
    """Returns the training images of all datasets but one, with all their classes."""
    trains = {
        other: renamed(splits["train"], pathlib.Path(other).name)
        for other, splits in data.items()
        if other != fold
    }
    first, *more = trains.values()
    return first.concatenate(*more)


def renamed(dataset, prefix):
    """Returns the dataset with class names that no other dataset has."""
    names = [f"{prefix}: {name}" for name in dataset.class_names]
    return ek.data.DetectionDataset(dataset.records, names, dataset.category_ids)


def fine_tuned(recipe, archive, train, judge, steps, options):
    """Fine-tunes one model, and evaluates it."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(options.seed)
    begin, cpu = time.monotonic(), cpu_seconds()
    # A new detector gets fitted anchors, and a loaded one keeps its own.
    new = {"weights": "imagenet", "anchors": "auto"}
    model = ek.EfficientDet.from_preset(
        options.model,
        dataset=train,
        image_size=options.image_size,
        **(new if recipe is None else {"weights": archive}),
    )
    fit(model, train, steps, recipe or {}, options)
    training = cpu_seconds() - cpu
    numbers = ek.callbacks.COCOEvaluation(judge, batch_size=16, verbose=False).evaluate(
        model
    )
    return {
        "steps": int(model.optimizer.iterations.numpy()),
        "seed": options.seed,
        "AP": round(float(numbers["AP"]), 4),
        "AP50": round(float(numbers["AP50"]), 4),
        "training_cpu_minutes": round(training / 60, 2),
        "minutes": round((time.monotonic() - begin) / 60, 2),
    }


def fit(model, train, steps, recipe, options):
    """Trains for whole epochs of about `steps` steps; the schedule ends at zero."""
    recipe = dict(recipe)
    epochs = num_epochs(train, steps, options.batch_size)
    rate = recipe.pop("rate", None)
    if rate is not None:
        recipe["learning_rate"] = rate * (options.batch_size / 8) ** 0.5
    model.compile(**recipe)
    model.fit(train, batch_size=options.batch_size, epochs=epochs, verbose=0)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("data", nargs="+", help="`blood-cells`, or paths")
    add("--folds", nargs="+", help="of `data`; all of them by default")
    add("--trained-by", choices=("auto", "reference"), default="auto")
    add("--same-classes", action="store_true", help="see above")
    add("--detector-freeze", choices=("backbone",), help="in its own training")
    add("--detector-steps", type=int, default=900, help="of 8 images")
    add("--steps", nargs="+", type=int, default=[200], help="of the fine-tuning")
    add("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    add("--judge", choices=("held-out", "test"), default="held-out")
    add("--model", default="efficientdet-lite0")
    add("--image-size", type=int, nargs=2, default=[256, 256])
    add("--batch-size", type=int, default=8)
    add("--seed", type=int, default=0)
    add("--keep", help="folder for the detectors")
    return parser.parse_args()


if __name__ == "__main__":
    main()
