"""Trains an EfficientDet from random weights on a small Pascal VOC folder.

    python examples/train_blood_cells.py BCCD_Dataset/BCCD --out runs/blood_cells

The settings are for https://github.com/Shenggan/BCCD_Dataset: 205 images for training,
87 to choose the checkpoint, and 72 to judge it. docs/blood_cells.md has the results,
and says what to change for other images.
"""

import argparse
import pathlib

import keras
from PIL import Image

import effdet_keras as ek
from effdet_keras.visualize import draw_boxes, plot_history, side_by_side


def main():
    options = read_options()
    keras.utils.set_random_seed(options.seed)
    train = ek.data.from_voc(options.folder, options.splits[0])
    valid, test = (
        ek.data.from_voc(options.folder, split, class_names=train.class_names)
        for split in options.splits[1:]
    )
    print(train.summary())
    model = ek.EfficientDet.from_preset(
        "efficientdet-lite0",
        class_names=train.class_names,
        image_size=options.image_size,
        max_level=5,  # no cell is larger than the anchors of stride 32
        anchor_scale=2.5,  # the smallest anchor is 20 pixels, and so are platelets
        batch_norm_momentum=0.95,  # 0.99 adapts too slowly in a short training
        backbone_survival_prob=None,
    )
    batches = model.batches(
        train, options.batch_size, training=True, scale_jitter=(0.8, 1.25)
    )
    steps = options.epochs * len(batches)
    rate = ek.schedules.WarmupCosine(
        options.learning_rate, total_steps=steps, warmup_steps=steps // 20
    )
    model.compile(keras.optimizers.AdamW(rate, weight_decay=0.05), weight_decay=0.0)

    out = pathlib.Path(options.out)
    evaluation = ek.callbacks.COCOEvaluation(valid, every=5, verbose=False)
    archive = ek.callbacks.CheckpointArchive(out)
    history = model.fit(
        batches, epochs=options.epochs, verbose=2, callbacks=[evaluation, archive]
    )
    plot_history(history, out / "curves.png")

    best = ek.EfficientDet.from_archive(out)
    for dataset in (valid, test):
        ek.callbacks.COCOEvaluation(dataset).evaluate(best)
    for example in test[: options.images]:
        image = Image.fromarray(truth_beside_prediction(best, example))
        image.save(out / f"{example['source_id']}.jpg", quality=85)


def truth_beside_prediction(model, example):
    """An image `[H, W, 3]`: ground truth on the left, detections on the right."""
    image, names = example["image"], model.class_names
    found = model.detect(image, score_threshold=0.4)
    truth = draw_boxes(image, example["boxes"], example["labels"], class_names=names)
    return side_by_side(truth, found.draw())


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("folder", help="with Annotations, JPEGImages and ImageSets/Main")
    add("--out", default="runs/blood_cells", help="folder for all that is written")
    add(
        "--splits",
        nargs=3,
        default=("train", "val", "test"),
        help="lists in ImageSets/Main",
    )
    add("--image-size", type=int, nargs=2, default=(240, 320), metavar=("H", "W"))
    add("--epochs", type=int, default=40)
    add("--batch-size", type=int, default=4)
    add("--learning-rate", type=float, default=8e-3)
    add("--images", type=int, default=8, help="images of the last split to draw")
    add("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
