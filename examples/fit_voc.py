"""Fine-tunes on a Pascal VOC folder: the heads on a frozen backbone, then everything.

    python examples/fit_voc.py VOCdevkit/VOC2012 --out runs/voc

To train from random weights, see examples/train_blood_cells.py.
"""

import argparse

import effdet_keras as ek


def main():
    options = read_options()
    train = ek.data.from_voc(options.folder, options.splits[0])[: options.images]
    valid = ek.data.from_voc(
        options.folder, options.splits[1], class_names=train.class_names
    )
    print(ek.data.check(train, model=options.model))
    fields = {} if options.image_size is None else {"image_size": options.image_size}
    model = ek.EfficientDet.from_preset(
        options.model, weights=options.weights, class_names=train.class_names, **fields
    )
    batches = model.batches(
        train, options.batch_size, training=True, scale_jitter=(0.5, 1.5)
    )
    evaluation = ek.callbacks.COCOEvaluation(valid)
    archive = ek.callbacks.CheckpointArchive(options.out)

    model.compile(optimizer="adamw", learning_rate=1e-3, freeze=options.freeze)
    model.fit(batches, epochs=options.head_epochs, callbacks=[evaluation])

    model.unfreeze()
    model.compile(optimizer="adamw", learning_rate=options.learning_rate)
    model.fit(batches, epochs=options.epochs, callbacks=[evaluation, archive])


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("folder", help="with Annotations, JPEGImages and ImageSets/Main")
    add("--splits", nargs=2, default=("train", "val"), help="lists in ImageSets/Main")
    add("--out", default="runs/voc", help="folder for checkpoints")
    add("--model", default="efficientdet-d0")
    add("--weights", default="coco", help="a published key, a path or an address")
    add("--freeze", default="backbone", help='"backbone+fpn", or a regular expression')
    add("--image-size", type=int, nargs=2, metavar=("H", "W"), help="model's own")
    add("--head-epochs", type=int, default=5)
    add("--epochs", type=int, default=20)
    add("--images", type=int, help="train on this many images only, to try it out")
    add("--batch-size", type=int, default=8)
    add("--learning-rate", type=float, default=3e-4, help="of the second phase")
    return parser.parse_args()


if __name__ == "__main__":
    main()
