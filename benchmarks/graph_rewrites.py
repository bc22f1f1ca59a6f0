"""What do TensorFlow's rewrites of the training graph cost at first, and gain later?

The package turns three of them off on CPUs. This is compared with all of TensorFlow's
rewrites, and with none. The first `train_on_batch` traces the graph, rewrites it and
trains; later calls only train. D0 at 512x512, batches of 4 images. The sides take
turns, each in a process of its own.
"""

import alternate
import numpy as np


def as_it_is(quick):
    return measure({}, quick)


def all_rewrites(quick):
    from effdet_keras.train.functions.tensorflow import SLOW_REWRITES

    return measure(dict.fromkeys(SLOW_REWRITES, True), quick)


def no_rewrites(quick):
    return measure({"disable_meta_optimizer": True}, quick)


def measure(options, quick):
    """Returns seconds of the first step and of later ones, for TensorFlow options."""
    import tensorflow as tf

    import effdet_keras as ek

    tf.config.optimizer.set_experimental_options(options)
    size = {"image_size": 128} if quick else {}
    model = ek.EfficientDet.from_preset("efficientdet-d0", **size)
    model.compile()
    count = 1 if quick else 4
    images = np.zeros((count, *model.config.image_size, 3), "float32")
    boxes = np.tile(np.array([[[10, 10, 90, 90]]], "float32"), (count, 1, 1))
    truth = {"boxes": boxes, "labels": np.zeros((count, 1), "int32")}

    def step():
        model.train_on_batch(images, truth)

    first = alternate.repeat(step, 1, warm_up=0)
    return {
        "first step": first,
        "later step": alternate.repeat(step, 2 if quick else 20, warm_up=2),
    }


if __name__ == "__main__":
    sides = {"ours": as_it_is, "ours_all": all_rewrites, "ours_none": no_rewrites}
    alternate.main(__doc__, sides, allocators=["tuned"])
