"""A program: a training on one device, on several, or in several processes.

    python tests/support/trained_by_several.py HOW OUT [STEPS]

HOW is "one", "mirrored" (two devices), or "multiworker" or "jax" (two processes, with
the variables of a launcher). OUT.npz gets the weights; OUT.json history and numbers.
"""

import json
import pathlib
import sys

import keras
import numpy as np
from support.tiny import tiny_model

from effdet_keras import callbacks, data
from effdet_keras.extras import multiprocess as distribution
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train.losses import DetectionLoss

BATCH_SIZE, STEPS = 4, 5


def dataset_of(size, seed):
    """Images of noise, with nought to three boxes each."""
    rng = np.random.default_rng(seed)
    images = [rng.integers(0, 255, (64, 64, 3)).astype("uint8") for _ in range(size)]
    corners = [rng.uniform(0, 30, (i % 4, 2)) for i in range(size)]
    boxes = [np.concatenate([c, c + rng.uniform(12, 30, c.shape)], 1) for c in corners]
    labels = [rng.integers(0, 3, len(b)) for b in boxes]
    return data.from_arrays(images, boxes, labels, ("cat", "dog", "bird"))


def new_model(*, synchronized):
    keras.utils.set_random_seed(2)
    plain = tiny_model()
    # Each device would draw its own depth. And ReLU6 makes much of rounding: the images
    # of a batch in another order, on one device, come to 8.9e-5 after five steps.
    config = plain.config.replace(
        sync_batch_norm=synchronized,
        survival_prob=None,
        backbone_survival_prob=None,
        activation="swish",
    )
    model = EfficientDet(config, class_names=plain.class_names)
    model.set_weights(plain.get_weights())
    loss = DetectionLoss(positives_momentum=0.5)
    model.compile("momentum", loss=loss, learning_rate=0.01, ema_decay=0.9)
    return model


def main(how, out, steps=STEPS):
    if how == "mirrored":
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        with strategy.scope():
            model = new_model(synchronized=True)
    elif how == "one":
        model = new_model(synchronized=False)
    else:
        with distribution.start(how).scope():
            model = new_model(synchronized=how == "multiworker")
    train = dataset_of(int(steps) * BATCH_SIZE, seed=0)
    valid = dataset_of(7, seed=1)  # the last batch is not full
    history = model.fit(
        model.batches(train, BATCH_SIZE, training=True, seed=3),
        epochs=1,
        verbose=0,
        callbacks=[
            callbacks.COCOEvaluation(valid, batch_size=2, verbose=False, losses=True)
        ],
    ).history
    detections = callbacks.COCOEvaluation(valid, batch_size=2, verbose=False)
    numbers = detections.evaluate(model)
    processes = distribution.current_processes()
    out = pathlib.Path(f"{out}-{processes.index}")
    np.savez(out.with_suffix(".npz"), *model.get_weights())
    result = {"history": history, "numbers": numbers}
    out.with_suffix(".json").write_text(json.dumps(result, default=float))


if __name__ == "__main__":
    main(*sys.argv[1:])
