"""Fine-tunes a TensorFlow Hub feature module, and exports one again.

    python examples/fit_from_hub.py DATA --out runs/from_hub
    python examples/fit_from_hub.py DATA --module my_module/ --freeze "backbone+fpn"

DATA is a folder in any format that docs/data.md lists. Without a validation split, a
tenth of the images to train on is held out.
"""

import argparse

import effdet_keras as ek

LITE0 = "https://tfhub.dev/tensorflow/efficientdet/lite0/feature-vector/1"


def main():
    options = read_options()
    train, valid = ek.data.load_train_valid(options.folder, 0.9)
    model = ek.EfficientDet.from_hub(options.module, class_names=train.class_names)
    batches = model.batches(
        train, options.batch_size, training=True, scale_jitter=(0.5, 1.5)
    )
    model.compile(
        optimizer="adamw", learning_rate=options.learning_rate, freeze=options.freeze
    )
    model.fit(
        batches,
        epochs=options.epochs,
        callbacks=[
            ek.callbacks.COCOEvaluation(valid),
            ek.callbacks.CheckpointArchive(options.out),
        ],
    )
    best = ek.EfficientDet.from_archive(options.out)
    best.save(f"{options.out}/detector.keras")
    best.export_hub_module(f"{options.out}/module")


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("folder", help="of the dataset")
    add("--module", default=LITE0, help="address or folder")
    add("--out", default="runs/from_hub", help="new folder for all that is written")
    add("--freeze", help='"backbone", "backbone+fpn", or a regular expression')
    add("--epochs", type=int, default=20)
    add("--batch-size", type=int, default=16)
    add("--learning-rate", type=float, default=5e-4)
    return parser.parse_args()


if __name__ == "__main__":
    main()
