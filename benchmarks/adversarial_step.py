"""How much longer is a training step with `AdvProp` than without?

Lite0 at 128 x 128, 4 images, in CPU time, as a ratio to the step without it. The kinds
of step take turns, so that other programs on the machine slow all alike. A line per
kind, with the median of its rounds.
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
    is_quick = parser.parse_args().quick
    import effdet_keras as ek

    attacks = ("class",) if is_quick else ("max", "both", "class")
    models = {"without": new_model(None)}
    models |= {loss: new_model(ek.AdvProp(loss=loss)) for loss in attacks}
    data = made_up_batches()
    rounds = [
        {name: seconds(model, data) for name, model in models.items()}
        for _ in range(2 if is_quick else 6)
    ][1:]  # in the first they are compiled
    for name in models:
        taken = statistics.median(times[name] for times in rounds)
        ratio = statistics.median(times[name] / times["without"] for times in rounds)
        line = {"case": name, "cpu_seconds": round(taken, 3), "ratio": round(ratio, 2)}
        print(json.dumps(line), flush=True)


def new_model(adversarial):
    import effdet_keras as ek

    model = ek.EfficientDet.from_preset(
        "efficientdet-lite0", image_size=128, max_level=6, num_classes=3
    )
    model.compile("momentum", adversarial=adversarial, ema_decay=0.99)
    return model


def made_up_batches():
    import tensorflow as tf

    rng = np.random.default_rng(0)
    images = rng.uniform(0, 255, (4, 128, 128, 3)).astype("float32")
    boxes = np.tile(np.array([8, 8, 72, 72], "float32"), (4, 5, 1))
    truth = {"boxes": boxes, "labels": np.zeros((4, 5), "int32")}
    return tf.data.Dataset.from_tensors((images, truth)).repeat()


def seconds(model, data):
    """The CPU time of a step, all threads together."""
    start = time.process_time()
    model.fit(data, steps_per_epoch=STEPS, verbose=0)
    return (time.process_time() - start) / STEPS


if __name__ == "__main__":
    main()
