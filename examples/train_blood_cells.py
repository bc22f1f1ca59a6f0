"""Trains an EfficientDet from random weights on a small Pascal VOC folder.

Made for the blood cells of https://github.com/Shenggan/BCCD_Dataset (MIT): 205
pictures to train on, 87 to choose the checkpoint, 72 to judge it. Any VOC folder
with its own splits will do; docs/blood_cells.md says what came out, and why so.

    python examples/train_blood_cells.py BCCD_Dataset/BCCD --out runs/blood_cells
"""

import argparse
import pathlib

import keras
from PIL import Image

import effdet_keras as ek
from effdet_keras.training.schedules import WarmupCosine
from effdet_keras.visualize import draw_boxes, plot_history, side_by_side


def main():
    options = read_options()
    keras.utils.set_random_seed(options.seed)
    train = ek.data.from_voc(options.folder, options.train)
    names = train.class_names
    valid = ek.data.from_voc(options.folder, options.valid, class_names=names)
    test = ek.data.from_voc(options.folder, options.test, class_names=names)
    print(train.summary())

    model = ek.EfficientDet.from_preset(
        "efficientdet-lite0",
        class_names=names,
        image_size=options.image_size,
        max_level=5,  # no cell is larger than the anchors of stride 32
        anchor_scale=2.5,  # platelets are 20 pixels wide, the smallest anchor as well
        batch_norm_momentum=0.95,  # few steps: statistics must follow quickly
        backbone_survival_prob=None,
    )
    steps = options.epochs * (len(train) // options.batch_size)
    rate = WarmupCosine(
        options.learning_rate, total_steps=steps, warmup_steps=steps // 20
    )
    model.compile(keras.optimizers.AdamW(rate), ema_decay=0.99)
    batches = train.batches(
        options.batch_size,
        training=True,
        image_size=options.image_size,
        pad_value=model.config.mean_rgb,
        scale_jitter=(0.8, 1.25),
    )
    out = pathlib.Path(options.out)
    history = model.fit(
        batches,
        epochs=options.epochs,
        verbose=2,
        callbacks=[
            ek.callbacks.COCOEvaluation(valid, every=5, verbose=False),
            ek.callbacks.CheckpointArchive(out),
        ],
    )
    plot_history(history, out / "curves.png")

    best = ek.EfficientDet.from_archive(out)
    for dataset in (valid, test):
        ek.callbacks.COCOEvaluation(dataset).evaluate(best)
    picture = truth_beside_prediction(best, test[options.picture])
    Image.fromarray(picture).save(out / "test.jpg", quality=85)


def truth_beside_prediction(model, example):
    image = example["image"]
    found = model.detect(image, score_threshold=0.4)
    truth = draw_boxes(
        image, example["boxes"], example["labels"], class_names=model.class_names
    )
    return side_by_side(truth, found.draw())


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("folder", help="with Annotations, JPEGImages and ImageSets/Main")
    add("--out", default="runs/blood_cells", help="checkpoints and pictures go here")
    add("--train", default="train", help="image set to train on")
    add("--valid", default="val", help="image set that chooses the checkpoint")
    add("--test", default="test", help="image set for the final numbers")
    add("--image-size", type=int, nargs=2, default=(240, 320), metavar=("H", "W"))
    add("--epochs", type=int, default=60)
    add("--batch-size", type=int, default=8)
    add("--learning-rate", type=float, default=2e-3)
    add("--picture", type=int, default=0, help="index in the test set, to draw")
    add("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
