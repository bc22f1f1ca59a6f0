"""How long does it take from Python's start to the first training step of D0 and D4?

Batches have one image in the model's size (512 and 1024 pixels). The first step traces
the graph. The time by which it exceeds a later step is called `trace`.
"""

import json
import time

import alternate
import numpy as np


def ours(quick):
    start = time.perf_counter()
    import effdet_keras as ek

    seconds_of_import = time.perf_counter() - start
    presets = ("efficientdet-d0",) if quick else ("efficientdet-d0", "efficientdet-d4")
    return [_first_step(ek, name, seconds_of_import, quick) for name in presets]


def _first_step(ek, preset, seconds_of_import, quick):
    marks = [time.perf_counter()]
    size = {"image_size": 128} if quick else {}
    model = ek.EfficientDet.from_preset(preset, **size)
    marks.append(time.perf_counter())
    model.compile()
    marks.append(time.perf_counter())
    images = np.zeros((1, *model.config.image_size, 3), "float32")
    boxes = np.array([[[10, 10, 90, 90]]], "float32")
    truth = {"boxes": boxes, "labels": np.zeros((1, 1), "int32")}
    for _ in range(3):
        model.train_on_batch(images, truth)
        marks.append(time.perf_counter())
    build, compile_, first, _, later = np.diff(marks)
    parts = {
        "import": seconds_of_import,
        "build": build,
        "compile": compile_,
        "trace": first - later,
        "step": later,
    }
    return {
        "case": preset,
        **{name: round(float(value), 2) for name, value in parts.items()},
        "total": round(float(sum(parts.values())), 2),
    }


if __name__ == "__main__":
    for line in alternate.run_alone(__doc__, ours):
        print(json.dumps(line), flush=True)
