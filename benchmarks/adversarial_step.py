"""How much longer is a training step with `AdvProp` than without?

Lite0 at 128 x 128, 4 images, in CPU time, as a ratio to the step without it: other
programs on the machine hardly change it. A line per kind of attack; medians.
"""

import argparse
import json
import statistics
import time

import numpy as np

STEPS = 4  # per round


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    repeats = 1 if parser.parse_args().quick else 3
    import effdet_keras as ek

    without = seconds(None, repeats)
    print(json.dumps({"case": "without", "cpu_seconds": round(without, 3)}), flush=True)
    for loss in ("max", "both", "class"):
        taken = seconds(ek.AdvProp(loss=loss), repeats)
        line = {"case": loss, "cpu_seconds": round(taken, 3)}
        print(json.dumps({**line, "ratio": round(taken / without, 2)}), flush=True)


def seconds(adversarial, repeats):
    """The CPU time of a step, all threads together."""
    import effdet_keras as ek

    model = ek.EfficientDet.from_preset(
        "efficientdet-lite0", image_size=128, max_level=6, num_classes=3
    )
    model.compile("momentum", adversarial=adversarial, ema_decay=0.99)
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 255, (4, 128, 128, 3)).astype("float32")
    boxes = np.tile(np.array([8, 8, 72, 72], "float32"), (4, 5, 1))
    truth = {"boxes": boxes, "labels": np.zeros((4, 5), "int32")}
    import tensorflow as tf

    data = tf.data.Dataset.from_tensors((images, truth)).repeat()
    times = []
    for number in range(repeats + 1):
        start = time.process_time()
        model.fit(data, steps_per_epoch=STEPS, verbose=0)
        if number:  # in the first it is compiled
            times.append((time.process_time() - start) / STEPS)
    return statistics.median(times)


if __name__ == "__main__":
    main()
