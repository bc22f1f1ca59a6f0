"""Fine-tunes published weights on COCO json, and resumes a training that was stopped.

    python examples/fit_coco_json.py train.json train/ valid.json valid/ --out runs/coco

With `--resume` it goes on after the last complete epoch. Backbone and heads train
together, with the reference's optimizer. With few images freeze the backbone first: see
examples/fit_voc.py and docs/fine_tuning.md.
"""

import argparse

import effdet_keras as ek


def main():
    options = read_options()
    train = ek.data.from_coco(options.train_json, options.train_images)
    valid = ek.data.from_coco(
        options.valid_json, options.valid_images, class_names=train.class_names
    )
    print(train.summary())
    if options.resume:
        model = ek.EfficientDet.from_archive(options.out, resume=True)
        epochs_done = ek.read_archive_info(f"{options.out}/last.keras")["epoch"]
    else:
        model = new_model(train, options)
        epochs_done = 0
    model.fit(
        train[: options.images],
        batch_size=options.batch_size,
        epochs=options.epochs,
        initial_epoch=epochs_done,
        callbacks=[
            ek.callbacks.COCOEvaluation(valid, batch_size=options.batch_size),
            ek.callbacks.CheckpointArchive(options.out),
        ],
    )
    best = ek.EfficientDet.from_archive(options.out)
    best.save(f"{options.out}/detector.keras")


def new_model(train, options):
    fields = {} if options.image_size is None else {"image_size": options.image_size}
    model = ek.EfficientDet.from_preset(
        options.model,
        weights=options.weights,
        class_names=train.class_names,
        category_ids=train.category_ids,
        **fields,
    )
    model.compile(recipe="reference", learning_rate=options.learning_rate)
    return model


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("train_json")
    add("train_images", help="folder of the images that the json names")
    add("valid_json")
    add("valid_images")
    add("--out", default="runs/coco", help="folder for checkpoints")
    add("--resume", action="store_true", help="go on from the last checkpoint there")
    add("--model", default="efficientdet-d0")
    add("--weights", default="coco", help="a published key, a path or an address")
    add("--image-size", type=int, nargs=2, metavar=("H", "W"), help="model's own")
    add("--epochs", type=int, default=30)
    add("--images", type=int, help="train on this many images only, to try it out")
    add("--batch-size", type=int, default=8)
    add("--learning-rate", type=float, default=0.08, help="for a batch of 64")
    return parser.parse_args()


if __name__ == "__main__":
    main()
