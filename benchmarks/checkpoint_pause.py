"""For how long does writing a checkpoint stop the training?

D0 and Lite0 with moving averages and momentum, as `CheckpointArchive` writes them.
Prints a line per model with medians of some rounds: the size of the file, the seconds
of the pause, and the seconds that a plain copy of the same arrays takes.
"""

import argparse
import json
import pathlib
import statistics
import tempfile
import time

import numpy as np

MODELS = ("efficientdet-d0", "efficientdet-lite0")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    quick = parser.parse_args().quick
    for name in MODELS[1:] if quick else MODELS:
        print(json.dumps({"case": name, **measured(name, 1 if quick else 7)}))


def measured(name, repeats):
    from keras import ops

    import effdet_keras as ek
    from effdet_keras.weights.archive import write_archive

    # The image size does not affect a checkpoint.
    model = ek.EfficientDet.from_preset(name, image_size=128, verbose=0)
    model.compile("momentum", ema_decay=0.9998)
    variables = [
        *model.variables,
        *model.averages.variables,
        *model.optimizer.variables,
    ]
    pauses, copies = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "last.keras"
        for number in range(repeats + 1):
            copy = seconds_of(
                lambda: [np.array(ops.convert_to_numpy(v)) for v in variables]
            )
            pause = seconds_of(lambda: write_archive(model, path))
            if number:  # the first round only warms up
                pauses.append(pause)
                copies.append(copy)
        size = path.stat().st_size
    return {
        "bytes": size,
        "pause_seconds": round(statistics.median(pauses), 3),
        "copy_seconds": round(statistics.median(copies), 3),
        "repeats": repeats,
    }


def seconds_of(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
