"""Trains on a `tf.data` pipeline of your own: any source, any augmentation.

    python examples/fit_tf_data.py train.jsonl valid.jsonl cat dog --out cats.keras

Each line of a file describes one image. No reader of this package knows this format:

    {"file": "0001.jpg", "objects": [["cat", left, top, right, bottom], ...]}

`fit` needs a pipeline of batches `(images, {"boxes", "labels"})`: images in the model's
size, pixels 0 to 255; boxes `yxyx` in their pixels; labels from 0, and -1 for padding.
"""

import argparse
import json
import pathlib

import numpy as np
import tensorflow as tf

import effdet_keras as ek


def main():
    options = read_options()
    fields = {} if options.image_size is None else {"image_size": options.image_size}
    model = ek.EfficientDet.from_preset(
        options.model, weights=options.weights, class_names=options.classes, **fields
    )
    size = model.config.image_size
    train = examples_of(options.train, options.classes, size)
    valid = examples_of(options.valid, options.classes, size)
    train = train.shuffle(1000).repeat().map(flip, tf.data.AUTOTUNE)

    model.compile(optimizer="adamw", learning_rate=options.learning_rate)
    model.fit(
        batches(train, options.batch_size),
        epochs=options.epochs,
        steps_per_epoch=options.steps,  # a repeated pipeline has no end
        validation_data=batches(valid, options.batch_size),
        callbacks=[ek.callbacks.COCOEvaluation(batches(valid, options.batch_size))],
    )
    model.save(options.out)


def examples_of(path, classes, size):
    """A `tf.data.Dataset` of `(image, boxes, labels)`, one per line of the file."""
    path = pathlib.Path(path)
    entries = [json.loads(line) for line in path.read_text().splitlines()]

    def read_entries():
        for entry in entries:
            objects = entry["objects"]
            boxes = [[top, left, down, right] for _, left, top, right, down in objects]
            labels = [classes.index(name) for name, *_ in objects]
            file = str(path.parent / entry["file"])
            yield file, np.array(boxes, "float32").reshape(-1, 4), labels

    spec = (
        tf.TensorSpec((), tf.string),
        tf.TensorSpec((None, 4), tf.float32),
        tf.TensorSpec((None,), tf.int32),
    )
    examples = tf.data.Dataset.from_generator(read_entries, output_signature=spec)
    length = tf.data.experimental.assert_cardinality(len(entries))
    return examples.apply(length).map(lambda *x: load(*x, size), tf.data.AUTOTUNE)


def load(path, boxes, labels, size):
    """Stretches an image to the model's size, and its boxes with it."""
    image = tf.io.decode_image(tf.io.read_file(path), 3, expand_animations=False)
    scale = tf.constant(size, tf.float32) / tf.cast(tf.shape(image)[:2], tf.float32)
    return tf.image.resize(image, size), boxes * tf.tile(scale, [2]), labels


def flip(image, boxes, labels):
    """Mirrors half of all images. This is the place for augmentation of your own."""
    if tf.random.uniform(()) < 0.5:
        top, left, bottom, right = tf.unstack(boxes, axis=1)
        width = tf.cast(tf.shape(image)[1], tf.float32)
        boxes = tf.stack([top, width - right, bottom, width - left], axis=1)
        image = image[:, ::-1]
    return image, boxes, labels


def batches(examples, batch_size):
    """Batches as `fit` takes them."""
    padding = (0.0, 0.0, -1)  # a label of -1 is no object
    padded = examples.padded_batch(batch_size, padding_values=padding)
    named = padded.map(lambda i, boxes, labels: (i, {"boxes": boxes, "labels": labels}))
    return named.prefetch(tf.data.AUTOTUNE)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("train", help="file with one line per image, beside the images")
    add("valid")
    add("classes", nargs="+", help="names, in the order of the labels")
    add("--out", default="detector.keras")
    add("--model", default="efficientdet-d0")
    add("--weights", default="coco", help="a published key, a path or an address")
    add("--image-size", type=int, nargs=2, metavar=("H", "W"), help="model's own")
    add("--epochs", type=int, default=30)
    add("--steps", type=int, default=100, help="steps per epoch")
    add("--batch-size", type=int, default=8)
    add("--learning-rate", type=float, default=3e-4)
    return parser.parse_args()


if __name__ == "__main__":
    main()
