"""Loaded weights against random ones on a small dataset, in one plot.

    python benchmarks/fine_tuning.py BCCD_Dataset/BCCD --out runs/fine_tuning

A model is trained on one half of the images. Trainings on the other half then start
from its weights without the class layer, or from random ones. As a stand-in for
published weights this is generous, because both halves show the same kind of image, and
also poor, because the model has seen only 103 images. docs/fine_tuning.md has the
results.
"""

import argparse
import json
import pathlib

import keras

import effdet_keras as ek
from effdet_keras import visualize
from effdet_keras.train.schedules import WarmupCosine

BATCH_SIZE = 4
RATE = 5e-3

# Whether weights are loaded; then what is frozen, and the rate, of each equal part.
TRAININGS = {
    "random weights, all trains": (False, [(None, RATE)]),
    "loaded, all trains": (True, [(None, RATE)]),
    "loaded, backbone frozen": (True, [("backbone", RATE)]),
    "loaded, frozen, then all at the same rate": (
        True,
        [("backbone", RATE), (None, RATE)],
    ),
    "loaded, frozen, then all at a third of it": (
        True,
        [("backbone", RATE), (None, RATE / 3)],
    ),
}


def main():
    options = read_options()
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    images = ek.data.from_voc(options.folder, "train")
    valid = ek.data.from_voc(options.folder, "val", class_names=images.class_names)
    if options.quick:
        images, valid = images[:8], valid[:2]
    first, second = (images.subset(range(i, len(images), 2)) for i in (0, 1))

    make_weights(first, valid, options.pretrain_epochs, out / "loaded.weights.h5")
    curves = {}
    for name, (loaded, parts) in TRAININGS.items():
        weights = out / "loaded.weights.h5" if loaded else None
        curves[name] = fine_tune(weights, parts, second, valid, options.epochs)
        print(json.dumps({"training": name, "AP": curves[name]}), flush=True)
    plot(curves, out / "fine_tuning.png")


def make_weights(dataset, valid, epochs, path):
    """What stands in for published weights."""
    keras.utils.set_random_seed(0)
    model = new_model(dataset.class_names)
    train(model, dataset, epochs)
    numbers = ek.callbacks.COCOEvaluation(valid, verbose=False).evaluate(model)
    print(json.dumps({"weights to load": numbers["AP"]}), flush=True)
    with model.averages.swapped():
        model.save_weights(path)


def fine_tune(weights, parts, dataset, valid, epochs):
    """The AP after each epoch. With each part a training begins anew."""
    keras.utils.set_random_seed(1)
    model = new_model(dataset.class_names)
    if weights is not None:  # of other classes: the class layer starts new
        others = [f"not {name}" for name in dataset.class_names]
        model.load_pretrained(weights, class_names=others, verbose=0)
    evaluation = ek.callbacks.COCOEvaluation(valid, verbose=False)
    curve = []
    for freeze, rate in parts:
        history = train(
            model, dataset, epochs // len(parts), rate, freeze, [evaluation]
        )
        curve += history.history["AP"]
    return curve


def new_model(class_names):
    return ek.EfficientDet.from_preset(
        "efficientdet-lite0",
        class_names=class_names,
        image_size=(192, 256),
        max_level=5,
        anchor_scale=2.0,  # the smallest anchor is 16 pixels, and so are platelets
        batch_norm_momentum=0.95,
        backbone_survival_prob=None,
    )


def train(model, dataset, epochs, rate=RATE, freeze=None, callbacks=()):
    batches = model.batches(
        dataset, BATCH_SIZE, training=True, scale_jitter=(0.8, 1.25)
    )
    steps = epochs * len(batches)
    schedule = WarmupCosine(rate, total_steps=steps, warmup_steps=steps // 20)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.05)
    model.unfreeze()
    model.compile(optimizer, weight_decay=0.0, freeze=freeze)
    return model.fit(batches, epochs=epochs, verbose=0, callbacks=list(callbacks))


def plot(curves, path):
    figure = visualize.require_matplotlib()(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, values in curves.items():
        axes.plot(range(1, len(values) + 1), values, marker="o", label=name)
    axes.set(xlabel="epoch", ylabel="AP on val", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("folder", help="with Annotations, JPEGImages and ImageSets/Main")
    add("--out", default="runs/fine_tuning", help="folder for all that is written")
    add("--pretrain-epochs", type=int, default=20)
    add("--epochs", type=int, default=10)
    add("--quick", action="store_true", help="ten images: a smoke test")
    return parser.parse_args()


if __name__ == "__main__":
    main()
